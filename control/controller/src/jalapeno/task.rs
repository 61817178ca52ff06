//! The task of a Jalapeno controller: it reads the topology, requests paths when the topology has changed, and keeps
//! the last good paths.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::allocations::Allocations;
use super::asker::{Asker, Begun, Question, pair};
use super::client::{Client, Looked};
use super::known::Known;
use super::pace::{Pace, Patience};
use super::retries::Retries;
use super::{Criterion, Settings};
use crate::failure::Failure;
use crate::rounds::{Stop, finish, pause, told};
use crate::snapshot::{Cause, Command, Snapshot};

/// Maximum time that the server's `Retry-After` may delay the next round.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);
/// Number of answers that are published together during a long round.
const PUBLISH_EVERY: usize = 128;
/// Divisor of the time: publishing takes at most this part of it, because snapshots of a hundred thousand peers are
/// large.
const PUBLISH_SHARE: u32 = 20;
/// Maximum number of consecutive requests without an answer, after which the other requests are not sent.
const SILENT: usize = 4;
/// Maximum time for which an answer waits for others before it is published.
const PUBLISH_WITHIN: Duration = Duration::from_millis(100);

/// Runs until the task is told to stop, or until nobody receives its snapshots.
pub async fn run(settings: Settings, publish: watch::Sender<Arc<Snapshot>>, mut commands: mpsc::Receiver<Command>) {
    let peers = settings.peers.iter().filter(|peer| **peer != settings.source).cloned();
    let snapshot = Snapshot::begin(&publish, peers, |known| known.is_allowed(&settings.allowed));
    let client = match Client::new(&settings) {
        Ok(client) => client,
        Err(why) => {
            let mut snapshot = snapshot;
            snapshot.health.last_error = Some(why.what);
            publish.send_replace(Arc::new(snapshot));
            return;
        }
    };
    let mut task = Task::new(settings, client, publish, snapshot).await;
    let Stop { done } = task.run_rounds(&mut commands).await;
    if let Some(done) = done {
        task.release_all().await;
        // The receiver may have been dropped.
        let _ = done.send(());
    }
}

/// Decides whether missing answers concern the controller or a single peer.
struct Silence {
    /// Number of consecutive requests without an answer that indicates trouble of the controller.
    enough: usize,
    in_a_row: usize,
    /// Whether any request was answered.
    heard: bool,
    trouble: Option<Failure>,
}

impl Silence {
    /// Processes the result of one request. Returns `true` if the remaining requests need not be sent.
    fn is_enough(&mut self, failure: Option<Failure>) -> bool {
        let Some(why) = failure.filter(Failure::is_of_the_controller) else {
            (self.in_a_row, self.heard, self.trouble) = (0, true, None);
            return false;
        };
        self.in_a_row += 1;
        let is_enough = self.in_a_row >= self.enough || why.retry_after.is_some();
        // As long as other requests are answered, a missing answer concerns its own peer only.
        self.trouble = (is_enough || !self.heard).then_some(why);
        is_enough
    }
}

struct Task {
    settings: Settings,
    client: Client,
    publish: watch::Sender<Arc<Snapshot>>,
    known: Known,
    begun: Begun,
    /// Digest of the topology under which all fresh peers were asked for.
    digest: Option<u64>,
    /// Number of consecutive rounds that failed.
    failed: u32,
    pace: Pace,
    patience: Patience,
}

impl Task {
    async fn new(
        settings: Settings,
        client: Client,
        publish: watch::Sender<Arc<Snapshot>>,
        mut snapshot: Snapshot,
    ) -> Self {
        let (file, graph, source) = (settings.state.clone(), settings.graph.clone(), settings.source.clone());
        let mut health = std::mem::take(&mut snapshot.health);
        // Other controllers share this thread, and a file system may take its time.
        let loading = tokio::task::spawn_blocking(move || {
            let allocations = Allocations::load(file, &graph, &source, &mut health);
            (allocations, health)
        });
        let allocations;
        (allocations, snapshot.health) = loading.await.unwrap_or_default(); // a panic has been printed
        let mut known = Known { snapshot, allocations, retries: Retries::default() };
        if settings.kind == Criterion::Load {
            known.recall(&settings.allowed);
            publish.send_replace(Arc::new(known.snapshot.clone()));
        }
        let pace = Pace::new(settings.concurrency, settings.timeout);
        // With `path = "load"` the timeout for a topology is longer, too. Its changes are not urgent then, and the
        // controller has the same work with a request if the client gives it up.
        let is_load = settings.kind == Criterion::Load;
        let patience = if is_load { Patience::booking(settings.timeout) } else { settings.timeout };
        let patience = Patience::new(patience);
        Self { settings, client, publish, known, begun: Begun::default(), digest: None, failed: 0, pace, patience }
    }

