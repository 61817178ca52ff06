//! The task of a syd controller: it keeps the workload alive, reads its flows, and keeps the last good paths.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::Settings;
use super::api::{Api, Beat, Events, Requested, Workload};
use super::flows::Flows;
use crate::failure::Failure;
use crate::rounds::{Stop, finish, pause, told};
use crate::snapshot::{Cause, Command, Peer, PeerState, Snapshot, fail};
use srv6d_text::shown;

/// Number of heartbeats during one lease.
const BEATS: u32 = 3;

pub struct Task {
    settings: Settings,
    api: Api,
    publish: watch::Sender<Arc<Snapshot>>,
    snapshot: Snapshot,
    events: Events,
    /// Whether this task has requested the workload and so must release it.
    is_ours: bool,
    /// Number of consecutive rounds that failed.
    failed: u32,
}

impl Task {
    pub fn new(settings: Settings, api: Api, publish: watch::Sender<Arc<Snapshot>>, snapshot: Snapshot) -> Self {
        Self { settings, api, publish, snapshot, events: Events::default(), is_ours: false, failed: 0 }
    }

    /// Runs round after round, and at once when something changes. A stop command does not wait for the end of a round.
    pub async fn run_rounds(&mut self, commands: &mut mpsc::Receiver<Command>) -> Stop {
        loop {
            let next = match finish(self.round(), commands).await {
                Ok((next, false)) => next,
                Ok((_, true)) => continue,
                Err(stop) => return stop,
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.events.change() => {}
                command = told(commands) => if let Err(stop) = command {
                    return stop;
                },
            }
        }
    }

    /// Runs one round. Returns the time at which the next one is due.
    async fn round(&mut self) -> Instant {
        let begun = Instant::now();
        self.snapshot.health.attempts += 1;
        let result = self.look().await;
        self.failed = if result.is_ok() { 0 } else { self.failed.saturating_add(1) };
        let trouble = match result {
            Ok(()) => self.first_failed(),
            Err(why) => {
                self.snapshot.health.failed(why.cause);
                self.snapshot.peers.values_mut().for_each(|peer| fail(peer, &why.what));
                Some(why.what)
            }
        };
        let health = &mut self.snapshot.health;
        health.last_duration = begun.elapsed();
        if let Some(why) = &trouble {
            if health.last_error.as_ref() != Some(why) {
                warn!("syd: {why}");
            }
        } else {
            health.successes += 1;
            health.last_success = Some(SystemTime::now());
        }
        health.last_error = trouble;
        let pause = pause(self.settings.interval, self.failed, fastrand::f64()).min(self.settings.lease / BEATS);
        health.next = Some(SystemTime::now() + pause);
        self.publish.send_replace(Arc::new(self.snapshot.clone()));
        Instant::now() + pause
    }

    /// Reads the flows of the workload if it exists, without changing anything.
    async fn only_look(&mut self) -> Result<(), Failure> {
        let what = format!("workload {} does not exist: a request would allocate it", self.settings.workload);
        let flows = self.api.flows(&self.settings.node).await?;
        self.take(&flows.ok_or_else(|| Failure::new(Cause::UnknownId, what))?);
        Ok(())
    }

    /// Renews or requests the workload, and reads its flows. A peer without a path is not an error of the round.
    async fn look(&mut self) -> Result<(), Failure> {
        if self.settings.only_look {
            return self.only_look().await;
        }
        match self.api.workload().await? {
            Some(Workload { state, .. }) if state == "active" => {
                if self.api.beat().await? == Beat::Unknown {
                    self.begin().await?;
                }
            }
            // Draining paths still forward for half a minute, so new ones are requested at once.
            Some(Workload { state, drain_reason }) => {
                let (state, why) = (shown(&state), shown(&drain_reason.unwrap_or_default()));
                info!("syd: workload {} is {state} ({why})", self.settings.workload);
                if self.request().await? == Requested::AlreadyThere {
                    let what =
                        format!("workload {} is {state} ({why}), and cannot be requested anew", self.settings.workload);
                    return Err(Failure::new(Cause::Refused, what));
                }
            }
            // The workload was never requested, or the topology was composed again with an empty allocation table.
            None => self.begin().await?,
        }
        let flows = if let Some(flows) = self.flows().await? {
            flows
        } else {
            // The workload has disappeared since it was read above.
            self.begin().await?;
            let what = format!("workload {} is gone as soon as it is requested", self.settings.workload);
            self.flows().await?.ok_or_else(|| Failure::new(Cause::UnknownId, what))?
        };
        self.take(&flows);
        Ok(())
    }

    /// Requests a workload that the controller does not know. If it exists meanwhile, another host has requested it
    /// first.
    async fn begin(&mut self) -> Result<(), Failure> {
        self.is_ours = false;
        self.request().await.map(drop)
    }

    async fn request(&mut self) -> Result<Requested, Failure> {
        // The event stream of an earlier workload does not report changes of this one.
        self.events = Events::default();
        // The request may have been granted even if its answer is lost.
        let was_ours = std::mem::replace(&mut self.is_ours, true);
        let requested = self.api.request(&self.settings).await;
        let is_refused = match &requested {
            Ok(requested) => *requested == Requested::AlreadyThere,
            Err(why) => why.status.is_some() || why.cause == Cause::Connect,
        };
        if is_refused {
            self.is_ours = was_ours;
        }
        requested
    }

    /// Reads the flows. Opens the event stream first, so that no change is missed in between.
    async fn flows(&mut self) -> Result<Option<Flows>, Failure> {
        if self.events.is_closed() {
            self.events = self.api.events().await;
        }
        self.api.flows(&self.settings.node).await
    }

    fn take(&mut self, flows: &Flows) {
        let Snapshot { peers, health } = &mut self.snapshot;
        for (id, peer) in peers {
            let prefixes = self.settings.peers.get(id).map(Vec::as_slice).unwrap_or_default();
            match flows.program(id, prefixes, &self.settings.allowed) {
                Ok(programmed) => {
                    health.mismatches += programmed.mismatches;
                    *peer = Peer {
                        prefixes: programmed.prefixes,
                        state: PeerState::Fresh,
                        synced: Some(SystemTime::now()),
                        ..Peer::default()
                    };
                }
                Err(why) => {
                    health.failed(why.cause);
                    fail(peer, &why.what);
                }
            }
        }
    }

    /// Returns the error of the first peer without a current path.
    fn first_failed(&self) -> Option<String> {
        let failed = self.snapshot.peers.values().find(|peer| peer.state != PeerState::Fresh)?;
        Some(failed.last_error.clone().unwrap_or_default())
    }

    /// Releases the workload if this task has requested it.
    pub async fn complete(self) {
        if !self.is_ours {
            return;
        }
        if let Err(why) = self.api.complete().await {
            debug!("syd: {why}");
        }
    }
}
