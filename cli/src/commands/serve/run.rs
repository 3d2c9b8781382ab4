//! `forage serve run`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use forage_lab::page;
use forage_net::{Base, BaseConfig, Refusal, Refuse, Service, refused};

use super::Front;
use crate::commands::runs::newest_run;
use crate::pace::Pace;
use crate::terminal::note;

/// Serves the report on runs, live, to a browser.
///
/// The page is that of `forage runs report` with its trajectory viewer; it follows runs that go on. Beside it are /run.json, which is what
/// `forage runs report --json` prints, /openapi.json, /healthz, /readyz and /metrics. From another machine it is reached through
/// `ssh -L 8000:127.0.0.1:8000 HOST`, or with --token-file, for which it asks.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Run folders of `forage train`, `sft` or `quickstart`; files of episodes, from `forage eval --out`; the newest run in `runs` by
    /// default.
    runs: Vec<PathBuf>,
    /// Most trajectories on the page: evaluations first, then those of the newest steps.
    #[arg(long, default_value_t = 1000)]
    most: usize,
    #[command(flatten)]
    front: Front,
}

/// The frame around the report: it asks for the newest one, and for the token where there is one.
const FRAME: &str = include_str!("run.html");
/// The frame asks this server alone, and holds the report, which is given this policy too and has a stricter one of its own.
const FRAME_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
    frame-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Upper ends of the latencies that are counted, in seconds: the page is written anew when the run has gone on.
const LATENCIES: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];

impl Run {
    pub(super) fn run(self) -> Result<()> {
        let begin = Instant::now();
        let runs = if self.runs.is_empty() {
            vec![newest_run()?]
        } else {
            self.runs
        };
        let defaults = BaseConfig::default();
        let config = self.front.base(defaults.queue, &defaults)?;
        let (base, ()) = Base::new(config, "forage_run", &LATENCIES, |_| ());
        let app = App {
            base,
            runs,
            most: self.most,
            page: Mutex::default(),
        };
        // Whatever is wrong with a folder is said before anything listens.
        let described = app.newest()?.title;
        let app = Arc::new(app);
        let guarded = Router::new()
            .route("/page", get(report))
            .route("/run.json", get(results));
        let open = Router::new().route("/", get(frame));
        let router = forage_net::router(&app, guarded, open);
        let front = self.front.bind("read the runs")?;
        front.run(&described, begin, async |listener, stop| {
            Ok(forage_net::serve(listener, &app, router, stop).await?)
        })?;
        // Other servers count requests for work, which looks at a page are not.
        note("stopped");
        Ok(())
    }
}

struct App {
    base: Arc<Base>,
    runs: Vec<PathBuf>,
    most: usize,
    page: Mutex<Page>,
}

/// The newest report.
#[derive(Default)]
struct Page {
    pace: Pace,
    written: Option<Written>,
}

/// A report as it is sent.
#[derive(Clone)]
struct Written {
    title: String,
    page: Tagged,
    results: Tagged,
}

/// A form of the report.
#[derive(Clone)]
struct Tagged {
    body: Bytes,
    /// Names the content, in quotes as the header wants it.
    tag: String,
}

impl Tagged {
    fn new(text: String) -> Self {
        Self {
            tag: format!("\"{}\"", blake3::hash(text.as_bytes()).to_hex()),
            body: text.into(),
        }
    }
}

impl App {
    /// The report, written anew where the runs have gone on. One that cannot be read just now leaves the report of before.
    fn newest(&self) -> Result<Written> {
        let mut held = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let Page { pace, written } = &mut *held;
        let read = pace.read(&self.runs, || {
            let report = page(&self.runs, self.most)?;
            let names = self.runs.iter().map(|run| run.display().to_string());
            Ok(Written {
                title: names.collect::<Vec<_>>().join(", "),
                page: Tagged::new(report.render()),
                results: Tagged::new(report.to_json().to_string()),
            })
        });
        match read {
            Some(Ok(newer)) => *written = Some(newer),
            Some(Err(error)) if written.is_none() => return Err(error),
            _ => {}
        }
        written
            .clone()
            .context("the runs could not be read; try again")
    }
}

impl Service for App {
    type Fault = Fault;
    const OPENAPI: Option<&'static str> = Some(include_str!("openapi.json"));

    fn base(&self) -> &Arc<Base> {
        &self.base
    }
}

async fn frame() -> Response {
    ([policy(FRAME_POLICY), own_kind()], Html(FRAME)).into_response()
}

async fn report(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    newest(&app, "page", &headers, kind, |written| written.page).await
}

async fn results(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let kind = HeaderValue::from_static("application/json");
    newest(&app, "run_json", &headers, kind, |written| written.results).await
}

/// A form of the newest report; nothing of it where the client has it already.
async fn newest(
    app: &Arc<App>,
    route: &'static str,
    headers: &HeaderMap,
    kind: HeaderValue,
    form: fn(Written) -> Tagged,
) -> Response {
    let work = async {
        let ticket = app.base.admit()?;
        let reader = Arc::clone(app);
        let read = move || {
            let _held = ticket;
            reader.newest().map_err(|error| Fault::of(&error))
        };
        let Tagged { body, tag } = form(app.base.heavy(read).await?);
        let is_known = knows(headers, &tag);
        let named = [(header::ETAG, tag)];
        if is_known {
            return Ok((StatusCode::NOT_MODIFIED, named).into_response());
        }
        let kinds = [own_kind(), (header::CONTENT_TYPE, kind)];
        Ok((named, kinds, body).into_response())
    };
    app.observe(route, work).await
}

/// Tells whether a client has what a tag names. A proxy that compresses pages marks their tags as weak.
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter();
    let lists = lists.filter_map(|list| list.to_str().ok());
    let mut known = lists.flat_map(|list| list.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

fn policy(text: &'static str) -> (HeaderName, HeaderValue) {
    let name = header::CONTENT_SECURITY_POLICY;
    (name, HeaderValue::from_static(text))
}

fn own_kind() -> (HeaderName, HeaderValue) {
    let name = header::X_CONTENT_TYPE_OPTIONS;
    (name, HeaderValue::from_static("nosniff"))
}

/// A reason for which a request gets no report.
enum Fault {
    Any(Refusal),
    /// 500: the runs cannot be read.
    Unreadable(String),
}

impl Fault {
    fn of(error: &anyhow::Error) -> Self {
        Self::Unreadable(format!("{error:#}"))
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Any(refusal)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::Any(refusal) => (refusal.status(), refusal.to_string()),
            Self::Unreadable(error) => (StatusCode::INTERNAL_SERVER_ERROR, error),
        };
        refused(status, serde_json::json!({ "error": error }).to_string())
    }
}

impl Refuse for Fault {
    fn cause(&self) -> &'static str {
        match self {
            Self::Any(refusal) => refusal.cause(),
            Self::Unreadable(_) => "unreadable",
        }
    }
}
