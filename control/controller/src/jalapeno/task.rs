//! The task: looks at the topology, asks for paths when it has changed, keeps what was good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::allocations::Allocations;
use super::answer::{self, Walk};
use super::client::{Client, Failure};
use super::peer::{Programmed, program};
use super::{PathKind, Settings};
use crate::document::{Topology, Vertex};
use crate::snapshot::{Cause, Command, Peer, PeerState, Snapshot, fail};

/// A failing controller is asked at least this often.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The longest a server may ask to be left alone.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);
/// Peers that are published together while a long round goes on.
const PUBLISH_EVERY: usize = 128;
/// An allocation may have been made although its answer was lost: the next attempt waits.
const LOAD_RETRY: Duration = Duration::from_secs(30);

/// Follows a Jalapeno API until it is told to stop, or nobody listens.
pub async fn run(settings: Settings, publish: watch::Sender<Arc<Snapshot>>, mut commands: mpsc::Receiver<Command>) {
    let mut task = match Task::new(settings, publish) {
        Ok(task) => task,
        Err((why, publish)) => {
            let mut snapshot = Snapshot::default();
            snapshot.health.last_error = Some(why.to_string());
            publish.send_replace(Arc::new(snapshot));
            return;
        }
    };
    loop {
        let next = task.round().await;
        tokio::select! {
            () = sleep_until(next) => {}
            command = commands.recv() => match command {
                Some(Command::Sync) => task.digest = None,
                Some(Command::Stop { done }) => {
                    task.release_all().await;
                    // Whoever asked may be gone.
                    let _ = done.send(());
                    return;
                }
                None => return,
            }
        }
    }
}

struct Task {
    settings: Settings,
    client: Client,
    publish: watch::Sender<Arc<Snapshot>>,
    snapshot: Snapshot,
    allocations: Allocations,
    /// Of the topology that all fresh peers were asked under.
    digest: Option<u64>,
    /// Rounds that failed one after the other.
    failed: u32,
    /// Pairs whose allocation went unanswered.
    unanswered: BTreeMap<String, Instant>,
}

impl Task {
    fn new(
        settings: Settings,
        publish: watch::Sender<Arc<Snapshot>>,
    ) -> Result<Self, (Failure, watch::Sender<Arc<Snapshot>>)> {
        let client = match Client::new(&settings) {
            Ok(client) => client,
            Err(why) => return Err((why, publish)),
        };
        let peers = settings.peers.iter().filter(|peer| **peer != settings.source);
        let snapshot =
            Snapshot { peers: peers.map(|peer| (peer.clone(), Peer::default())).collect(), ..Snapshot::default() };
        let allocations = Allocations::load(settings.state.clone(), &settings.graph, &settings.source);
        Ok(Self {
            settings,
            client,
            publish,
            snapshot,
            allocations,
            digest: None,
            failed: 0,
            unanswered: BTreeMap::new(),
        })
    }

    /// One look; returns when the next one is due.
    async fn round(&mut self) -> Instant {
        let begun = Instant::now();
        self.snapshot.health.attempts += 1;
        let result = self.look().await;
        let health = &mut self.snapshot.health;
        health.last_duration = begun.elapsed();
        let mut retry_after = None;
        match result {
            Ok(()) => {
                self.failed = 0;
                health.successes += 1;
                health.last_success = Some(SystemTime::now());
                health.last_error = None;
            }
            Err(why) => {
                if health.last_error.as_ref() != Some(&why.what) {
                    warn!("jalapeno: {why}");
                }
                self.failed = self.failed.saturating_add(1);
                health.last_error = Some(why.what);
                retry_after = why.retry_after;
            }
        }
        let pause = pause(self.settings.interval, self.failed, fastrand::f64()).max(retry_after.unwrap_or_default());
        let pause = pause.min(MAX_RETRY_AFTER.max(self.settings.interval * 2));
        health.next = Some(SystemTime::now() + pause);
        self.publish();
        Instant::now() + pause
    }

    fn publish(&self) {
        self.publish.send_replace(Arc::new(self.snapshot.clone()));
    }

