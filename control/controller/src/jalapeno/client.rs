//! One request at a time, each with its limits.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::Settings;
use crate::http;
use crate::snapshot::Cause;

/// Largest answer: a topology of a hundred thousand links fits.
const MAX_BODY: usize = 256 * 1024 * 1024;

/// A request that brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// By which it is counted.
    pub cause: Cause,
    /// For people.
    pub what: String,
    /// The server asks to be left alone for so long.
    pub retry_after: Option<Duration>,
    /// HTTP status, where there was one and it was no success.
    pub status: Option<u16>,
}

impl Failure {
    /// Without a wish of the server.
    pub fn new(cause: Cause, what: impl Into<String>) -> Self {
        Self { cause, what: what.into(), retry_after: None, status: None }
    }

    /// The controller as a whole is in trouble, whatever it was asked for.
    pub const fn is_of_the_controller(&self) -> bool {
        matches!(self.cause, Cause::Connect | Cause::Timeout) || self.retry_after.is_some()
    }
}

/// The API of one graph.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    graph: String,
}

impl Client {
    /// # Errors
    /// The endpoint is not a URL, or `ca` holds no certificate.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Cause::Refused, format!("endpoint {}: {why}", settings.endpoint));
        let text = settings.endpoint.trim_end_matches('/').trim_end_matches("/api/v1");
        let base = Url::parse(&format!("{text}/api/v1/")).map_err(|why| refused(why.to_string()))?;
        let http = http::client(&base, settings.ca.as_deref()).map_err(refused)?;
        let http = http.timeout(settings.timeout).connect_timeout(settings.timeout);
        let http = http.build().map_err(|why| refused(innermost(&why)))?;
        Ok(Self { http, base, graph: settings.graph.clone() })
    }

    /// `GET /graphs/{g}/{route}`.
    ///
    /// # Errors
    /// Everything that is not JSON with a successful status.
    pub async fn graph(&self, route: &str, query: &BTreeMap<&'static str, String>) -> Result<Value, Failure> {
        self.ask(reqwest::Method::GET, &format!("graphs/{}/{route}", self.graph), query).await
    }

    /// `GET /collections/{c}/{route}`.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub async fn collection(&self, collection: &str, route: &str) -> Result<Value, Failure> {
        let path = format!("collections/{collection}/{route}");
        self.ask(reqwest::Method::GET, path.trim_end_matches('/'), &BTreeMap::new()).await
    }

    /// Gives an allocation back. Only `srv6d path-server` has this route; Jalapeno answers 404 or 405.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub async fn release(&self, query: &BTreeMap<&'static str, String>) -> Result<Value, Failure> {
        self.ask(reqwest::Method::DELETE, &format!("graphs/{}/shortest_path/load", self.graph), query).await
    }

    async fn ask(
        &self,
        method: reqwest::Method,
        path: &str,
        query: &BTreeMap<&'static str, String>,
    ) -> Result<Value, Failure> {
        let mut url = self.base.join(path).map_err(|why| Failure::new(Cause::Refused, format!("{path}: {why}")))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let shown = url.to_string();
        let sent = self.http.request(method, url).send().await;
        let response = sent.map_err(|why| transport(&shown, &why))?;
        if !response.status().is_success() {
            return Err(status(&shown, response).await);
        }
        let body = read(&shown, response).await?;
        serde_json::from_slice(&body).map_err(|why| Failure::new(Cause::Body, format!("{shown}: not JSON: {why}")))
    }
}

pub(crate) async fn read(url: &str, mut response: reqwest::Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|why| transport(url, &why))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return Err(Failure::new(Cause::Body, format!("{url}: more than {MAX_BODY} bytes")));
        }
    }
    Ok(body)
}

/// What there is to say about a status: `detail` is a text, a list, or empty.
async fn status(url: &str, response: reqwest::Response) -> Failure {
    let status = response.status();
    let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let detail = match read(url, response).await.map(|body| serde_json::from_slice::<Value>(&body)) {
        Ok(Ok(body)) => body.get("detail").map_or_else(String::new, words),
        _ => String::new(),
    };
    let hint = match (status, detail.is_empty()) {
        (StatusCode::INTERNAL_SERVER_ERROR, true) => ": is the name of the graph right?",
        _ => "",
    };
    let colon = if detail.is_empty() { "" } else { ": " };
    Failure {
        cause: Cause::Status,
        what: format!("{url}: status {}{colon}{detail}{hint}", status.as_u16()),
        retry_after: seconds.map(Duration::from_secs),
        status: Some(status.as_u16()),
    }
}

fn words(detail: &Value) -> String {
    match detail {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(crate) fn transport(url: &str, why: &reqwest::Error) -> Failure {
    let cause = if why.is_timeout() {
        Cause::Timeout
    } else if why.is_body() || why.is_decode() {
        Cause::Body
    } else {
        Cause::Connect
    };
    let mut what = format!("{url}: ");
    match cause {
        Cause::Timeout => what.push_str("no answer in time"),
        Cause::Body => what.push_str("the answer was cut off"),
        _ => what.push_str(&innermost(why)),
    }
    Failure::new(cause, what)
}

/// The system's own words: the outer ones only repeat the URL.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
