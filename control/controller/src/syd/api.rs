//! syd's HTTP API: JSON, real status codes, and a stream of events.

use std::time::Duration;

use eventsource_stream::Eventsource;
use futures_util::stream::{BoxStream, StreamExt};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::debug;

use super::Settings;
use super::flows::Flows;
use crate::http;
use crate::jalapeno::client::{Failure, innermost, read, transport};
use crate::snapshot::Cause;

/// State of a workload.
#[derive(Debug, Deserialize)]
pub struct Workload {
    /// `active`, `draining`, `complete`.
    pub state: String,
    /// Why it drains.
    #[serde(default)]
    pub drain_reason: Option<String>,
}

/// What a request for paths came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// Paths were allocated.
    Granted,
    /// There is a workload of that name.
    AlreadyThere,
}

/// What a heartbeat came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lease goes on, or there is none to keep.
    Heard,
    /// The workload is not known.
    Unknown,
}

/// Changes of a workload as they happen; without a stream the interval has to do.
#[derive(Default)]
pub struct Events(Option<BoxStream<'static, String>>);

impl Events {
    /// Nothing will come of it.
    pub const fn is_closed(&self) -> bool {
        self.0.is_none()
    }

    /// The next change, or never: the end of a stream is none.
    pub async fn change(&mut self) {
        if let Some(stream) = &mut self.0
            && let Some(data) = stream.next().await
        {
            debug!("syd: {data}");
            return;
        }
        self.0 = None;
        std::future::pending::<()>().await;
    }
}

/// The API, and the one workload it is asked about.
pub struct Api {
    http: reqwest::Client,
    base: Url,
    timeout: Duration,
    workload: String,
}

impl Api {
    /// # Errors
    /// The endpoint is not a URL, or `ca` holds no certificate.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Cause::Refused, format!("endpoint {}: {why}", settings.endpoint));
        let base = Url::parse(&settings.endpoint).map_err(|why| refused(why.to_string()))?;
        if base.cannot_be_a_base() {
            return Err(refused("not a URL such as http://syd:8080".to_owned()));
        }
        let http = http::client(&base, settings.ca.as_deref()).map_err(refused)?;
        let http = http.connect_timeout(settings.timeout).build().map_err(|why| refused(innermost(&why)))?;
        Ok(Self { http, base, timeout: settings.timeout, workload: settings.workload.clone() })
    }

    /// Ids are segments of the path, whatever they are made of.
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

    async fn ask(&self, method: Method, url: Url, body: Option<Value>) -> Result<Answer, Failure> {
        let shown = url.to_string();
        let mut request = self.http.request(method, url).timeout(self.timeout);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|why| transport(&shown, &why))?;
        let status = response.status();
        let body = read(&shown, response).await?;
        Ok(Answer { url: shown, status, body })
    }

    /// `None`: the controller does not know it.
    ///
    /// # Errors
    /// Everything that is neither an answer nor 404.
    pub async fn workload(&self) -> Result<Option<Workload>, Failure> {
        self.ask(Method::GET, self.of_workload(&[]), None).await?.found()
    }

    /// `None`: the controller does not know the workload.
    ///
    /// # Errors
    /// As [`Self::workload`].
    pub async fn flows(&self) -> Result<Option<Flows>, Failure> {
        self.ask(Method::GET, self.of_workload(&["flows"]), None).await?.found()
    }

    /// Asks for paths between all endpoints.
    ///
    /// # Errors
    /// Everything that is neither a success nor 409.
    pub async fn request(&self, settings: &Settings) -> Result<Requested, Failure> {
        let answer = self.ask(Method::POST, self.url(&["paths", "request"]), Some(request(settings))).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(Requested::AlreadyThere),
            _ => answer.success().map(|()| Requested::Granted),
        }
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// Everything that is neither a success nor 404 nor 409.
    pub async fn beat(&self) -> Result<Beat, Failure> {
        let answer = self.ask(Method::POST, self.of_workload(&["heartbeat"]), Some(json!({}))).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(Beat::Unknown),
            // It has no lease, or is active no more, which the next look shows.
            StatusCode::CONFLICT => Ok(Beat::Heard),
            _ => answer.success().map(|()| Beat::Heard),
        }
    }

    /// Gives everything back at once.
    ///
    /// # Errors
    /// No success.
    pub async fn complete(&self) -> Result<(), Failure> {
        let body = json!({ "immediate": true });
        self.ask(Method::POST, self.of_workload(&["complete"]), Some(body)).await?.success()
    }

    /// Listens for changes; closed, if the controller has no stream.
    pub async fn events(&self) -> Events {
        let sent = tokio::time::timeout(self.timeout, self.http.get(self.of_workload(&["events"])).send()).await;
        let Ok(Ok(response)) = sent else { return Events::default() };
        if !response.status().is_success() {
            return Events::default();
        }
        let events = response.bytes_stream().eventsource().take_while(|event| std::future::ready(event.is_ok()));
        // The first one only says what is known already.
        Events(Some(events.filter_map(|event| std::future::ready(event.ok().map(|event| event.data))).skip(1).boxed()))
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

/// A whole answer, whatever it says.
struct Answer {
    url: String,
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    /// The document, if there is one.
    fn found<T: DeserializeOwned>(&self) -> Result<Option<T>, Failure> {
        if self.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.success()?;
        let read = serde_json::from_slice(&self.body);
        read.map(Some).map_err(|why| Failure::new(Cause::Body, format!("{}: {why}", self.url)))
    }

    /// `{"error": "...", "detail": ["..."]}` in words.
    fn success(&self) -> Result<(), Failure> {
        let Self { url, status, body } = self;
        if status.is_success() {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
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
}
