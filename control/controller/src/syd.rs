//! syd, Jalapeno's successor: a workload is requested once, its flows are read, and changes arrive as events.
//!
//! ```text
//! POST /paths/request ─► GET /paths/{w}/flows ─► Snapshot
//!          ▲                     ▲
//!          │ draining, 404       │ event, interval          heartbeats keep the lease; POST complete at the end
//! ```

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use eventsource_stream::Eventsource;
use futures_util::stream::{BoxStream, StreamExt};
use ipnet::IpNet;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::compose::{Item, fill};
use crate::jalapeno::client::{Failure, read, transport};
use crate::rounds::pause;
use crate::sid::Block;
use crate::snapshot::{CarrierPath, Cause, Command, Peer, PeerState, PrefixPaths, Snapshot, fail};

/// Everything the task needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL.
    pub endpoint: String,
    /// Id of the topology.
    pub topology: String,
    /// Id of the workload.
    pub workload: String,
    /// Id of this node: whose flows are programmed.
    pub node: String,
    /// The other endpoints, and the prefixes behind each: flows carry none.
    pub peers: BTreeMap<String, Vec<IpNet>>,
    /// `none`, `link`, `node`, `srlg`.
    pub disjointness: String,
    /// `exclusive` or `shared`.
    pub sharing: String,
    /// Tenant.
    pub tenant: Option<String>,
    /// Policy of the topology.
    pub policy: Option<String>,
    /// Flexible algorithm.
    pub algo: Option<u8>,
    /// Lease of the allocation.
    pub lease: Duration,
    /// Time between two looks.
    pub interval: Duration,
    /// Time for one answer.
    pub timeout: Duration,
}

/// Heartbeats in the time of one lease.
const BEATS: u32 = 3;

/// Follows a syd API until it is told to stop, or nobody listens.
pub async fn run(settings: Settings, publish: watch::Sender<Arc<Snapshot>>, mut commands: mpsc::Receiver<Command>) {
    let snapshot = Snapshot::begin(&publish, settings.peers.keys().cloned());
    let mut task = match Api::new(&settings) {
        Ok(api) => Task { api, settings, publish, snapshot, failed: 0 },
        Err(why) => {
            let mut snapshot = snapshot;
            snapshot.health.last_error = Some(why.what);
            publish.send_replace(Arc::new(snapshot));
            return;
        }
    };
    let mut events = None;
    loop {
        let next = task.round(&mut events).await;
        tokio::select! {
            () = sleep_until(next) => {}
            () = next_event(&mut events) => {}
            command = commands.recv() => match command {
                Some(Command::Sync) => {}
                Some(Command::Stop { done }) => {
                    task.complete().await;
                    // Whoever asked may be gone.
                    let _ = done.send(());
                    return;
                }
                None => return,
            }
        }
    }
}

type Events = BoxStream<'static, String>;

/// One more event, or never: without a stream, the interval and the lease remain.
async fn next_event(events: &mut Option<Events>) {
    let Some(stream) = events else { return std::future::pending().await };
    match stream.next().await {
        Some(data) => debug!("syd: {data}"),
        None => *events = None,
    }
}

struct Task {
    settings: Settings,
    api: Api,
    publish: watch::Sender<Arc<Snapshot>>,
    snapshot: Snapshot,
    failed: u32,
}

