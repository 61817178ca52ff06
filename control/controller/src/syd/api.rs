//! Client of syd's HTTP API, which has JSON documents, meaningful status codes, and a stream of events.

use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Settings;
use super::events::EventReader;
use super::flows::Flows;
use crate::failure::Failure;
use crate::http::{self, Http, HttpAnswer, Repeat};
use crate::snapshot::Cause;

/// State of a workload.
#[derive(Debug, Deserialize)]
pub struct Workload {
    /// State such as `active`, `draining` or `complete`.
    pub state: String,
    /// Reason why the workload drains.
    #[serde(default)]
    pub drain_reason: Option<String>,
}

/// Result of a request for paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// Paths were allocated.
    Granted,
    /// There is already a workload of that name.
    AlreadyThere,
}

/// Result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lease was renewed, or there is none to renew.
    Heard,
    /// The controller does not know the workload.
    Unknown,
}

/// Pause after an event. Events within it count as one change, so that a flood of events costs one round per pause.
const EVENT_PAUSE: Duration = Duration::from_millis(250);

/// Changes of a workload as they happen. Without a stream, changes are found once per interval.
#[derive(Default)]
pub struct Events {
    /// Pieces of the stream, as the number of events that end in each.
    pieces: Option<BoxStream<'static, usize>>,
    /// Whether the first event was read, which only repeats the known state.
    has_begun: bool,
}

impl Events {
    /// Returns whether there is no stream, so that no event will arrive.
    pub const fn is_closed(&self) -> bool {
        self.pieces.is_none()
    }

    /// Waits for the next change. The end of the stream is not a change: then it waits forever.
    pub async fn change(&mut self) {
        while let Some(pieces) = &mut self.pieces {
            let Some(ended) = pieces.next().await else {
                self.pieces = None;
                break;
            };
            let is_change = ended > usize::from(!self.has_begun);
            self.has_begun |= ended > 0;
            if is_change {
                sleep(EVENT_PAUSE).await;
                self.skip_ready();
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Skips the events that have arrived meanwhile, because the next round sees the changes they report.
    fn skip_ready(&mut self) {
        const AT_MOST: usize = 1024;
        let Some(pieces) = &mut self.pieces else { return };
        let skipped = (0..AT_MOST).take_while(|_| pieces.next().now_or_never().flatten().is_some());
        let _ = skipped.count();
    }
}

/// Client for one workload.
pub struct Api {
    http: Http,
    base: Url,
    timeout: Duration,
    workload: String,
}

impl Api {
    /// Creates a client for the endpoint and workload of the settings.
    ///
    /// # Errors
    /// If the endpoint is not a URL, or `ca` does not contain a certificate.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Cause::Refused, format!("endpoint {}: {why}", settings.endpoint));
        let base = Url::parse(&settings.endpoint).map_err(|why| refused(why.to_string()))?;
        if base.cannot_be_a_base() {
            return Err(refused("not a URL such as http://syd:8080".to_owned()));
        }
        let options = http::Options {
            ca: settings.ca.as_deref(),
            connect_timeout: settings.timeout,
            max_answer: settings.max_answer,
        };
        let http = Http::new(&base, options).map_err(refused)?;
        Ok(Self { http, base, timeout: settings.timeout, workload: settings.workload.clone() })
    }

    /// Returns a URL below the endpoint. Each id becomes one segment of the path, whatever characters it contains.
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn of_workload(&self, rest: &[&str]) -> Url {
        self.url(&[&["paths", self.workload.as_str()], rest].concat())
    }

    async fn ask(&self, method: Method, url: Url, body: Option<Value>) -> Result<HttpAnswer, Failure> {
        let repeat = if method == Method::GET { Repeat::Safe } else { Repeat::Never };
        self.http.ask((method, url), body.as_ref(), repeat, Instant::now() + self.timeout).await
    }

    /// Reads a document. Returns `None` if the controller does not know it.
    async fn find<T: Send + 'static>(
        &self,
        url: Url,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<T> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let answer = self.http.ask((Method::GET, url), None, Repeat::Safe, deadline).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        success(&answer)?;
        answer.parse(deadline, parse).await.map(Some)
    }

    /// Reads the state of the workload. Returns `None` if the controller does not know it.
    ///
    /// # Errors
    /// If the status is neither a success nor 404, or if the answer cannot be read.
    pub async fn workload(&self) -> Result<Option<Workload>, Failure> {
        self.find(self.of_workload(&[]), |bytes| serde_json::from_slice(bytes)).await
    }

    /// Reads the flows from `node`. Returns `None` if the controller does not know the workload.
    ///
    /// # Errors
    /// Like [`Self::workload`].
    pub async fn flows(&self, node: &str) -> Result<Option<Flows>, Failure> {
        let node = node.to_owned();
        self.find(self.of_workload(&["flows"]), move |bytes| Flows::parse(bytes, &node)).await
    }

    /// Requests paths between all endpoints.
    ///
    /// # Errors
    /// If the status is neither a success nor 409.
    pub async fn request(&self, settings: &Settings) -> Result<Requested, Failure> {
        let answer = self.ask(Method::POST, self.url(&["paths", "request"]), Some(request(settings))).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(Requested::AlreadyThere),
            _ => success(&answer).map(|()| Requested::Granted),
        }
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// If the status is neither a success nor 404 nor 409.
    pub async fn beat(&self) -> Result<Beat, Failure> {
        let answer = self.ask(Method::POST, self.of_workload(&["heartbeat"]), Some(json!({}))).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(Beat::Unknown),
            // The workload has no lease, or is no longer active, which the next round finds out.
            StatusCode::CONFLICT => Ok(Beat::Heard),
            _ => success(&answer).map(|()| Beat::Heard),
        }
    }

