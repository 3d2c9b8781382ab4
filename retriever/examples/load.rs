//! Loads a retrieval server: `load ADDRESS QUERIES CONNECTIONS SECONDS TOPK`.
//!
//! Every connection stays open and asks one query after the other (`POST /retrieve`, scores wanted) until the time is over;
//! a refused request (503) is asked again after 10 ms. Prints one JSON line: answers per second, latency of the answers and
//! of the refusals in milliseconds, requests by status. HTTP/1.1 is spoken by hand, so that the client costs little of the
//! machine both share.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_retriever::QueryRecord;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const REFUSED: u16 = 503;
const PAUSE: Duration = Duration::from_millis(10);

/// Latencies by status; 0 stands for a broken connection.
type Times = BTreeMap<u16, Vec<Duration>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, queries, connections, seconds, topk] = arguments.as_slice() else {
        return Err("usage: load ADDRESS QUERIES CONNECTIONS SECONDS TOPK".into());
    };
    let topk: usize = topk.parse()?;
    let requests: Arc<Vec<Vec<u8>>> = Arc::new(
        QueryRecord::read_all(queries.as_ref())?
            .iter()
            .map(|query| request(address, &query.text, topk))
            .collect(),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (connections, seconds): (usize, f64) = (connections.parse()?, seconds.parse()?);
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds);
    let times = runtime.block_on(async {
        let next = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..connections)
            .map(|_| {
                tokio::spawn(client(
                    address.clone(),
                    Arc::clone(&requests),
                    Arc::clone(&next),
                    end,
                ))
            })
            .collect();
        let mut all = Times::new();
        for finished in clients {
            for (status, mut found) in finished.await? {
                all.entry(status).or_default().append(&mut found);
            }
        }
        Ok::<_, tokio::task::JoinError>(all)
    })?;
    print(times, connections, begun.elapsed());
    Ok(())
}

fn request(address: &str, query: &str, topk: usize) -> Vec<u8> {
    let body = json!({"queries": [query], "topk": topk, "return_scores": true}).to_string();
    let length = body.len();
    let head =
        format!("POST /retrieve HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

async fn client(
    address: String,
    requests: Arc<Vec<Vec<u8>>>,
    next: Arc<AtomicUsize>,
    end: Instant,
) -> Times {
    let mut times = Times::new();
    let mut open = None;
    let mut buffer = Vec::new();
    while Instant::now() < end {
        let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len()];
        let begun = Instant::now();
        let status = exchange(&address, &mut open, request, &mut buffer)
            .await
            .unwrap_or(0);
        times.entry(status).or_default().push(begun.elapsed());
        if status == 0 {
            open = None;
        }
        if status == 0 || status == REFUSED {
            tokio::time::sleep(PAUSE).await;
        }
    }
    times
}

/// Sends one request and reads the answer to its end; gives the status.
async fn exchange(
    address: &str,
    open: &mut Option<TcpStream>,
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<u16, Box<dyn Error + Send + Sync>> {
    if open.is_none() {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        *open = Some(stream);
    }
    let stream = open.as_mut().ok_or("no connection")?;
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err("closed early".into());
        }
        let Some(body) = buffer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|at| at + 4)
        else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..body])?.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .ok_or("no length")?;
        let whole = body + length.trim().parse::<usize>()?;
        while buffer.len() < whole {
            if stream.read_buf(buffer).await? == 0 {
                return Err("closed early".into());
            }
        }
        if head.contains("connection: close") {
            *open = None;
        }
        return Ok(head.get(9..12).ok_or("no status")?.parse()?);
    }
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn print(mut times: Times, connections: usize, wall: Duration) {
    let statuses: BTreeMap<String, usize> = times
        .iter()
        .map(|(status, found)| (status.to_string(), found.len()))
        .collect();
    let answers = times.get(&200).map_or(0, Vec::len);
    let mut report = json!({
        "connections": connections,
        "per_second": answers as f64 / wall.as_secs_f64(),
        "statuses": statuses,
    });
    for (name, status) in [("answer", 200), ("refusal", REFUSED)] {
        if let Some(found) = times.get_mut(&status) {
            found.sort_unstable();
            let at =
                |share: f64| found[((found.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
            report[format!("{name}_ms")] = json!({"p50": at(0.5), "p99": at(0.99), "max": at(1.0)});
        }
    }
    println!("{report}");
}
