//! The page for people, as a browser shows it; skipped where there is no browser.

use std::path::Path;

use forage_retriever::server::{BaseConfig, ServerConfig, Services};

use super::support::{Running, config, corpus};

const BROWSERS: [&str; 3] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn skipped() {
    println!("skipped: no browser at any of {BROWSERS:?}");
}

/// The page's document after its scripts ran; `None` without a browser.
async fn shown(url: String) -> Option<String> {
    let Some(browser) = BROWSERS.iter().find(|path| Path::new(path).exists()) else {
        skipped();
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let run = move || {
        std::process::Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=10000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn pages_of_others_are_refused_without_a_token() {
    let server = Running::small().await;
    for path in ["/", "/info", "/doc/moon", "/metrics"] {
        let request = server.client.get(server.url(path));
        let answer = request.header("host", "evil.example").send().await;
        assert_eq!(answer.unwrap().status(), 403, "{path}");
    }
    let post = |name, value| {
        let request = server.client.post(server.url("/retrieve"));
        request
            .body(r#"{"queries":["moon"]}"#)
            .header(name, value)
            .send()
    };
    let foreign = post("origin", "https://evil.example").await.unwrap();
    assert_eq!(foreign.status(), 403);
    let text = post("content-type", "text/plain").await.unwrap();
    assert_eq!(text.status(), 415);
    let own = post("origin", server.base.as_str()).await.unwrap();
    assert_eq!(own.status(), 200);
}

#[tokio::test]
async fn passages_are_shown_highlighted_and_escaped() {
    let server = Running::small().await;
    let Some(page) =
        shown(server.url("/?q=tide+moon+%3Cimg+src%3Dx+onerror%3Dalert(2)%3E&k=3&mode=bm25")).await
    else {
        return;
    };
    for part in [
        "<mark>tides</mark>",
        "The <mark>moon</mark> raises",
        "1. Odd \"id\"",
        "<mark>Tides</mark> &lt;script&gt;<mark>alert</mark>(1)&lt;/script&gt;",
        "&lt;/script&gt; &amp; more",
        "<code>a/b c#1</code>",
        "ms in the server",
        "5 passages,",
        "3 passages ·",
        "<option value=\"bm25\">",
    ] {
        assert!(page.contains(part), "`{part}` is not in\n{page}");
    }
    assert!(
        !page.contains("<script>alert") && !page.contains("<img"),
        "markup of a passage or query got through"
    );
}

#[tokio::test]
async fn faults_are_shown_in_words() {
    let server = Running::small().await;
    let Some(page) = shown(server.url("/?q=moon&k=5000")).await else {
        return;
    };
    assert!(
        page.contains("topk: Input should be less than or equal to 1000"),
        "{page}"
    );
    let Some(page) = shown(server.url("/?q=zzz")).await else {
        return;
    };
    assert!(page.contains("No passage fits this query"), "{page}");
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let locked = ServerConfig {
        base: BaseConfig {
            token: Some("s3cret".to_owned()),
            ..BaseConfig::default()
        },
        ..config()
    };
    let server = Running::start(locked, Services::of_index(corpus())).await;
    let Some(page) = shown(server.url("/?q=moon")).await else {
        return;
    };
    assert!(
        page.contains("<form id=\"unlock\">") && !page.contains("<article>"),
        "{page}"
    );
}
