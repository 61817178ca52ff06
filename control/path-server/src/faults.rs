//! Injected faults, for tests of clients and for training.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::answers::{NO_PATH, not_found};
use crate::server::Shared;

/// A kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The answer is delayed by a number of milliseconds.
    Delay(u64),
    /// The answer has this status and an empty body.
    Status(#[serde(deserialize_with = "final_status")] u16),
    /// The answer ends after a number of bytes, and the connection is closed.
    Cut(usize),
    /// The answer is complete but not JSON.
    Garble,
    /// The answer is `found: false`.
    NotFound,
    /// The answer is the first one that this URL had.
    Stale,
    /// The answer is about another destination.
    OtherDestination(String),
    /// There is no answer, and the connection stays open.
    Silence,
    /// This vertex (by id) or edge (by key) goes down before the answer and stays down, so that the topology differs
    /// from the one that the client has read.
    Down(String),
}

impl Fault {
    /// Returns the name of the fault, as a list of faults has it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Status(_) => "status",
            Self::Cut(_) => "cut",
            Self::Garble => "garble",
            Self::NotFound => "not_found",
            Self::Stale => "stale",
            Self::OtherDestination(_) => "other_destination",
            Self::Silence => "silence",
            Self::Down(_) => "down",
        }
    }
}

/// Reads a status. Statuses below 200 are not final answers.
fn final_status<'de, D: Deserializer<'de>>(written: D) -> Result<u16, D::Error> {
    let code = u16::deserialize(written)?;
    if (200..600).contains(&code) {
        Ok(code)
    } else {
        Err(serde::de::Error::custom(format_args!("status {code}: write one from 200 to 599")))
    }
}

/// A fault, and the requests that have it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Text that the path and query of a matching request contain. An empty text matches every request.
    #[serde(default)]
    pub route: String,
    /// Number of matching requests without the fault, before the first one with it.
    #[serde(default)]
    pub after: u64,
    /// Number of matching requests with the fault; `None` means all that follow.
    #[serde(default)]
    pub count: Option<u64>,
    /// The fault of these requests.
    pub fault: Fault,
}

/// List of rules, of which the first that matches a request applies.
#[derive(Debug, Default)]
pub struct FaultPlan {
    rules: Mutex<Vec<(Rule, u64)>>,
    first: Mutex<std::collections::HashMap<String, Bytes>>,
    requests: AtomicU64,
}

impl FaultPlan {
    /// Creates a plan with these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules: Mutex::new(rules.into_iter().map(|rule| (rule, 0)).collect()), ..Self::default() }
    }

    /// Reads a JSON list of rules.
    ///
    /// # Errors
    /// If it is not a list of rules.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::from_str(text)?))
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns whether some rule repeats first answers, so that they have to be kept.
    fn is_ever_stale(&self) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().any(|(rule, _)| rule.fault == Fault::Stale)
    }

    /// Counts a request, and returns its fault.
    fn next(&self, target: &str) -> Option<Fault> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, seen) in rules.iter_mut().filter(|(rule, _)| target.contains(&rule.route)) {
            *seen += 1;
            let over = rule.count.is_some_and(|count| *seen > rule.after + count);
            if *seen > rule.after && !over {
                return Some(rule.fault.clone());
            }
        }
        None
    }

    /// Returns the body of the first answer for this target.
    fn first(&self, target: &str, body: &Bytes) -> Bytes {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.entry(target.to_owned()).or_insert_with(|| body.clone()).clone()
    }
}

/// Applies the faults between the routes and the network.
pub(crate) async fn apply(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let target = request.uri().to_string();
    let fault = shared.faults.next(&target);
    if let Some(fault) = &fault {
        shared.metrics.fault(fault.name());
    }
    match fault {
        Some(Fault::Silence) => return std::future::pending().await,
        Some(Fault::Status(code)) => {
            return StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR).into_response();
        }
        Some(Fault::NotFound) => return axum::Json(not_found(NO_PATH)).into_response(),
        Some(Fault::Delay(milliseconds)) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
        Some(Fault::Down(ref name)) => _ = shared.set_up(name, false),
        _ => {}
    }
    let response = next.run(request).await;
    // A stream of events has no end to wait for.
    if target.contains("/events") { response } else { spoil(&shared.faults, &target, response, fault).await }
}

async fn spoil(plan: &FaultPlan, target: &str, response: Response, fault: Option<Fault>) -> Response {
    if fault.is_none() && !plan.is_ever_stale() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let first = plan.first(target, &body);
    let body = match fault {
        Some(Fault::Cut(length)) => return cut(parts, &body, length),
        Some(Fault::Garble) => body.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<_>>().into(),
        Some(Fault::Stale) => first,
        Some(Fault::OtherDestination(id)) => other_destination(&body, &id),
        _ => body,
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// Sends a part of the body although the full length was announced, and then closes the connection.
fn cut(parts: axum::http::response::Parts, body: &Bytes, length: usize) -> Response {
    let begun = body.slice(..length.min(body.len()));
    let end = async {
        // The pause lets that part be sent before the connection breaks.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::other("cut"))
    };
    let broken = stream::once(std::future::ready(Ok(begun))).chain(stream::once(end));
    Response::from_parts(parts, Body::from_stream(broken))
}

fn other_destination(body: &Bytes, id: &str) -> Bytes {
    let Ok(mut answer) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    if let Some(info) = answer.get_mut("destination_info").and_then(|info| info.get_mut("_id")) {
        *info = Value::from(id);
    }
    Bytes::from(answer.to_string())
}
