//! The client against servers that are slow, verbose, busy or rude.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_net::{Again, Auth, Client, Fault, HttpOptions, KeyHeader, NetError, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// A server that answers the connections in turn with these bytes, the last of them again and again; `pause` comes after each
/// byte of an answer. Gives its address and the number of requests.
async fn server(answers: Vec<String>, pause: Option<Duration>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            tokio::spawn(answer(stream, answers[number].clone(), pause));
        }
    });
    (url, seen)
}

async fn answer(mut stream: TcpStream, answer: String, pause: Option<Duration>) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    let Some(pause) = pause else {
        let _ = stream.write_all(answer.as_bytes()).await;
        return;
    };
    for byte in answer.bytes() {
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

fn options() -> HttpOptions {
    HttpOptions {
        timeout_ms: 2000,
        deadline_ms: 10_000,
        attempts: 3,
        backoff_ms: 1,
        ..HttpOptions::default()
    }
}

async fn ask(url: &str, options: HttpOptions) -> Result<Value, NetError> {
    let client = Client::new(url, options, KeyHeader::Named("x-api-key")).unwrap();
    client
        .call(Request::json(client.url(&["ask"]), &json!({})), Ok)
        .await
}

#[tokio::test]
async fn the_server_says_when_to_come_back() {
    let busy =
        "HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, seen) = server(vec![busy.to_owned(), FINE.to_owned()], None).await;
    let begin = Instant::now();
    assert_eq!(ask(&url, options()).await.unwrap(), json!({}));
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_that_asks_for_no_wait_is_not_asked_again_at_once() {
    for asked in ["0", "-1", "0.5", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        let busy = format!(
            "HTTP/1.1 429 Busy\r\nretry-after: {asked}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let (url, _) = server(vec![busy, FINE.to_owned()], None).await;
        let begin = Instant::now();
        let patient = HttpOptions {
            backoff_ms: 300,
            ..options()
        };
        assert_eq!(ask(&url, patient).await.unwrap(), json!({}), "{asked}");
        assert!(begin.elapsed() >= Duration::from_millis(150), "{asked}");
    }
}

#[tokio::test]
async fn an_answer_that_trickles_is_a_timeout() {
    let (url, seen) = server(vec![FINE.repeat(100)], Some(Duration::from_millis(20))).await;
    let patient = HttpOptions {
        timeout_ms: 300,
        ..options()
    };
    let error = ask(&url, patient).await.unwrap_err();
    assert!(
        matches!(error.fault, Fault::Timeout { milliseconds: 300 }),
        "{error}"
    );
    assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (3, 3));
    assert_eq!(error.fault.again(), Again::Soon);
}

/// An address at which the system answers no first packet: its queue of connections is full, and nobody takes any. Beside it what must be
/// kept for that.
fn silent() -> (String, impl Sized) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let connect =
        || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let waiting: Vec<_> = std::iter::from_fn(connect).take(100).collect();
    assert!(waiting.len() < 100, "the queue is never full");
    (format!("http://{address}"), (listener, waiting))
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_connection_is_told_before_the_time_of_an_answer_is_over() {
    let (url, _kept) = silent();
    let client = Client::new(&url, options(), KeyHeader::Authorization).unwrap();
    let begin = tokio::time::Instant::now();
    let request = Request::get(client.url(&["ask"]));
    let fault = client.send(&request, Duration::from_mins(10)).await;
    let fault = fault.unwrap_err();
    assert!(matches!(fault, Fault::Connect(_)), "{fault}");
    assert_eq!(begin.elapsed().as_secs(), 10);
    assert_eq!(fault.again(), Again::Soon);
}

#[tokio::test]
async fn the_deadline_is_of_all_attempts_together() {
    let (url, _) = server(vec![FINE.repeat(100)], Some(Duration::from_millis(20))).await;
    let hasty = HttpOptions {
        timeout_ms: 300,
        deadline_ms: 500,
        attempts: 100,
        ..options()
    };
    let error = ask(&url, hasty).await.unwrap_err();
    let Fault::Timeout { milliseconds } = error.fault else {
        panic!("{error}");
    };
    assert!(error.attempts <= 3, "{error}");
    // A second attempt has what the first left of the deadline.
    assert!(error.attempts == 1 || milliseconds <= 200, "{error}");
}

/// The answers to calls that are made at once.
async fn at_once(count: usize, url: &str, options: HttpOptions) -> Vec<Result<Value, NetError>> {
    let client = Arc::new(Client::new(url, options, KeyHeader::Named("x-api-key")).unwrap());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..count {
        let client = Arc::clone(&client);
        calls.spawn(async move {
            let request = Request::json(client.url(&["ask"]), &json!({}));
            client.call(request, |answer: Value| Ok(answer)).await
        });
    }
    calls.join_all().await
}

#[tokio::test]
async fn a_queue_that_moves_fails_nobody() {
    // Each answer takes 0.4 s or more, and all of them together longer than a call may take.
    let (url, _) = server(vec![FINE.to_owned()], Some(Duration::from_millis(8))).await;
    let narrow = HttpOptions {
        timeout_ms: 2000,
        deadline_ms: 2000,
        concurrency: 1,
        ..options()
    };
    let begin = Instant::now();
    let answers = at_once(6, &url, narrow).await;
    assert!(begin.elapsed() > Duration::from_secs(2));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn a_queue_without_an_answer_ends() {
    let (url, _) = server(vec![FINE.repeat(100)], Some(Duration::from_millis(20))).await;
    let narrow = HttpOptions {
        timeout_ms: 400,
        deadline_ms: 600,
        concurrency: 1,
        ..options()
    };
    let answers = at_once(8, &url, narrow).await;
    // One call has its turn, and at most one more when that ends.
    let queued = answers.iter().filter(|answer| {
        let fault = answer
            .as_ref()
            .err()
            .map(|error| (&error.fault, error.attempts));
        matches!(fault, Some((Fault::Queued { concurrency: 1, .. }, 0)))
    });
    assert!(queued.count() >= 6, "{answers:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_json_or_of_another_shape_is_asked_for_again() {
    let with = |body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    };
    for page in ["<html>bad gateway</html>", "", "{\"a\": "] {
        let (url, _) = server(vec![with(page), FINE.to_owned()], None).await;
        assert_eq!(ask(&url, options()).await.unwrap(), json!({}), "{page}");
    }
    let (url, seen) = server(vec![with("<html>")], None).await;
    let error = ask(&url, options()).await.unwrap_err();
    assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (3, 3));
    let shaped = async |answers: Vec<String>| {
        let (url, _) = server(answers, None).await;
        let client = Client::new(&url, options(), KeyHeader::Named("x-api-key")).unwrap();
        let request = Request::json(client.url(&["ask"]), &json!({}));
        let take = |answer: std::collections::BTreeMap<String, u8>| Ok(answer);
        client.call(request, take).await
    };
    let found = shaped(vec![with("[]"), FINE.to_owned()]).await.unwrap();
    assert!(found.is_empty());
    let error = shaped(vec![with("[]")]).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Unusable(_)), "{error}");
    assert_eq!(error.attempts, 3);
}

