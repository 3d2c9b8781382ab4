//! What every HTTP client of the program shares: how it is set up, and how a failure is told.

use reqwest::{ClientBuilder, Response, Url};

/// Bytes of a failure's body that are read.
const FAILURE_BYTES: usize = 16 << 10;

/// A client for the server at `base` that uses no proxy of the process' environment and follows no redirect. A plain `http`
/// address works without any certificates on the machine.
pub fn client(base: &Url) -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was first, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let builder = reqwest::Client::builder()
        .user_agent(concat!("forage/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    if base.scheme() == "http" { builder.tls_certs_only(Vec::new()) } else { builder }
}

/// As much of a failure's body as can be had; it only explains a status that is known.
pub async fn beginning(mut response: Response) -> String {
    let mut body = Vec::new();
    while body.len() < FAILURE_BYTES {
        let Ok(Some(chunk)) = response.chunk().await else { break };
        body.extend_from_slice(&chunk);
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// The innermost cause; the outer ones repeat the address.
pub fn reason(cause: reqwest::Error) -> String {
    let cause = cause.without_url();
    let mut inner: &dyn std::error::Error = &cause;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
