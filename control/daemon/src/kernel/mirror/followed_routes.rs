//! Follows routes, which may be many: they are dumped once, and kept up to date by events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_kernel_routes::{Effect, Message, Routes, Withdrawn};
use tracing::warn;

use super::Seen;
use crate::kernel::route_socket::RouteSocket;
use crate::kernel::{KernelError, system};

/// Routes are dumped again after this time even without an event, or after this many times the duration of a dump if
/// that is longer.
const ROUTE_REFRESH: Duration = Duration::from_mins(1);
const ROUTE_REFRESH_SHARE: u32 = 100;
/// Dumps of the routes take at most 1 / `ROUTE_DUMP_SHARE` of the time, however fast routes change.
const ROUTE_DUMP_SHARE: u32 = 3;
/// Pause before the dump that follows an uncertain or a failed one. It doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Number of events that may wait to be processed. With more, a dump is quicker.
const EVENTS: usize = 200_000;

/// The routes of the last dump, updated by the events since.
pub(super) struct FollowedRoutes {
    pub(super) known: Arc<Routes>,
    pub(super) events: RouteSocket,
    pub(super) requests: RouteSocket,
    pub(super) waiting: Vec<Message>,
    /// Encapsulating routes that have vanished a moment ago.
    pub(super) withdrawn: Withdrawn,
    /// Whether the present routes are unknown, so that a dump is needed.
    pub(super) is_lost: bool,
    /// Whether the last dump may have omitted routes because others were removed meanwhile.
    is_uncertain: bool,
    /// Number of failed or uncertain dumps since the last one that was neither.
    retries: u32,
    pub(super) dumped: Instant,
    pub(super) took: Duration,
    pub(super) dumps: u64,
}

impl FollowedRoutes {
    pub(super) fn open() -> Result<Self, KernelError> {
        let refused = |why| system("open a netlink socket for routes")(why);
        let (events, requests) = (RouteSocket::events().map_err(refused)?, RouteSocket::requests().map_err(refused)?);
        Ok(Self::on(events, requests))
    }

    fn on(events: RouteSocket, requests: RouteSocket) -> Self {
        Self {
            known: Arc::default(),
            events,
            requests,
            waiting: Vec::new(),
            withdrawn: Withdrawn::default(),
            is_lost: true,
            is_uncertain: false,
            retries: 0,
            dumped: Instant::now(),
            took: Duration::ZERO,
            dumps: 0,
        }
    }

    pub(super) fn take_events(&mut self) {
        self.is_lost |= !self.events.read_all(&mut self.waiting);
        if self.is_lost || self.waiting.len() > EVENTS {
            self.is_lost = true;
            self.waiting.clear();
        }
    }

    /// Returns the time at which the next dump is due. `None`: none is needed.
    pub(super) fn dump_due(&self) -> Option<Instant> {
        let allowed = self.dumped + self.pause().max(self.took * (ROUTE_DUMP_SHARE - 1));
        // A dump discards the routes that are held. So only a dump that is needed because the routes are unknown may
        // come before they are released.
        let held = self.withdrawn.next().unwrap_or(allowed);
        self.is_lost.then_some(allowed).or(self.is_uncertain.then_some(allowed.max(held)))
    }

    /// Returns the pause after a dump.
    fn pause(&self) -> Duration {
        let doublings = self.retries.saturating_sub(1).min(u32::BITS - 1);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        if self.retries == 0 { Duration::ZERO } else { pause }
    }

    /// Whether the last dump is so old that a new one is needed even without an event.
    pub(super) fn is_old(&self) -> bool {
        self.dumped.elapsed() > ROUTE_REFRESH.max(self.took * ROUTE_REFRESH_SHARE)
    }

    /// Processes events, and makes a dump if they do not suffice. `seen` gets the changes.
    pub(super) async fn look(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        self.take_events();
        let known = Arc::make_mut(&mut self.known);
        let now = Instant::now();
        let is_lost = &mut self.is_lost;
        let mut apply = |message: Message, known: &mut Routes| {
            // Once a dump is needed, the rest does not matter.
            if !*is_lost {
                *is_lost = known.apply(message, &mut seen.routes) == Effect::DumpAgain;
            }
        };
        for message in self.waiting.drain(..) {
            for message in self.withdrawn.pass(message, known, now) {
                apply(message, known);
            }
        }
        for message in self.withdrawn.due(now) {
            apply(message, known);
        }
        if self.dump_due().is_some_and(|due| Instant::now() >= due) {
            self.dump(seen).await?;
        } else if self.is_old() && self.withdrawn.next().is_none() {
            self.check(seen).await?;
        }
        Ok(())
    }

    /// Reads all routes. If that fails, the routes stay unknown.
    async fn dump(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        let begin = Instant::now();
        let dump = self.requests.dump().await;
        (self.dumped, self.took) = (Instant::now(), begin.elapsed());
        self.is_lost = dump.is_err();
        self.retries = self.retries.saturating_add(1);
        let dump = dump.map_err(system("list the routes"))?;
        match self.known.differences(&dump.routes) {
            Some(keys) => seen.routes.extend(keys),
            None => seen.all_routes = true,
        }
        self.known = Arc::new(dump.routes);
        self.withdrawn.clear();
        self.dumps += 1;
        self.take_events();
        self.is_uncertain = !dump.is_of_one_moment || self.waiting.iter().any(Message::may_remove);
        if !self.is_uncertain {
            self.retries = 0;
        }
        Ok(())
    }

    /// Checks that the routes kept by events are those that a dump reads.
    async fn check(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        let mut differing = Seen::default();
        self.dump(&mut differing).await?;
        if !differing.is_nothing() && self.waiting.is_empty() {
            warn!("{} routes had changed without an event: {:?}", differing.routes.len(), differing.routes.first());
        }
        seen.all_routes |= differing.all_routes;
        seen.routes.extend(differing.routes);
        Ok(())
    }
}

#[cfg(test)]
#[path = "followed_routes_tests.rs"]
pub(super) mod tests;
