//! Request bodies of the retrieval server: read, or refused with the place of every fault.
#![no_main]

use forage_retriever::server::request::{Limits, RerankRequest, RetrieveRequest, parse_statistics};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { topk: 3, max_topk: 1000, max_queries: 64, max_query_bytes: 4096 };

fuzz_target!(|body: &[u8]| {
    match RetrieveRequest::parse(body, &LIMITS) {
        Ok(request) => {
            assert!(request.k >= 1 && request.k <= LIMITS.max_topk && request.queries.len() <= LIMITS.max_queries);
            assert!(request.candidates.is_none_or(|candidates| candidates >= request.k));
        }
        Err(problems) => assert!(!problems.is_empty() && problems.len() <= 20),
    }
    for batch in [false, true] {
        let _ = RetrieveRequest::parse_flashrag(body, &LIMITS, batch);
    }
    if let Ok(request) = RerankRequest::parse(body, &LIMITS) {
        assert_eq!(request.queries.len(), request.documents.len());
    }
    let _ = parse_statistics(body, &LIMITS);
});
