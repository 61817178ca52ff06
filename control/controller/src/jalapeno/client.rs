//! The routes of the API. Each function sends one request with its limits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::Settings;
use super::answer::RawAnswer;
use super::pace::Patience;
use crate::bounded::Bounded;
use crate::document::Topology;
use crate::failure::Failure;
use crate::http::{self, Http, HttpAnswer, Repeat};
use crate::snapshot::Cause;

/// Maximum number of keys of a collection that are read.
const MAX_KEYS: usize = 1 << 17;

/// Client for the API of one graph.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    base: Url,
    graph: String,
    timeout: Duration,
    /// Address of the server that answered last.
    address: Arc<Mutex<Option<IpAddr>>>,
}

/// Answer of `/collections/{c}/keys`.
#[derive(Deserialize)]
struct Keys {
    keys: Bounded<String, MAX_KEYS>,
}

/// The topology, and the distance of each vertex.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// The topology that the controller answered.
    pub topology: Topology,
    /// Smallest number of links from the source to each vertex.
    pub hops: BTreeMap<String, usize>,
}

type Query = BTreeMap<&'static str, String>;

impl Client {
    /// Creates a client for the endpoint and graph of the settings.
    ///
    /// # Errors
    /// If the endpoint is not a URL, or `ca` does not contain a certificate.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Cause::Refused, format!("endpoint {}: {why}", settings.endpoint));
        let text = settings.endpoint.trim_end_matches('/').trim_end_matches("/api/v1");
        let base = Url::parse(&format!("{text}/api/v1/")).map_err(|why| refused(why.to_string()))?;
        let options = http::Options {
            ca: settings.ca.as_deref(),
            connect_timeout: settings.timeout,
            max_answer: settings.max_answer,
        };
        let http = Http::new(&base, options).map_err(refused)?;
        Ok(Self { http, base, graph: settings.graph.clone(), timeout: settings.timeout, address: Arc::default() })
    }

    /// Returns the address of the controller, once it has answered.
    pub fn address(&self) -> Option<IpAddr> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `GET /graphs/{g}/topology`, and computes the distances from `source`. Waits at most `patience` for the
    /// answer.
    ///
    /// # Errors
    /// If there is no answer, or one that is not a topology.
    pub async fn topology(
        &self,
        watched: &'static [&'static str],
        source: &str,
        patience: Duration,
    ) -> Result<Looked, Failure> {
        let deadline = Instant::now() + patience;
        let path = format!("graphs/{}/topology", self.graph);
        let answer = self.ask(Method::GET, &path, &Query::new(), Repeat::Safe, deadline).await?;
        let source = source.to_owned();
        let looked = answer.parse(deadline, move |bytes| {
            let topology = Topology::parse(bytes, watched)?;
            Ok(Looked { hops: topology.hops_from(&source), topology })
        });
        looked.await.map_err(|why| Failure { what: format!("topology: {}", why.what), ..why })
    }

    /// Sends `GET /graphs/{g}/topology`, and returns the answer as it is.
    ///
    /// # Errors
    /// If there is no answer within `patience`, or one that is not JSON.
    pub async fn document(&self, patience: Duration) -> Result<Value, Failure> {
        let deadline = Instant::now() + patience;
        let path = format!("graphs/{}/topology", self.graph);
        let answer = self.ask(Method::GET, &path, &Query::new(), Repeat::Safe, deadline).await?;
        answer.parse(deadline, |bytes| serde_json::from_slice(bytes)).await
    }

    /// Sends `GET /graphs/{g}/{route}` for a route that answers with paths. If the request must not be repeated, it has
    /// the time of a booking ([`Patience::booking`]).
    ///
    /// # Errors
    /// If there is no answer, or one of another shape.
    pub async fn paths(&self, route: &str, query: &Query, repeat: Repeat) -> Result<RawAnswer, Failure> {
        let patience = if repeat == Repeat::Never { Patience::booking(self.timeout) } else { self.timeout };
        let deadline = Instant::now() + patience;
        let path = format!("graphs/{}/{route}", self.graph);
        self.ask(Method::GET, &path, query, repeat, deadline).await?.parse(deadline, RawAnswer::parse).await
    }

    /// Sends `GET /collections/{c}/keys`.
    ///
    /// # Errors
    /// If there is no answer, or one of another shape.
    pub async fn keys(&self, collection: &str) -> Result<Vec<String>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let path = format!("collections/{collection}/keys");
        let answer = self.ask(Method::GET, &path, &Query::new(), Repeat::Safe, deadline).await?;
        let keys = answer.parse(deadline, |bytes| serde_json::from_slice::<Keys>(bytes));
        keys.await.map(|keys| keys.keys.0)
    }

    /// Releases an allocation. Only `srv6d path-server` has this route; Jalapeno answers 404 or 405.
    ///
    /// # Errors
    /// If there is no answer, or its status is not a success.
    pub async fn release(&self, query: &Query) -> Result<(), Failure> {
        let path = format!("graphs/{}/shortest_path/load", self.graph);
        let deadline = Instant::now() + self.timeout;
        self.ask(Method::DELETE, &path, query, Repeat::Safe, deadline).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &Query,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<HttpAnswer, Failure> {
        let mut url = self.base.join(path).map_err(|why| Failure::new(Cause::Refused, format!("{path}: {why}")))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let answer = self.http.ask((method, url), None, repeat, deadline).await?;
        if let Some(address) = answer.controller {
            *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        }
        if answer.status.is_success() { Ok(answer) } else { Err(status(&answer)) }
    }
}

/// Returns the failure for a status. The field `detail` of the body may be a text, a list, or empty.
fn status(answer: &HttpAnswer) -> Failure {
    let HttpAnswer { url, status, retry_after, .. } = answer;
    let body: Value = serde_json::from_slice(answer.bytes()).unwrap_or_default();
    let detail = body.get("detail").map_or_else(String::new, words);
    let hint = match (*status, detail.is_empty()) {
        (StatusCode::INTERNAL_SERVER_ERROR, true) => ": is the name of the graph right?",
        _ => "",
    };
    let colon = if detail.is_empty() { "" } else { ": " };
    Failure {
        retry_after: *retry_after,
        status: Some(status.as_u16()),
        ..Failure::new(Cause::Status, format!("{url}: status {}{colon}{detail}{hint}", status.as_u16()))
    }
}

fn words(detail: &Value) -> String {
    match detail {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
