//! A server that fails on purpose, on plain sockets so that it can break the protocol anywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const VERDICT: &str = r#"{"correct": true, "approach": 80}"#;

/// What it does with a request.
pub(super) enum Act {
    /// Answers with a status and a body.
    Say(u16, String),
    /// Answers nothing.
    Stall,
    /// Sends without an end.
    Flood,
    /// Announces more than it sends.
    Truncate,
    /// Hangs up.
    Close,
}

/// A chat completion with these words.
pub(super) fn completion(words: &str) -> String {
    let choice = serde_json::json!({"message": {"role": "assistant", "content": words}, "finish_reason": "stop"});
    serde_json::json!({"choices": [choice], "usage": {"total_tokens": 100}}).to_string()
}

pub(super) struct Server {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves until the process ends; `act` is told the number of the request.
    pub(super) fn start(act: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        Self::reading(move |number, _| act(number))
    }

    /// As [`Server::start`]; `act` is told the request's body as well.
    pub(super) fn reading(act: impl Fn(usize, &str) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let bodies = Arc::<Mutex<Vec<String>>>::default();
        let (seen, act) = (Arc::clone(&bodies), Arc::new(act));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, act) = (Arc::clone(&seen), Arc::clone(&act));
                std::thread::spawn(move || {
                    let Some(body) = request(&stream) else { return };
                    let number = {
                        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.push(body.clone());
                        seen.len() - 1
                    };
                    perform(stream, act(number, &body));
                });
            }
        });
        Self { address, bodies }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of the requests so far.
    pub(super) fn bodies(&self) -> Vec<String> {
        self.bodies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

fn perform(mut stream: TcpStream, act: Act) {
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
    };
    // The client may leave at any time: then there is nothing more to do.
    let _ = match act {
        Act::Say(status, body) => stream.write_all((head(status, body.len()) + &body).as_bytes()),
        Act::Truncate => stream.write_all((head(200, 1000) + "{\"choices\": [").as_bytes()),
        Act::Close => Ok(()),
        Act::Stall => {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
            stream.read(&mut [0]).map(|_| ())
        }
        Act::Flood => {
            let mut sent = stream.write_all(b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n");
            while sent.is_ok() {
                sent = stream.write_all(&[b' '; 1 << 13]);
            }
            sent
        }
    };
}