#[derive(Debug, Deserialize)]
struct Workload {
    state: String,
    #[serde(default)]
    drain_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Flows {
    #[serde(default)]
    flows: Option<Vec<Flow>>,
    #[serde(default)]
    leaf_pair_flows: Option<Vec<Flow>>,
}

#[derive(Debug, Deserialize)]
struct Flow {
    src_node_id: String,
    dst_node_id: String,
    #[serde(default)]
    segment_list: Option<Vec<String>>,
}

impl Task {
    /// One look; returns when the next one is due.
    async fn round(&mut self, events: &mut Option<Events>) -> Instant {
        let begun = Instant::now();
        self.snapshot.health.attempts += 1;
        let result = self.look(events).await;
        let health = &mut self.snapshot.health;
        health.last_duration = begun.elapsed();
        match result {
            Ok(()) => {
                self.failed = 0;
                health.successes += 1;
                health.last_success = Some(SystemTime::now());
                health.last_error = None;
            }
            Err(why) => {
                if health.last_error.as_ref() != Some(&why.what) {
                    warn!("syd: {why}");
                }
                self.failed = self.failed.saturating_add(1);
                health.failed(why.cause);
                for peer in self.snapshot.peers.values_mut() {
                    fail(peer, &why.what);
                }
                health.last_error = Some(why.what);
            }
        }
        let pause = pause(self.settings.interval, self.failed, fastrand::f64()).min(self.settings.lease / BEATS);
        self.snapshot.health.next = Some(SystemTime::now() + pause);
        self.publish.send_replace(Arc::new(self.snapshot.clone()));
        Instant::now() + pause
    }

    async fn look(&mut self, events: &mut Option<Events>) -> Result<(), Failure> {
        let known = self.api.workload(&self.settings.workload).await?;
        match known {
            Some(Workload { state, .. }) if state == "active" => self.beat().await?,
            // Draining paths go on for half a minute: the next ones are asked for at once.
            Some(Workload { state, drain_reason }) => {
                info!("syd: workload is {state} ({})", drain_reason.unwrap_or_default());
                self.api.request(&self.settings).await?;
            }
            // Never requested, or the topology was composed anew with an empty allocation table.
            None => self.api.request(&self.settings).await?,
        }
        if events.is_none() {
            *events = self.api.events(&self.settings.workload).await;
        }
        let flows = self.api.flows(&self.settings.workload).await?;
        self.take(flows);
        self.whole()
    }

    /// 409: there is no lease to keep, or it has just run out, which the next look shows.
    async fn beat(&self) -> Result<(), Failure> {
        let path = format!("paths/{}/heartbeat", self.settings.workload);
        match self.api.ask(Method::POST, &path, Some(json!({}))).await {
            Ok((StatusCode::NOT_FOUND, _)) => self.api.request(&self.settings).await,
            Ok((StatusCode::CONFLICT, _)) => Ok(()),
            Ok((status, body)) => success(&path, status, body).map(drop),
            Err(why) => Err(why),
        }
    }

    /// Pairs that could not be placed are missing from the answer without a word.
    fn whole(&self) -> Result<(), Failure> {
        let without: Vec<&str> = self
            .snapshot
            .peers
            .iter()
            .filter(|(_, peer)| peer.state != PeerState::Fresh)
            .map(|(id, _)| id.as_str())
            .collect();
        if without.is_empty() {
            return Ok(());
        }
        let why = self.snapshot.peers.values().find_map(|peer| peer.last_error.clone()).unwrap_or_default();
        Err(Failure::new(Cause::NotFound, format!("no path to {}: {why}", without.join(", "))))
    }

    fn take(&mut self, flows: Flows) {
        let ours = |flow: &&Flow| flow.src_node_id == self.settings.node;
        let all: Vec<Flow> =
            flows.flows.into_iter().flatten().chain(flows.leaf_pair_flows.into_iter().flatten()).collect();
        let own: Vec<&Flow> = all.iter().filter(ours).collect();
        for (id, peer) in &mut self.snapshot.peers {
            let lists: Vec<&Flow> = own.iter().copied().filter(|flow| flow.dst_node_id == *id).collect();
            let prefixes = self.settings.peers.get(id).map(Vec::as_slice).unwrap_or_default();
            match program(id, prefixes, &lists) {
                Ok(prefixes) => {
                    *peer =
                        Peer { prefixes, state: PeerState::Fresh, synced: Some(SystemTime::now()), ..Peer::default() };
                }
                Err(why) => {
                    self.snapshot.health.failures.entry(why.cause).and_modify(|count| *count += 1).or_insert(1);
                    fail(peer, &why.what);
                }
            }
        }
    }