    /// Runs round after round. A stop command does not wait for the end of a round.
    async fn run_rounds(&mut self, commands: &mut mpsc::Receiver<Command>) -> Stop {
        loop {
            let next = match finish(self.round(), commands).await {
                Ok((next, false)) => next,
                Ok((_, true)) => {
                    self.digest = None;
                    continue;
                }
                Err(stop) => return stop,
            };
            tokio::select! {
                () = sleep_until(next) => {}
                command = told(commands) => match command {
                    Ok(()) => self.digest = None,
                    Err(stop) => return stop,
                }
            }
        }
    }

    /// Runs one round. Returns the time at which the next one is due.
    async fn round(&mut self) -> Instant {
        let begun = Instant::now();
        self.known.snapshot.health.attempts += 1;
        let result = self.look().await;
        let trouble = match &result {
            Ok(()) => self.known.first_failed(),
            Err(why) => Some(why.clone()),
        };
        self.failed = if result.is_ok() { 0 } else { self.failed.saturating_add(1) };
        let health = &mut self.known.snapshot.health;
        health.last_duration = begun.elapsed();
        if let Some(why) = trouble {
            if health.last_error.as_ref() != Some(&why.what) {
                warn!("jalapeno: {why}");
            }
            health.last_error = Some(why.what);
        } else {
            health.successes += 1;
            health.last_success = Some(SystemTime::now());
            health.last_error = None;
        }
        let wish = result.err().and_then(|why| why.retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
        let pause = pause(self.settings.interval, self.failed, fastrand::f64()).max(wish).max(self.patience.pause());
        health.next = Some(SystemTime::now() + pause);
        self.publish();
        Instant::now() + pause
    }

    fn publish(&self) {
        self.publish.send_replace(Arc::new(self.known.snapshot.clone()));
    }

    /// Reads the topology, and then requests only the paths that may have changed. A peer without a path is not an
    /// error of the round. First bookings do not need the topology: their answers contain all that a carrier consists
    /// of, and the next round compares them with the topology.
    async fn look(&mut self) -> Result<(), Failure> {
        let unbooked = if self.books_blindly() { self.known.unbooked() } else { Vec::new() };
        if !unbooked.is_empty() {
            return self.ask_for(unbooked, None).await.map(drop);
        }
        let looked = match self.topology().await {
            Ok(looked) => looked,
            Err(why) => {
                self.known.snapshot.health.failed(why.cause);
                let all: Vec<String> = self.known.snapshot.peers.keys().cloned().collect();
                self.known.not_asked(all, &why);
                return Err(why);
            }
        };
        // An interrupted round had sent requests for allocations of these peers.
        for peer in self.begun.take() {
            self.known.retries.failed(&peer, self.settings.interval, true);
        }
        self.release_unwanted().await;
        let due = self.known.due(self.digest != Some(looked.topology.digest));
        self.digest = Some(looked.topology.digest);
        if self.ask_for(due, Some(&looked)).await? {
            self.digest = self.digest_still().await;
        }
        Ok(())
    }

    /// Returns whether bookings are made without a topology: paths are booked, and this is the first round.
    fn books_blindly(&self) -> bool {
        let Settings { kind, strict, .. } = &self.settings;
        *kind == Criterion::Load && !strict && self.known.snapshot.health.attempts == 1
    }

    /// Returns the digest of the topology if it is still the one under which paths were requested, else `None`. Paths
    /// may have been computed over a changed topology, and would stay if the next round found the former one again. So
    /// `None` makes the next round request all paths, whatever topology it finds. The check is made before the paths
    /// are published, unless answers have waited too long for others or for the check. So a change that somebody makes
    /// because of a new path is detected.
    ///
    /// The check costs the controller one request after every round that returned paths, and none while nothing
    /// changes. A topology that changes all the time is still requested once per interval. Two changes between the two
    /// requests that cancel each other out are not detected; only requesting every path twice would detect them.
    async fn digest_still(&self) -> Option<u64> {
        let mut look = std::pin::pin!(self.ask_topology());
        let looked = timeout(PUBLISH_WITHIN, &mut look).await;
        let looked = if let Ok(looked) = looked {
            looked
        } else {
            self.publish();
            look.await
        };
        // If the topology cannot be read, the next round reports it.
        let now = looked.ok()?.topology.digest;
        self.digest.filter(|before| now == *before)
    }

    async fn topology(&mut self) -> Result<Looked, Failure> {
        let begun = Instant::now();
        let looked = self.ask_topology().await;
        match &looked {
            Ok(_) => self.patience.answered(begun.elapsed()),
            Err(why) if why.cause == Cause::Timeout => self.patience.missed(),
            Err(_) => {}
        }
        looked
    }

    async fn ask_topology(&self) -> Result<Looked, Failure> {
        let Settings { source, graph, kind, .. } = &self.settings;
        let looked = self.client.topology(kind.watched(), source, self.patience.topology()).await?;
        let topology = &looked.topology;
        if !topology.vertices.contains_key(source) {
            let what = format!("{source} is not in graph {graph}: is `source` the id of this host?");
            return Err(Failure::new(Cause::UnknownId, what));
        }
        match kind.weight().filter(|weight| !topology.has_weight(weight)) {
            Some(weight) => {
                let what = format!("no edge of {graph} has `{weight}`: paths would be chosen by hop count");
                Err(Failure::new(Cause::NoMetric, what))
            }
            None => Ok(looked),
        }
    }

    /// Requests the paths of these peers, several at a time. If the controller stops answering, the remaining requests
    /// are not sent. Returns `true` if some path is what the controller currently answers. An allocation does not
    /// count, because it is kept however loads have changed.
    async fn ask_for(&mut self, due: Vec<Question>, looked: Option<&Looked>) -> Result<bool, Failure> {
        let Self { settings, client, known, begun, publish, pace, .. } = self;
        let asker = Asker { settings, client, looked, begun };
        let mut open: BTreeSet<String> = due.iter().map(|question| question.peer.clone()).collect();
        let mut silence =
            Silence { enough: settings.concurrency.clamp(1, SILENT), in_a_row: 0, heard: false, trouble: None };
        let mut unpublished = 0;
        let mut not_before = Instant::now();
        let mut is_answered = false;
        let mut questions = due.into_iter().map(|question| async move {
            let begun = Instant::now();
            (asker.ask(&question).await, question.peer, begun.elapsed())
        });
        let mut answers = FuturesUnordered::new();
        loop {
            let free = pace.at_once().saturating_sub(answers.len());
            answers.extend(questions.by_ref().take(free));
            let answer = timeout(PUBLISH_WITHIN, answers.next()).await;
            let is_due = unpublished >= PUBLISH_EVERY || (unpublished > 0 && answer.is_err());
            if is_due && Instant::now() >= not_before {
                let publishing = Instant::now();
                known.allocations.save(&mut known.snapshot.health);
                publish.send_replace(Arc::new(known.snapshot.clone()));
                not_before = Instant::now() + publishing.elapsed() * PUBLISH_SHARE;
                unpublished = 0;
            }
            let Ok(answer) = answer else { continue };
            let Some((answer, peer, took)) = answer else { break };
            pace.took(took);
            open.remove(&peer);
            begun.end(&peer);
            known.apply(&peer, &answer, &settings.kind, settings.interval);
            unpublished += 1;
            is_answered |= answer.is_ok();
            if silence.is_enough(answer.err()) {
                break;
            }
        }
        known.allocations.save(&mut known.snapshot.health);
        match silence.trouble {
            Some(why) => {
                known.not_asked(open, &why);
                Err(why)
            }
            None => Ok(is_answered && settings.kind != Criterion::Load),
        }
    }

    /// Releases allocations of the state file for peers that are not configured any more.
    async fn release_unwanted(&mut self) {
        let Known { snapshot, allocations, .. } = &self.known;
        let is_load = self.settings.kind == Criterion::Load;
        let unwanted = |peer: &&String| !is_load || !snapshot.peers.contains_key(*peer);
        let unwanted: Vec<String> = allocations.peers().filter(unwanted).cloned().collect();
        if self.release(&unwanted).await {
            self.known.allocations.forget(&unwanted);
            self.known.allocations.save(&mut self.known.snapshot.health);
        }
    }

    /// Releases the allocations at the end of the task. Those in a state file stay, because the file is meant to
    /// outlive the process.
    async fn release_all(&mut self) {
        self.known.allocations.save(&mut self.known.snapshot.health);
        let unknown = self.begun.take().into_iter().chain(self.known.retries.unanswered().cloned());
        let mut peers: Vec<String> = unknown.collect();
        if !self.known.allocations.are_remembered() {
            peers.extend(self.known.allocations.peers().cloned());
        }
        self.release(&peers).await;
    }

    /// Releases allocations. Returns `false` if the controller did not answer. Jalapeno itself cannot release
    /// allocations.
    async fn release(&self, peers: &[String]) -> bool {
        let Self { settings, client, .. } = self;
        let mut asked = Vec::new();
        for peer in peers {
            let query = pair(settings, peer);
            asked.push(async move { client.release(&query).await });
        }
        let mut answers = std::pin::pin!(stream::iter(asked).buffer_unordered(settings.concurrency.max(1)));
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => {}
                // The allocation does not exist.
                Err(why) if why.status == Some(404) => debug!("jalapeno: {why}"),
                Err(why) => {
                    debug!("jalapeno: {why}");
                    return why.status.is_some();
                }
            }
        }
        true
    }
}