#[tokio::test]
async fn an_answer_of_millions_of_values_is_refused_before_it_is_read() {
    let body = format!("[{}[]]", "[],".repeat(1_600_000));
    let length = body.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
    let (url, seen) = server(vec![answer], None).await;
    let error = ask(&url, options()).await.unwrap_err();
    assert!(error.to_string().contains("JSON values"), "{error}");
    assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (1, 1));
}

/// Serves answers without an announced length. The first has 32 MiB, says `taken` when the client has all but what sockets hold, and does
/// not end before it is told to; the second is short; the others have 300 KiB.
async fn verbose(listener: TcpListener, taken: oneshot::Sender<()>, end: oneshot::Receiver<()>) {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    let mut signals = Some((taken, end));
    for number in 0.. {
        let (mut stream, _) = listener.accept().await.unwrap();
        let signals = signals.take();
        tokio::spawn(async move {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let length = [32 << 20, 2].get(number).copied().unwrap_or(300 << 10);
            let answer = format!("{HEAD}{length:x}\r\n{}\r\n", " ".repeat(length));
            let _ = stream.write_all(answer.as_bytes()).await;
            if let Some((taken, end)) = signals {
                taken.send(()).unwrap();
                end.await.unwrap();
            }
            let _ = stream.write_all(b"0\r\n\r\n").await;
        });
    }
}

