//! Routes, which may be many: dumped once, and kept as events change them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_kernel_routes::{Effect, Message, Routes};
use tracing::warn;

use super::Seen;
use crate::kernel::route_socket::RouteSocket;
use crate::kernel::{KernelError, system};

/// The same for routes, or this many times what it takes.
const ROUTE_REFRESH: Duration = Duration::from_mins(1);
const ROUTE_REFRESH_SHARE: u32 = 100;
/// A dump of the routes takes at most this share of the time, however fast they change: one in so many.
const ROUTE_DUMP_SHARE: u32 = 3;
/// Events that may wait to be taken into account; with more, a dump is quicker.
const EVENTS: usize = 200_000;

/// The routes as of the last dump and the events since.
pub(super) struct FollowedRoutes {
    pub(super) known: Arc<Routes>,
    pub(super) events: RouteSocket,
    pub(super) requests: RouteSocket,
    pub(super) waiting: Vec<Message>,
    /// Nobody knows what they are now.
    pub(super) is_lost: bool,
    pub(super) dumped: Instant,
    pub(super) took: Duration,
    pub(super) dumps: u64,
}

impl FollowedRoutes {
    pub(super) fn open() -> Result<Self, KernelError> {
        let refused = |why| system("open a netlink socket for routes")(why);
        let (events, requests) = (RouteSocket::events().map_err(refused)?, RouteSocket::requests().map_err(refused)?);
        let (dumped, took) = (Instant::now(), Duration::ZERO);
        Ok(Self { known: Arc::default(), events, requests, waiting: Vec::new(), is_lost: true, dumped, took, dumps: 0 })
    }

    pub(super) fn take_events(&mut self) {
        self.is_lost |= !self.events.take(&mut self.waiting);
        if self.is_lost || self.waiting.len() > EVENTS {
            self.is_lost = true;
            self.waiting.clear();
        }
    }

    /// The moment from which on the next dump may begin.
    pub(super) fn next_dump(&self) -> Instant {
        self.dumped + self.took * (ROUTE_DUMP_SHARE - 1)
    }

    /// A dump even without an event.
    pub(super) fn is_old(&self) -> bool {
        self.dumped.elapsed() > ROUTE_REFRESH.max(self.took * ROUTE_REFRESH_SHARE)
    }

    /// Takes events into account, and dumps where they do not suffice. `seen` gets what changed.
    pub(super) async fn look(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        self.take_events();
        let known = Arc::make_mut(&mut self.known);
        for message in self.waiting.drain(..) {
            self.is_lost |= !self.is_lost && known.apply(message, &mut seen.routes) == Effect::DumpAgain;
        }
        if self.is_lost && Instant::now() >= self.next_dump() {
            self.is_lost = false;
            self.dump(seen).await?;
        } else if self.is_old() {
            self.check(seen).await?;
        }
        Ok(())
    }

    async fn dump(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        let begin = Instant::now();
        let found = self.requests.dump().await.map_err(system("list the routes"))?;
        match self.known.differences(&found) {
            Some(keys) => seen.routes.extend(keys),
            None => seen.all_routes = true,
        }
        self.known = Arc::new(found);
        (self.dumped, self.took) = (Instant::now(), begin.elapsed());
        self.dumps += 1;
        Ok(())
    }

    /// What was kept by events must be what a dump says.
    async fn check(&mut self, seen: &mut Seen) -> Result<(), KernelError> {
        let mut differing = Seen::default();
        self.dump(&mut differing).await?;
        self.take_events();
        if !differing.is_nothing() && self.waiting.is_empty() {
            warn!("{} routes had changed without an event: {:?}", differing.routes.len(), differing.routes.first());
        }
        seen.all_routes |= differing.all_routes;
        seen.routes.extend(differing.routes);
        Ok(())
    }
}