    /// The topology, and then only what has changed.
    async fn look(&mut self) -> Result<(), Failure> {
        let topology = match self.topology().await {
            Ok(topology) => topology,
            Err(why) => {
                self.snapshot.health.failed(why.cause);
                self.all_failed(&why);
                return Err(why);
            }
        };
        let changed = self.digest != Some(topology.digest);
        let due: Vec<String> = self
            .snapshot
            .peers
            .iter()
            .filter(|(_, peer)| changed || peer.state != PeerState::Fresh)
            .map(|(id, _)| id.clone())
            .collect();
        self.digest = Some(topology.digest);
        let now = SystemTime::now();
        for peer in self.snapshot.peers.values_mut().filter(|peer| !changed && peer.state == PeerState::Fresh) {
            peer.synced = Some(now);
        }
        self.ask_for(due, &topology).await
    }

    async fn topology(&self) -> Result<Topology, Failure> {
        let value = self.client.graph("topology", &BTreeMap::new()).await?;
        let topology = Topology::read(value).map_err(|why| Failure::new(Cause::Body, format!("topology: {why}")))?;
        let Settings { source, graph, kind, .. } = &self.settings;
        if !topology.vertices.contains_key(source) {
            let what = format!("{source} is not in graph {graph}: is `source` the id of this host?");
            return Err(Failure::new(Cause::UnknownId, what));
        }
        match kind.weight().filter(|weight| !topology.has_weight(weight)) {
            Some(weight) => {
                let what = format!("no edge of {graph} has `{weight}`: paths would be chosen by hop count");
                Err(Failure::new(Cause::NoMetric, what))
            }
            None => Ok(topology),
        }
    }

    /// Asks for the paths of these peers, several at a time.
    async fn ask_for(&mut self, peers: Vec<String>, topology: &Topology) -> Result<(), Failure> {
        let mut first = None;
        let now = Instant::now();
        let asker = Asker { settings: &self.settings, client: &self.client, topology };
        let allocations = self.allocations.clone();
        let unanswered = self.unanswered.clone();
        let answers = peers.into_iter().map(|peer| {
            let allocated = allocations.of(&peer).cloned();
            let wait = unanswered.get(&peer).is_some_and(|until| *until > now);
            let asker = &asker;
            async move {
                let answer = asker.paths(&peer, allocated, wait).await;
                (peer, answer)
            }
        });
        let mut answers = std::pin::pin!(stream::iter(answers).buffer_unordered(asker.settings.concurrency.max(1)));
        let mut taken = Vec::new();
        while let Some(answer) = answers.next().await {
            taken.push(answer);
            if taken.len() >= PUBLISH_EVERY {
                let batch = std::mem::take(&mut taken);
                first = first.or(take(&mut self.snapshot, &mut self.allocations, &mut self.unanswered, batch));
                self.publish.send_replace(Arc::new(self.snapshot.clone()));
            }
        }
        first = first.or(take(&mut self.snapshot, &mut self.allocations, &mut self.unanswered, taken));
        first.map_or(Ok(()), Err)
    }

    fn all_failed(&mut self, why: &Failure) {
        for peer in self.snapshot.peers.values_mut() {
            fail(peer, &why.what);
        }
    }

    /// What a state file remembers is meant to outlive this process.
    async fn release_all(&mut self) {
        if self.settings.state.is_some() {
            return;
        }
        for (peer, _) in self.allocations.all() {
            let query = pair(&self.settings, peer);
            match self.client.release(&query).await {
                Ok(_) => debug!("jalapeno: released the path to {peer}"),
                // Jalapeno itself has no way to give back.
                Err(why) => {
                    debug!("jalapeno: {why}");
                    return;
                }
            }
        }
    }
}

/// What one peer's question needs.
struct Asker<'t> {
    settings: &'t Settings,
    client: &'t Client,
    topology: &'t Topology,
}

/// An answer that was taken apart.
struct Answered {
    programmed: Programmed,
    /// Ids of a new allocation.
    allocated: Option<Vec<String>>,
}