#[tokio::test]
async fn answers_wait_for_room_until_others_were_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (taken, is_taken) = oneshot::channel();
    let (end, is_over) = oneshot::channel();
    tokio::spawn(verbose(listener, taken, is_over));
    // An answer that does not say its length takes the room of the longest, here all.
    let wide = HttpOptions {
        max_answer_bytes: 256 << 20,
        ..options()
    };
    let client = Arc::new(Client::new(&url, wide, KeyHeader::Named("x-api-key")).unwrap());
    let request = Request::get(client.url(&["ask"]));
    let (patient, hasty) = (Duration::from_secs(20), Duration::from_millis(100));
    let long = tokio::spawn({
        let (client, request) = (Arc::clone(&client), request.clone());
        async move { client.send(&request, patient).await }
    });
    is_taken.await.unwrap();
    let short = client.send(&request, patient).await.unwrap();
    assert_eq!(short.len(), 2);
    let waiting = client.send(&request, hasty).await;
    assert!(matches!(waiting, Err(Fault::Timeout { .. })), "{waiting:?}");
    end.send(()).unwrap();
    let long = long.await.unwrap().unwrap();
    assert_eq!(long.len(), 32 << 20);
    let waiting = client.send(&request, hasty).await;
    assert!(matches!(waiting, Err(Fault::Timeout { .. })), "{waiting:?}");
    drop(long);
    let found = client.send(&request, patient).await.unwrap();
    assert_eq!(found.len(), 300 << 10);
}

#[tokio::test]
async fn an_oversized_answer_is_refused_announced_or_not() {
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n".to_owned();
    let chunk = format!("fa\r\n{}\r\n", " ".repeat(250));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}",
        chunk.repeat(40)
    );
    for answer in [announced, chunked] {
        let (url, seen) = server(vec![answer], None).await;
        let limited = HttpOptions {
            max_answer_bytes: 1000,
            ..options()
        };
        let error = ask(&url, limited).await.unwrap_err();
        assert!(
            error.to_string().contains("longer than 1000 bytes"),
            "{error}"
        );
        assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (1, 1));
    }
}

#[tokio::test]
async fn of_a_long_failure_the_beginning_and_the_end_are_shown() {
    let body = format!(
        "{{\"detail\": \"{}\", \"code\": \"GONE\"}}",
        "ä".repeat(1000)
    );
    let length = body.len();
    let answer = format!("HTTP/1.1 400 No\r\ncontent-length: {length}\r\n\r\n{body}");
    let (url, _) = server(vec![answer], None).await;
    let error = ask(&url, options()).await.unwrap_err().to_string();
    let (start, end) = ("status 400: {\"detail\": \"ä", "ä\", \"code\": \"GONE\"}");
    assert!(error.contains(start) && error.contains(end), "{error}");
    assert!(error.contains("ä ... ä") && error.len() < 1000, "{error}");
}

#[tokio::test]
async fn a_status_is_told_though_its_body_never_ends() {
    let body = "who are you? ".repeat(1000);
    let length = body.len();
    let answer = format!("HTTP/1.1 401 No\r\ncontent-length: {length}\r\n\r\n{body}");
    // Half a minute in all.
    let (url, seen) = server(vec![answer], Some(Duration::from_millis(2))).await;
    let patient = HttpOptions {
        timeout_ms: 5000,
        ..options()
    };
    let error = ask(&url, patient).await.unwrap_err();
    let Fault::Status {
        status: 401, body, ..
    } = &error.fault
    else {
        panic!("{error}")
    };
    assert!(body.starts_with("who are you? who"), "{body}");
    assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn of_an_answer_of_another_shape_no_more_is_shown() {
    let body = json!("a".repeat(1 << 20)).to_string();
    let length = body.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let (url, _) = server(vec![answer], None).await;
    let client = Client::new(&url, options(), KeyHeader::Named("x-api-key")).unwrap();
    let request = Request::get(client.url(&["ask"]));
    let taken = client.call(request, |answer: std::collections::BTreeMap<String, u8>| {
        Ok(answer)
    });
    let error = taken.await.unwrap_err().to_string();
    assert!(error.contains("aaa ... aaa"), "{error}");
    assert!(error.contains("expected a map"), "{error}");
    assert!(error.len() < 1000, "{} bytes", error.len());
}

#[tokio::test]
async fn errors_keep_their_source() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n{\"a".to_owned();
    let (url, _) = server(vec![cut], None).await;
    let error = ask(&url, options()).await.unwrap_err();
    assert!(
        matches!(error.fault, Fault::Broken { bytes: 3, .. }),
        "{error}"
    );
    assert!(std::error::Error::source(&error.fault).is_some());
    let error = ask("http://127.0.0.1:9", options()).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Connect(_)), "{error}");
    assert!(std::error::Error::source(&error.fault).is_some());
    assert_eq!(error.attempts, 3);
}

