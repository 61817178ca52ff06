//! The task: keeps the workload alive, reads its flows, keeps what was good.

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
use crate::text::shown;

/// Heartbeats in the time of one lease.
const BEATS: u32 = 3;

pub struct Task {
    settings: Settings,
    api: Api,
    publish: watch::Sender<Arc<Snapshot>>,
    snapshot: Snapshot,
    events: Events,
    /// The workload is one that this task asked for: it is also the one to give it back.
    is_ours: bool,
    /// Rounds that failed one after the other.
    failed: u32,
}

impl Task {
    pub fn new(settings: Settings, api: Api, publish: watch::Sender<Arc<Snapshot>>, snapshot: Snapshot) -> Self {
        Self { settings, api, publish, snapshot, events: Events::default(), is_ours: false, failed: 0 }
    }

    /// Round after round, at once when something changes. Whoever says stop does not wait for the end of one.
    pub async fn follow(&mut self, commands: &mut mpsc::Receiver<Command>) -> Stop {
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

    /// One look; returns when the next one is due.
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

    /// The flows of a workload that exists.
    async fn only_look(&mut self) -> Result<(), Failure> {
        let what = format!("workload {} does not exist: a request would allocate it", self.settings.workload);
        let flows = self.api.flows(&self.settings.node).await?;
        self.take(&flows.ok_or_else(|| Failure::new(Cause::UnknownId, what))?);
        Ok(())
    }

    /// A peer without a path is no error of the round.
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
            // Draining paths go on for half a minute: the next ones are asked for at once.
            Some(Workload { state, drain_reason }) => {
                let (state, why) = (shown(&state), shown(&drain_reason.unwrap_or_default()));
                info!("syd: workload {} is {state} ({why})", self.settings.workload);
                if self.request().await? == Requested::AlreadyThere {
                    let what =
                        format!("workload {} is {state} ({why}), and cannot be requested anew", self.settings.workload);
                    return Err(Failure::new(Cause::Refused, what));
                }
            }
            // Never requested, or the topology was composed anew with an empty allocation table.
            None => self.begin().await?,
        }
        let flows = if let Some(flows) = self.flows().await? {
            flows
        } else {
            // That happened just now.
            self.begin().await?;
            let what = format!("workload {} is gone as soon as it is requested", self.settings.workload);
            self.flows().await?.ok_or_else(|| Failure::new(Cause::UnknownId, what))?
        };
        self.take(&flows);
        Ok(())
    }

    /// The controller does not know the workload. If it does by now, another host of it was first.
    async fn begin(&mut self) -> Result<(), Failure> {
        self.is_ours = false;
        self.request().await.map(drop)
    }

    async fn request(&mut self) -> Result<Requested, Failure> {
        // A stream of the workload that was there before says nothing of this one.
        self.events = Events::default();
        // A request whose answer is lost may have been granted.
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

    /// Listens before it reads, so that nothing changes unheard in between.
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

    /// Why the first peer of those without a current path has none.
    fn first_failed(&self) -> Option<String> {
        let failed = self.snapshot.peers.values().find(|peer| peer.state != PeerState::Fresh)?;
        Some(failed.last_error.clone().unwrap_or_default())
    }

    /// Gives back what this task asked for.
    pub async fn complete(self) {
        if !self.is_ours {
            return;
        }
        if let Err(why) = self.api.complete().await {
            debug!("syd: {why}");
        }
    }
}