    async fn complete(&self) {
        let path = format!("paths/{}/complete", self.settings.workload);
        if let Err(why) = self.api.ask(Method::POST, &path, Some(json!({ "immediate": true }))).await {
            debug!("syd: {why}");
        }
    }
}

/// Every flow to a peer is one of its paths.
fn program(id: &str, prefixes: &[IpNet], flows: &[&Flow]) -> Result<Vec<PrefixPaths>, Failure> {
    if flows.is_empty() {
        return Err(Failure::new(Cause::NotFound, format!("the workload has no flow to {id}")));
    }
    let invalid = |why: String| Failure::new(Cause::InvalidCarrier, format!("flow to {id}: {why}"));
    let mut lists: Vec<(Vec<Ipv6Addr>, u16)> = Vec::new();
    for flow in flows {
        let segments = segments(flow.segment_list.as_deref().unwrap_or_default()).map_err(invalid)?;
        match lists.iter_mut().find(|(known, _)| *known == segments) {
            Some((_, weight)) => *weight = weight.saturating_add(1),
            None => lists.push((segments, 1)),
        }
    }
    let paths = |number: usize| {
        let path = |(index, (segments, weight)): (usize, &(Vec<Ipv6Addr>, u16))| {
            let more = if index == 0 { String::new() } else { format!("#{}", index + 1) };
            let prefix = if number == 0 { String::new() } else { format!("+{number}") };
            CarrierPath {
                name: format!("{id}{prefix}{more}"),
                segments: segments.clone(),
                weight: *weight,
                via: Vec::new(),
            }
        };
        lists.iter().enumerate().map(path).collect()
    };
    Ok(prefixes
        .iter()
        .enumerate()
        .map(|(number, prefix)| PrefixPaths { prefix: *prefix, paths: paths(number) })
        .collect())
}

/// Carriers are packed anew: a node that is padded with a zero uSID would end its carrier there. What is no carrier of
/// one block (SIDs that could not be packed) stays as it is.
fn segments(texts: &[String]) -> Result<Vec<Ipv6Addr>, String> {
    let parsed: Result<Vec<Ipv6Addr>, String> =
        texts.iter().map(|text| text.parse().map_err(|_| format!("{text:?} is not an address"))).collect();
    let parsed = parsed?;
    let first = parsed.first().ok_or("its path has no SIDs")?;
    let block_of = |address: &Ipv6Addr| match address.segments() {
        [high, low, ..] => Block([high, low]),
    };
    let block = block_of(first);
    if parsed.iter().any(|address| block_of(address) != block) {
        return Ok(parsed);
    }
    let items: Vec<Item> = parsed.iter().flat_map(items).collect();
    if items.is_empty() {
        return Err(format!("{first} has no uSID behind its block"));
    }
    Ok(fill(block, &items))
}

/// A container holds slots of 32 bits (a node and its function, the function zero for a plain uN) or of 16 bits. Only
/// the first kind has a zero before another uSID.
fn items(container: &Ipv6Addr) -> Vec<Item> {
    let [_, _, usids @ ..] = container.segments();
    let end = usids.iter().rposition(|usid| *usid != 0).map_or(0, |last| last + 1);
    let used = usids.get(..end).unwrap_or_default();
    if used.contains(&0) {
        let slots = used.chunks(2).filter_map(|slot| match slot {
            [0, _] | [] => None,
            [node, 0] | [node] => Some(Item::One(*node)),
            [node, function, ..] => Some(Item::Pair(*node, *function)),
        });
        return slots.collect();
    }
    used.iter().map(|usid| Item::One(*usid)).collect()
}

/// The HTTP API.
struct Api {
    http: reqwest::Client,
    base: Url,
    timeout: Duration,
}

impl Api {
    fn new(settings: &Settings) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Cause::Refused, format!("endpoint {}: {why}", settings.endpoint));
        let base = Url::parse(&format!("{}/", settings.endpoint.trim_end_matches('/')));
        let http = reqwest::Client::builder().connect_timeout(settings.timeout).no_proxy().build();
        Ok(Self {
            http: http.map_err(|why| refused(why.to_string()))?,
            base: base.map_err(|why| refused(why.to_string()))?,
            timeout: settings.timeout,
        })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<(StatusCode, Value), Failure> {
        let url = self.base.join(path).map_err(|why| Failure::new(Cause::Refused, format!("{path}: {why}")))?;
        let shown = url.to_string();
        let mut request = self.http.request(method, url).timeout(self.timeout);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|why| transport(&shown, &why))?;
        let status = response.status();
        let bytes = read(&shown, response).await?;
        if bytes.is_empty() {
            return Ok((status, Value::Null));
        }
        let body = serde_json::from_slice(&bytes)
            .map_err(|why| Failure::new(Cause::Body, format!("{shown}: not JSON: {why}")))?;
        Ok((status, body))
    }

    /// `None`: the controller does not know it.
    async fn workload(&self, workload: &str) -> Result<Option<Workload>, Failure> {
        let path = format!("paths/{workload}");
        let (status, body) = self.ask(Method::GET, &path, None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let body = success(&path, status, body)?;
        Workload::deserialize(body).map(Some).map_err(|why| Failure::new(Cause::Body, format!("{path}: {why}")))
    }

    async fn request(&self, settings: &Settings) -> Result<(), Failure> {
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
        let (status, body) = self.ask(Method::POST, "paths/request", Some(body)).await?;
        // Another host of the same workload was first.
        if status == StatusCode::CONFLICT {
            return Ok(());
        }
        success("paths/request", status, body).map(drop)
    }

    async fn flows(&self, workload: &str) -> Result<Flows, Failure> {
        let path = format!("paths/{workload}/flows");
        let (status, body) = self.ask(Method::GET, &path, None).await?;
        let body = success(&path, status, body)?;
        Flows::deserialize(body).map_err(|why| Failure::new(Cause::Body, format!("{path}: {why}")))
    }

    /// The data of each event; without a stream the interval has to do.
    async fn events(&self, workload: &str) -> Option<Events> {
        let url = self.base.join(&format!("paths/{workload}/events")).ok()?;
        let sent = tokio::time::timeout(self.timeout, self.http.get(url).send()).await.ok()?;
        let response = sent.ok().filter(|response| response.status().is_success())?;
        let events = response.bytes_stream().eventsource().take_while(|event| std::future::ready(event.is_ok()));
        // The first one only says what is known already.
        Some(events.filter_map(|event| std::future::ready(event.ok().map(|event| event.data))).skip(1).boxed())
    }
}

