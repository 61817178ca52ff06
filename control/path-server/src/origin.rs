//! Web pages: any may read, as from Jalapeno; none of another origin may change anything.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{Any, CorsLayer};

use crate::parameters::Refusal;

/// What pages of other origins are told: they may read.
pub fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(Any).allow_methods([Method::GET]).allow_headers(Any)
}

/// Refuses what changes something and comes from a page of another origin. A form is sent without asking beforehand, so what
/// browsers are told is not enough. Programs send no origin.
pub async fn refuse_foreign_changes(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || is_own(request.headers()) {
        return next.run(request).await;
    }
    let why = "a web page of another origin may not change anything here; use a program, e.g. curl";
    Refusal::Status(StatusCode::FORBIDDEN, why.to_owned()).into_response()
}

/// No browser sent it, or the page is this server's own. A name other than localhost may lead here by somebody else's DNS,
/// and then its pages would be of the same origin.
fn is_own(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin" || site == "none");
    };
    let authority = |text: &str| text.strip_prefix("http://").map(str::to_owned);
    let origin = origin.to_str().ok().and_then(authority);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origin.is_some_and(|origin| host == Some(origin.as_str()) && is_address(&origin))
}

/// `address:port`, `[address]:port` or `localhost:port`, the port being optional.
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
    }
}
