//! Protection from web pages of other origins. They may read, as with Jalapeno, but may not change anything, not even
//! by a GET.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{Any, CorsLayer};

use crate::parameters::Refusal;

/// Returns the layer that answers CORS requests: pages of other origins may read.
pub fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(Any).allow_methods([Method::GET]).allow_headers(Any)
}

/// Refuses a request that changes something if it comes from a page of another origin. CORS is not enough, because a
/// browser sends a form without asking first. Programs that are not browsers send no origin and are not refused.
pub async fn refuse_foreign_changes(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads {
        return next.run(request).await;
    }
    refuse_foreign(request, next).await
}

/// Refuses any request from a page of another origin, for routes whose GET changes something.
pub async fn refuse_foreign(request: Request, next: Next) -> Response {
    if is_own(request.headers()) {
        return next.run(request).await;
    }
    let why = "a web page of another origin may not change anything here; use a program, e.g. curl";
    Refusal::Status(StatusCode::FORBIDDEN, why.to_owned()).into_response()
}

/// Returns true if no browser sent the request, or a page of this server caused it. A host name other than localhost is
/// not accepted as this server's: somebody else's DNS may point it here, and then pages of that name would have the
/// same origin.
fn is_own(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).filter(|host| is_address(host));
    let is_here = |page: &HeaderValue| {
        let behind = page.to_str().ok().and_then(|page| page.strip_prefix("http://"));
        behind.is_some_and(|page| page.split('/').next() == host)
    };
    if let Some(origin) = headers.get(header::ORIGIN) {
        return is_here(origin);
    }
    // A browser sends no `Origin` with a request for an image, nor with requests of a page to its own server.
    // `Sec-Fetch-Site` tells the two apart, but browsers send it to localhost and over TLS only. Without it, `Referer`
    // may name the page.
    let site = headers.get("sec-fetch-site");
    let is_told = site.is_none_or(|site| site == "none" || site == "same-origin" && host.is_some());
    is_told && headers.get(header::REFERER).is_none_or(is_here)
}

/// Returns true for `address:port`, `[address]:port` and `localhost:port`, with or without the port.
fn is_address(authority: &str) -> bool {
    let bare = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    bare == "localhost" || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn only_pages_of_this_very_address_are_own() {
        let own = |host: &str, more: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().unwrap());
            for (name, value) in more {
                headers.insert(*name, value.parse().unwrap());
            }
            is_own(&headers)
        };
        assert!(own("[::1]:30800", &[]));
        assert!(own("[::1]:30800", &[("origin", "http://[::1]:30800")]));
        assert!(own("localhost:30800", &[("origin", "http://localhost:30800")]));
        for origin in
            ["http://evil.example", "http://[::1]:8080", "https://[::1]:30800", "null", "http://127.0.0.1:30800"]
        {
            assert!(!own("[::1]:30800", &[("origin", origin)]), "{origin}");
        }
        assert!(!own("evil.example:30800", &[("origin", "http://evil.example:30800")]), "a name that leads here");
        assert!(!own("[::1]:30800", &[("sec-fetch-site", "cross-site")]));
        assert!(own("[::1]:30800", &[("sec-fetch-site", "same-origin")]));
        assert!(own("lab.example:30800", &[("sec-fetch-site", "none")]), "typed by a user");
        assert!(!own("evil.example:30800", &[("sec-fetch-site", "same-origin")]), "a name that leads here");
        assert!(own("[::1]:30800", &[("referer", "http://[::1]:30800/docs")]));
        for referer in ["http://evil.example/", "http://[::1]:30800.evil.example/", "http://[::1]:8080/", "x"] {
            assert!(!own("[::1]:30800", &[("referer", referer)]), "{referer}");
        }
        assert!(!own("evil.example:30800", &[("referer", "http://evil.example:30800/")]), "a name that leads here");
    }
}