    /// Releases the workload and all its paths at once.
    ///
    /// # Errors
    /// If the status is not a success.
    pub async fn complete(&self) -> Result<(), Failure> {
        let body = json!({ "immediate": true });
        self.ask(Method::POST, self.of_workload(&["complete"]), Some(body)).await.and_then(|answer| success(&answer))
    }

    /// Opens the stream of changes. The result is closed if the controller has no stream.
    pub async fn events(&self) -> Events {
        let deadline = Instant::now() + self.timeout;
        let Some(response) = self.http.stream(self.of_workload(&["events"]), deadline).await else {
            return Events::default();
        };
        let mut reader = EventReader::default();
        let pieces = response.bytes_stream().take_while(|bytes| std::future::ready(bytes.is_ok()));
        let ended = pieces.map(move |bytes| bytes.map_or(0, |bytes| reader.take(&bytes)));
        Events { pieces: Some(ended.boxed()), has_begun: false }
    }
}

fn request(settings: &Settings) -> Value {
    let endpoints: Vec<Value> =
        [&settings.node].into_iter().chain(settings.peers.keys()).map(|id| json!({ "id": id })).collect();
    let mut body = json!({
        "topology_id": settings.topology,
        "workload_id": settings.workload,
        "endpoints": endpoints,
        "pairing_mode": "all_directed",
        "disjointness": settings.disjointness,
        "sharing": settings.sharing,
        "lease_duration_seconds": settings.lease.as_secs().max(1),
    });
    if let Some(body) = body.as_object_mut() {
        let optional = [("tenant_id", &settings.tenant), ("policy", &settings.policy)];
        body.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?)))));
        body.extend(settings.algo.map(|algo| ("constraints".to_owned(), json!({ "algo_id": algo.to_string() }))));
    }
    body
}

/// Returns a failure with the text of `{"error": "...", "detail": ["..."]}`, unless the status is a success.
fn success(answer: &HttpAnswer) -> Result<(), Failure> {
    let HttpAnswer { url, status, .. } = answer;
    if status.is_success() {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(answer.bytes()).unwrap_or_default();
    let error = body.get("error").and_then(Value::as_str).unwrap_or("no reason was given");
    let details = body.get("detail").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let details: Vec<&str> = details.collect();
    let colon = if details.is_empty() { "" } else { ": " };
    let cause = match *status {
        StatusCode::NOT_FOUND => Cause::UnknownId,
        status if status.is_client_error() => Cause::Refused,
        _ => Cause::Status,
    };
    let what = format!("{url}: status {}: {error}{colon}{}", status.as_u16(), details.join("; "));
    Err(Failure { status: Some(status.as_u16()), ..Failure::new(cause, what) })
}
