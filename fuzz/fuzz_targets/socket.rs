//! Frames of a WebSocket of the environment server: whatever arrives, the connection ends when the client's side has, and the server
//! goes on answering others.
//!
//! The input is cut at bytes 0xFF, which no text holds. The first byte of a part says what it is: with bit 0x40 the rest is sent
//! as it stands, else it is the payload of a masked frame with this byte's end mark and opcode.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use forage_contracts::{ByteTokenizer, Resources, Split};
use forage_env::reward::RewardSet;
use forage_env::server::{Served, ServerConfig};
use forage_env::{World, WorldSpec, registry};
use forage_retriever::Bm25Retriever;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Longest time until the server ends a connection whose client has.
const PATIENCE: Duration = Duration::from_secs(10);
const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

static SERVER: LazyLock<(Runtime, SocketAddr)> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("threads");
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let config = ServerConfig {
        max_action_bytes: 1024,
        ..ServerConfig::default()
    };
    runtime.spawn(async move {
        let served = served().serve(listener, config, std::future::pending());
        served.await.expect("serves")
    });
    (runtime, addr)
});

fn served() -> Served {
    let world = World::new(WorldSpec::new(100, 3)).expect("a world");
    let retriever = Bm25Retriever::in_memory(world.passages().collect()).expect("an index");
    let entry = registry::find("search-r1").expect("registered");
    let settings = Value::Object((entry.for_bytes)(Map::new()));
    let tokenizer = Arc::new(ByteTokenizer);
    let resources = Resources::new(Arc::new(retriever), tokenizer.clone());
    Served {
        factory: (entry.make)(settings, resources).expect("made"),
        tasks: world
            .questions(Split::Train, 4)
            .expect("questions")
            .map(Arc::new)
            .collect(),
        rewards: Arc::new(RewardSet::measure(entry.outcome)),
        tokenizer,
    }
}

/// A masked frame; the mask is zero, so that the payload is what the server reads.
fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![head & 0x8f];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
}

/// What the server sends until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(
            error.kind() != ErrorKind::WouldBlock,
            "the connection did not end"
        );
    }
    answer
}

fuzz_target!(|data: &[u8]| {
    let addr = SERVER.1;
    let mut stream = connect(addr);
    stream.write_all(HANDSHAKE.as_bytes()).expect("sent");
    for part in data.split(|&byte| byte == 0xff) {
        let Some((&head, payload)) = part.split_first() else {
            continue;
        };
        let bytes = if head & 0x40 == 0 {
            frame(head, payload)
        } else {
            payload.to_vec()
        };
        // The server may have ended the connection by now.
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let answer = rest(&mut stream);
    // A connection that the server ends over what it has not read may lose its answer.
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 101"),
        "no frame was read"
    );

    let mut other = connect(addr);
    other
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .expect("sent");
    assert!(
        rest(&mut other).starts_with(b"HTTP/1.1 200"),
        "the server no longer answers"
    );
});