impl Asker<'_> {
    async fn paths(&self, peer: &str, allocated: Option<Vec<String>>, wait: bool) -> Result<Answered, Failure> {
        if !self.topology.vertices.contains_key(peer) {
            return Err(self.why_unknown(peer).await);
        }
        let is_load = self.settings.kind == PathKind::Load;
        match allocated.filter(|_| is_load) {
            Some(ids) if self.topology.missing_on(&ids).is_none() => {
                let programmed = program(&[self.remembered(&ids)], self.topology, self.settings)?;
                return Ok(Answered { programmed, allocated: None });
            }
            // The way is gone: its load is given back where that can be done, and another one is asked for.
            Some(_) => drop(self.client.release(&pair(self.settings, peer)).await),
            None => {}
        }
        if wait {
            let what =
                format!("path to {peer}: the allocation was not answered; asked again later, it may have counted");
            return Err(Failure::new(Cause::Timeout, what));
        }
        let (route, mut query) = self.settings.kind.route();
        query.extend(pair(self.settings, peer));
        let value: Value = self.client.graph(route, &query).await?;
        let paths = answer::read(value, &self.settings.kind, &self.settings.source, peer)?;
        let mut programmed = program(&paths.walks, self.topology, self.settings)?;
        if paths.cut {
            programmed.notes.push("as many paths as `limit` allows: there may be more".to_owned());
        }
        let allocated = paths.walks.first().filter(|_| is_load).map(Walk::ids);
        Ok(Answered { programmed, allocated })
    }

    fn remembered(&self, ids: &[String]) -> Walk {
        let vertices: Vec<Vertex> = ids.iter().filter_map(|id| self.topology.vertices.get(id)).cloned().collect();
        Walk { vertices, text: None }
    }

    /// A typing error looks like a partition: the collection knows which it is.
    async fn why_unknown(&self, peer: &str) -> Failure {
        let (collection, key) = peer.split_once('/').unwrap_or((peer, ""));
        let known = self.client.collection(collection, "keys").await;
        let keys = known.as_ref().ok().and_then(|answer| answer.get("keys")).and_then(Value::as_array);
        let what = match keys {
            Some(keys) if keys.iter().any(|known| known.as_str() == Some(key)) => {
                format!("{peer} has no link in graph {}", self.settings.graph)
            }
            Some(keys) => {
                let some: Vec<&str> = keys.iter().filter_map(Value::as_str).take(5).collect();
                format!("there is no {peer}: {collection} has {}", some.join(", "))
            }
            None => format!("{peer} is not in graph {}", self.settings.graph),
        };
        Failure::new(Cause::UnknownId, what)
    }
}

fn pair(settings: &Settings, peer: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("source", settings.source.clone()),
        ("destination", peer.to_owned()),
        ("direction", "outbound".to_owned()),
        ("algo", settings.algo.to_string()),
    ])
}

/// Notes what a batch of answers brought; the first failure is returned.
fn take(
    snapshot: &mut Snapshot,
    allocations: &mut Allocations,
    unanswered: &mut BTreeMap<String, Instant>,
    batch: Vec<(String, Result<Answered, Failure>)>,
) -> Option<Failure> {
    let mut first = None;
    for (id, answer) in batch {
        let Some(peer) = snapshot.peers.get_mut(&id) else { continue };
        match answer {
            Ok(Answered { programmed, allocated }) => {
                snapshot.health.mismatches += programmed.mismatches;
                *peer = Peer {
                    prefixes: programmed.prefixes,
                    state: PeerState::Fresh,
                    last_error: None,
                    synced: Some(SystemTime::now()),
                    notes: programmed.notes,
                };
                unanswered.remove(&id);
                if let Some(path) = allocated
                    && let Err(why) = allocations.insert(&id, path)
                {
                    peer.notes.push(format!("the allocation cannot be remembered: {why}"));
                }
            }
            Err(why) => {
                snapshot.health.failed(why.cause);
                if matches!(why.cause, Cause::Timeout | Cause::Body | Cause::Bookkeeping) {
                    unanswered.entry(id).or_insert_with(|| Instant::now() + LOAD_RETRY);
                }
                fail(peer, &why.what);
                first.get_or_insert(why);
            }
        }
    }
    let now = Instant::now();
    unanswered.retain(|_, until| *until > now);
    first
}

/// Twice as long after every failure, with a fifth of jitter either way, so that many hosts do not come back together.
/// `random` lies in 0..1.
pub(crate) fn pause(interval: Duration, failed: u32, random: f64) -> Duration {
    let longest = MAX_BACKOFF.max(interval);
    let doubled = interval.saturating_mul(2u32.saturating_pow(failed.min(16)));
    let pause = if failed == 0 { interval } else { doubled.min(longest) };
    pause.mul_f64(0.8 + 0.4 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let interval = Duration::from_secs(5);
        let middle = |failed| pause(interval, failed, 0.5);
        assert_eq!(
            [middle(0), middle(1), middle(2), middle(3), middle(40)],
            [5, 10, 20, 30, 30].map(Duration::from_secs)
        );
        assert_eq!(pause(interval, 0, 0.0), Duration::from_secs(4));
        assert_eq!(pause(interval, 0, 1.0), Duration::from_secs(6));
        assert_eq!(pause(Duration::from_mins(1), 3, 0.5), Duration::from_mins(1));
    }
}