#[tokio::test]
async fn credentials_appear_in_no_error() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"love-lace\n").unwrap();
    for (status, part) in [
        ("403 No", "HTTP status 403"),
        ("200 OK", "does not fit the protocol"),
    ] {
        let echo = "\"love-lace\"";
        let length = echo.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{echo}"
        );
        let (url, _) = server(vec![answer], None).await;
        let http = HttpOptions {
            token_file: Some(file.path().to_owned()),
            auth: Auth::ApiKey,
            ..options()
        };
        let client = Client::new(&url, http, KeyHeader::Authorization).unwrap();
        let refused = |answer: String| Err(Fault::Protocol(format!("`{answer}` is not known")));
        let error = client
            .call::<_, ()>(Request::get(client.at("/a?b=c")), refused)
            .await;
        let error = error.unwrap_err();
        assert!(
            error.to_string().contains(part) && error.url.ends_with("/a"),
            "{error}"
        );
        let shown = format!("{error} {error:?} {client:?}");
        assert!(!shown.contains("love-lace"), "{shown}");
    }
}

#[tokio::test]
async fn credentials_are_found_in_every_form_that_a_server_gives_them() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"ada:lo\"ve\n").unwrap();
    let http = HttpOptions {
        token_file: Some(file.path().to_owned()),
        auth: Auth::Basic,
        ..options()
    };
    let echo = json!({"scheme": "basic", "given": "YWRhOmxvInZl", "password": "lo\"ve"});
    let body = format!("{echo} of lo\"ve");
    let length = body.len();
    let answer = format!("HTTP/1.1 403 No\r\ncontent-length: {length}\r\n\r\n{body}");
    let (url, _) = server(vec![answer], None).await;
    let Fault::Status { body, .. } = ask(&url, http).await.unwrap_err().fault else {
        panic!("it is refused")
    };
    let shown = "[credentials]";
    let echo = json!({"scheme": "basic", "given": shown, "password": shown});
    assert_eq!(body, format!("{echo} of {shown}"));
}

#[tokio::test]
async fn the_caller_may_forbid_further_attempts() {
    let (url, seen) = server(
        vec!["HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_owned()],
        None,
    )
    .await;
    let client = Client::new(&url, options(), KeyHeader::Authorization).unwrap();
    let admit = || match seen.load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err("the budget is spent".to_owned()),
    };
    let request = Request::get(client.url(&["a/b"]));
    let error = client
        .call_within(request, admit, Fault::again, Ok::<Value, _>)
        .await
        .unwrap_err();
    assert_eq!((error.attempts, seen.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(
        error.to_string(),
        format!("{url}/a%2Fb: not asked: the budget is spent, after 1 attempt")
    );
}

#[test]
fn settings_that_cannot_work_name_their_key() {
    for (url, http, key) in [
        ("ftp://host", options(), "url"),
        ("http://ada:love@host", options(), "url"),
        ("http://host?a=b", options(), "url"),
        (
            "http://host",
            HttpOptions {
                concurrency: 0,
                ..options()
            },
            "concurrency",
        ),
        (
            "http://host",
            HttpOptions {
                token_file: Some("/nowhere".into()),
                ..options()
            },
            "token_file",
        ),
        (
            "https://host",
            HttpOptions {
                ca_file: Some("/nowhere".into()),
                ..options()
            },
            "ca_file",
        ),
    ] {
        let error = Client::new(url, http, KeyHeader::Authorization).unwrap_err();
        assert_eq!(error.key, key, "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_takes_no_credentials_along() {
    let (elsewhere, asked) = server(vec![FINE.to_owned()], None).await;
    let moved = format!(
        "HTTP/1.1 307 Moved\r\nlocation: {elsewhere}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (url, _) = server(vec![moved], None).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"love-lace").unwrap();
    let http = HttpOptions {
        token_file: Some(file.path().to_owned()),
        ..options()
    };
    let error = ask(&url, http).await.unwrap_err().to_string();
    let told = format!("HTTP status 307: it sends on to {elsewhere}/, which is not followed");
    assert!(error.contains(&told), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn only_this_machine_is_spoken_to_in_the_open() {
    for private in [
        "https://huggingface.co",
        "http://127.0.0.1:8080",
        "http://localhost",
        "http://[::1]:80",
    ] {
        assert!(!Client::is_plain(private), "{private}");
    }
    for open in [
        "http://mirror",
        "http://127.0.0.1.example:80",
        "http://localhost.example",
        "http://localhost@example",
        "mirror",
        "",
    ] {
        assert!(Client::is_plain(open), "{open}");
    }
}
