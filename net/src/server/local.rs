//! The guard of servers that listen for this machine alone and ask for no token: a page in somebody's browser must not
//! reach them, neither by its own requests nor by a name of its own that leads here.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Request, Uri, header};

use super::refusal::Refusal;

/// The reason for which a request that a browser may have sent for a foreign page is refused.
///
/// Only browsers are meant, so what they send may be absent: a host, an origin, the type of a body, and whether a page of
/// another site asks. The last tells apart what has neither origin nor type: images, scripts, bodies of no type.
pub(super) fn foreign<B>(request: &Request<B>) -> Result<(), Refusal> {
    let headers = request.headers();
    let named = request.uri().host().or_else(|| header(headers, "host"));
    if named.is_some_and(|host| !is_loopback(host)) {
        return Err(Refusal::ForeignHost);
    }
    let origin = header(headers, "origin");
    if origin.is_some_and(|origin| !is_local_origin(origin)) {
        return Err(Refusal::ForeignOrigin);
    }
    // Frames and objects of a page navigate too, without anybody's click.
    let follows_a_link = request.method() == Method::GET
        && header(headers, "sec-fetch-mode") == Some("navigate")
        && header(headers, "sec-fetch-dest").is_none_or(|dest| dest == "document");
    if header(headers, "sec-fetch-site") == Some("cross-site") && !follows_a_link {
        return Err(Refusal::ForeignOrigin);
    }
    // Pages may send other types without asking first.
    let kind = headers.get(header::CONTENT_TYPE);
    let is_json = kind.is_none_or(|kind| {
        let kind = kind.to_str().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if request.method() == Method::POST && !is_json {
        return Err(Refusal::NotJson);
    }
    Ok(())
}

/// A header as text; one that is not text is neither a host nor an origin of this machine.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get(name)
        .map(|value| value.to_str().unwrap_or_default())
}

fn is_local_origin(origin: &str) -> bool {
    let uri: Option<Uri> = origin.parse().ok();
    uri.is_some_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(is_loopback))
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut request = Request::builder().method(method).uri("/reset");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        foreign(&request.body(()).expect("a request"))
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
        ] {
            assert_eq!(asked("GET", &[("host", host)]), Ok(()), "{host}");
            let origin = format!("http://{host}");
            assert_eq!(asked("GET", &[("origin", &origin)]), Ok(()), "{origin}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
        ] {
            let refused = asked("GET", &[("host", host)]);
            assert_eq!(refused, Err(Refusal::ForeignHost), "{host}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "",
            "file://",
            "http://localhost.evil.example",
        ] {
            let refused = asked("GET", &[("host", "localhost"), ("origin", origin)]);
            assert_eq!(refused, Err(Refusal::ForeignOrigin), "{origin}");
        }
    }

    #[test]
    fn what_another_site_asks_for_is_refused_but_its_links_are_followed() {
        let cross = ("sec-fetch-site", "cross-site");
        let navigate = ("sec-fetch-mode", "navigate");
        for (method, headers) in [
            ("GET", &[cross, ("sec-fetch-mode", "no-cors")][..]),
            ("POST", &[cross, ("sec-fetch-mode", "no-cors")]),
            ("POST", &[cross, navigate]),
            ("GET", &[cross]),
            ("GET", &[cross, navigate, ("sec-fetch-dest", "iframe")]),
            ("GET", &[cross, navigate, ("sec-fetch-dest", "object")]),
        ] {
            let refused = asked(method, headers);
            assert_eq!(refused, Err(Refusal::ForeignOrigin), "{method} {headers:?}");
        }
        assert_eq!(asked("GET", &[cross, navigate]), Ok(()));
        let document = ("sec-fetch-dest", "document");
        assert_eq!(asked("GET", &[cross, navigate, document]), Ok(()));
        for site in ["same-origin", "same-site", "none"] {
            assert_eq!(asked("POST", &[("sec-fetch-site", site)]), Ok(()), "{site}");
        }
    }

    #[test]
    fn what_is_posted_is_json() {
        for kind in ["application/json", "Application/JSON; charset=utf-8"] {
            assert_eq!(asked("POST", &[("content-type", kind)]), Ok(()), "{kind}");
        }
        // Programs may leave it out; a page that does is told by its site.
        assert_eq!(asked("POST", &[]), Ok(()));
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json-seq",
        ] {
            let refused = asked("POST", &[("content-type", kind)]);
            assert_eq!(refused, Err(Refusal::NotJson), "{kind}");
        }
    }
}