/// `{"error": "...", "detail": ["..."]}` in words.
fn success(path: &str, status: StatusCode, body: Value) -> Result<Value, Failure> {
    if status.is_success() {
        return Ok(body);
    }
    let error = body.get("error").and_then(Value::as_str).unwrap_or("no reason was given");
    let details = body.get("detail").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let details: Vec<&str> = details.collect();
    let colon = if details.is_empty() { "" } else { ": " };
    let cause = if status.is_client_error() { Cause::Refused } else { Cause::Status };
    Err(Failure::new(cause, format!("{path}: status {}: {error}{colon}{}", status.as_u16(), details.join("; "))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn repacked(texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        segments(&texts).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_padded_with_zero_does_not_end_the_carrier() {
        assert_eq!(repacked(&["fc00:0:32:0:16:e000:28:0"]), ["fc00:0:32:16:e000:28::"]);
        assert_eq!(repacked(&["fc00:0:1:e002:4:e004:16:0", "fc00:0:28::"]), ["fc00:0:1:e002:4:e004:16:28"]);
        assert_eq!(repacked(&["fc00:0:9:e001:a:e001:3:0"]), ["fc00:0:9:e001:a:e001:3:0"]);
    }

    #[test]
    fn what_cannot_be_packed_stays_and_what_is_nothing_is_refused() {
        assert_eq!(repacked(&["fc00:0:1::", "2001:db8::1"]), ["fc00:0:1::", "2001:db8::1"]);
        assert!(segments(&[]).is_err());
        assert!(segments(&["fc00::".to_owned()]).is_err());
        assert!(segments(&["fc00:0:1:::".to_owned()]).is_err());
    }
}
