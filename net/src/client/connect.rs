//! Connections: which certificates are trusted, and what is refused of an address.

use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, ClientBuilder, Url};

use super::error::{SettingError, innermost};
use super::options::HttpOptions;

/// Common servers close idle connections after 5 s; a request on a closed one would be lost.
const IDLE: Duration = Duration::from_secs(3);

/// Longest time until a connection is there, TLS included: its first packet may be lost three times. A machine that is off, or behind a
/// firewall that drops packets, would else take the whole time of an answer, which may be minutes.
const CONNECT: Duration = Duration::from_secs(10);

/// A client for the server at `base` that uses no proxy of the process' environment, follows no redirect and waits 10 s for a connection. A
/// plain `http` address works without any certificates on the machine.
pub fn connector(base: &Url) -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was first, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let builder = reqwest::Client::builder()
        .user_agent(concat!("forage/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .no_proxy();
    if base.scheme() == "http" {
        builder.tls_certs_only(Vec::new())
    } else {
        builder
    }
}

/// Certificates are read only where they are needed: a plain `http` address works without any on the machine.
pub(super) fn connected(
    base: &Url,
    options: &HttpOptions,
) -> Result<reqwest::Client, SettingError> {
    let mut builder = connector(base)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(options.concurrency);
    if let Some(path) = options
        .ca_file
        .as_ref()
        .filter(|_| base.scheme() == "https")
    {
        builder = builder.tls_certs_only(authorities(path)?);
    }
    builder.build().map_err(|cause| {
        let cause = innermost(&cause.without_url());
        SettingError::new(
            "url",
            format!("needs TLS, which cannot be set up ({cause})"),
        )
    })
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, SettingError> {
    let unusable = |cause: String| {
        let what = format!("names `{}`, which cannot be used ({cause})", path.display());
        SettingError::new("ca_file", what)
    };
    let pem = std::fs::read(path).map_err(|cause| unusable(cause.to_string()))?;
    let certificates =
        Certificate::from_pem_bundle(&pem).map_err(|cause| unusable(innermost(&cause)))?;
    if certificates.is_empty() {
        return Err(unusable("no certificate in it; give a PEM file".to_owned()));
    }
    Ok(certificates)
}

/// The address of a server, which must hold no credentials: errors show it.
pub(super) fn parse(base: &str) -> Result<Url, SettingError> {
    let wrong = |what: String| Err(SettingError::new("url", what));
    let url = match Url::parse(base) {
        Ok(url) => url,
        Err(cause) => {
            return wrong(format!(
                "is not an address ({cause}); write http://HOST:PORT"
            ));
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return wrong(format!(
            "has the scheme `{}`; use http or https",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong(
            "holds a user or a password; put them into a file and name it in `token_file`".into(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("has a query or a fragment; give the address only".into());
    }
    Ok(url)
}
