//! Request bodies of the retrieval server: read, or refused with the place of every fault.
#![no_main]

use forage_retriever::server::read_body;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| read_body(body));
