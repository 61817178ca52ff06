//! Keeps a copy of the kernel's state that is never out of date for long.
//!
//! An event about a link or an address only says that something has changed; a dump then reads the new state, because
//! there are few of them. Neighbours and routes may be many: they are dumped once, and kept up to date by events. They
//! are dumped again whenever an event was lost or does not say enough ([`srv6d_kernel_routes`] decides when).

mod followed_routes;
mod links;
mod neighbors;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::stream::{StreamExt, TryStreamExt};
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::AddressMessage;
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::packet_route::neighbour::NeighbourMessage;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::sys::AsyncSocket;
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use srv6d_addresses::TableId;
use srv6d_kernel_routes::RouteKey;

use super::resolve::NeighborSocket;
use super::{KernelError, netlink, system};
use followed_routes::FollowedRoutes;
use links::{address, controller, device, is_up, vrf_table};
use neighbors::Neighbors;
use srv6d_plan::{Device, Environment};

/// Events are handled together after a pause of this length.
const SETTLE: Duration = Duration::from_millis(2);
/// Shortest time between the last handling of events and the handling of a neighbour that has resolved. It is short
/// because packets wait for the neighbour.
const RESOLVED: Duration = Duration::from_millis(5);
/// Longest time for which a stream of events is collected: this long, or this many times what it took to handle the
/// last ones.
const STREAM: Duration = Duration::from_millis(20);
const WORK_SHARE: u32 = 3;
/// Devices and neighbours are read this often even without an event, so that a lost event matters only this long.
const REFRESH: Duration = Duration::from_secs(10);
/// Size of the buffer for events that have not been read, in bytes. A scan of a subnet causes thousands of events a
/// second.
const EVENT_ROOM: usize = 4 << 20;
/// Largest number of changed prefixes that are handled one by one.
const FEW: usize = 64;

type Events = futures_util::stream::BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>;

/// A copy of the devices, addresses, neighbours and routes of the network namespace in which it was started.
pub struct Mirror {
    handle: Handle,
    events: Events,
    names: BTreeMap<u32, String>,
    /// Indexes of devices that are up according to the events so far.
    up: BTreeSet<u32>,
    neighbors: Neighbors,
    requests: NeighborSocket,
    /// Whether an event was read and not yet reported. It is kept here because `changed` may be dropped at any await.
    dirty: bool,
    /// Whether one of the events that are not reported yet says that a neighbour has resolved.
    has_resolved: bool,
    /// Whether devices or addresses may have changed since they were read, or an event about neighbours was lost.
    is_stale: bool,
    /// When devices, addresses and neighbours were last dumped.
    dumped: Instant,
    /// When the first event that has not been reported came.
    since: Option<Instant>,
    reported: Instant,
    /// Changes that a reading found before it failed. The next reading reports them.
    untold: Seen,
    read: Instant,
    routes: Option<FollowedRoutes>,
}

/// Changes in the kernel since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether devices or addresses have changed.
    pub devices: bool,
    /// Whether neighbours have changed.
    pub neighbors: bool,
    /// Prefixes whose routes have changed.
    pub routes: BTreeSet<RouteKey>,
    /// Whether rules have changed, or so much has changed that single prefixes were not recorded.
    pub all_routes: bool,
}

impl Seen {
    /// Adds the changes of `other`.
    pub fn extend(&mut self, other: Self) {
        self.devices |= other.devices;
        self.neighbors |= other.neighbors;
        self.all_routes |= other.all_routes;
        self.routes.extend(other.routes);
    }

    /// Whether only neighbours and the routes of a few prefixes have changed.
    pub fn is_little(&self) -> bool {
        !self.devices && !self.all_routes && self.routes.len() <= FEW
    }

    /// Whether nothing has changed.
    pub fn is_nothing(&self) -> bool {
        self.is_little() && !self.neighbors && self.routes.is_empty()
    }
}

impl Mirror {
    /// Opens netlink sockets. It must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Netlink sockets cannot be opened.
    pub fn start() -> Result<Self, KernelError> {
        let groups =
            [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr, MulticastGroup::Neigh];
        let (mut connection, _, events) =
            rtnetlink::new_multicast_connection(&groups).map_err(system("listen to the kernel over netlink"))?;
        // Without the privilege the buffer is smaller, so that a dump is needed now and then.
        let _ = setsockopt(connection.socket_mut().socket_ref(), sockopt::RcvBufForce, &EVENT_ROOM);
        tokio::spawn(connection);
        let (connection, handle, _) = rtnetlink::new_connection().map_err(system("open a netlink socket"))?;
        tokio::spawn(connection);
        let events = events.map(|(message, _)| message).boxed();
        let now = Instant::now();
        Ok(Self {
            handle,
            events,
            names: BTreeMap::new(),
            up: BTreeSet::new(),
            neighbors: Neighbors::default(),
            requests: NeighborSocket::open().map_err(system("open a netlink socket for neighbours"))?,
            dirty: false,
            has_resolved: false,
            is_stale: true,
            dumped: now,
            since: None,
            reported: now,
            untold: Seen::default(),
            read: now,
            routes: None,
        })
    }

    /// Returns a handle for requests other than dumps.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Sets whether routes are followed from now on. If no part of srv6d needs routes, changes of routes wake nobody.
    ///
    /// # Errors
    /// Netlink sockets cannot be opened.
    pub fn follow_routes(&mut self, wanted: bool) -> Result<(), KernelError> {
        if wanted != self.routes.is_some() {
            self.routes = if wanted { Some(FollowedRoutes::open()?) } else { None };
        }
        Ok(())
    }

    /// Sets how long an encapsulating route that has vanished is treated as one that is being replaced.
    pub fn hold_withdrawn(&mut self, time: Duration) {
        if let Some(routes) = &mut self.routes {
            routes.withdrawn.set_time(time);
        }
    }

    /// Number of times that all routes were read since they are followed.
    pub fn route_dumps(&self) -> u64 {
        self.routes.as_ref().map_or(0, |routes| routes.dumps)
    }

    /// Waits until something may have changed. It can be cancelled without losing a change.
    pub async fn changed(&mut self) {
        loop {
            let rest = self.rest();
            if rest.is_zero() {
                self.note_all();
                break;
            }
            let routes = async {
                match &self.routes {
                    Some(routes) => routes.events.readable().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(rest) => break,
                Some(message) = self.events.next() => self.note(&message),
                () = routes => self.note_routes(),
            }
        }
        (self.dirty, self.has_resolved) = (false, false);
        self.since = None;
        self.reported = Instant::now();
    }

    /// Returns how long to wait for the next event. Events that come in a stream are handled from time to time, not one
    /// by one.
    fn rest(&self) -> Duration {
        let dump_due = self.routes.as_ref().and_then(FollowedRoutes::dump_due);
        let waiting = self.routes.as_ref().is_some_and(|routes| !routes.waiting.is_empty());
        if self.has_resolved {
            return RESOLVED.saturating_sub(self.reported.elapsed());
        }
        if self.dirty || waiting {
            let longest = STREAM.max(self.read.duration_since(self.reported) * WORK_SHARE);
            let end = self.since.map_or(SETTLE, |since| (since + longest).saturating_duration_since(Instant::now()));
            return SETTLE.min(end);
        }
        let held = self.routes.as_ref().and_then(|routes| routes.withdrawn.next());
        let held = held.map_or(REFRESH, |due| due.saturating_duration_since(Instant::now()));
        match dump_due {
            Some(due) => SETTLE.max(due.saturating_duration_since(Instant::now())).min(held),
            None => REFRESH.min(held),
        }
    }

    fn note_routes(&mut self) {
        if let Some(routes) = &mut self.routes {
            routes.take_events();
            if !routes.waiting.is_empty() {
                self.since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Reads all events that have arrived, without waiting for others.
    pub fn note_all(&mut self) {
        while let Some(Some(message)) = self.events.next().now_or_never() {
            self.note(&message);
        }
    }

    fn note(&mut self, message: &NetlinkMessage<RouteNetlinkMessage>) {
        if let Some(change) = self.neighbors.note(message) {
            self.dirty |= change.is_change;
            self.has_resolved |= change.has_resolved;
            if change.is_change {
                self.since.get_or_insert_with(Instant::now);
            }
            return;
        }
        let about = match link_state(message) {
            Some((device, true)) if !self.up.insert(device) => About::Devices,
            Some((device, false)) => {
                self.up.remove(&device);
                About::RoutesToo
            }
            // This includes an overrun: it is not known which event was lost.
            _ => About::RoutesToo,
        };
        (self.dirty, self.is_stale) = (true, true);
        self.since.get_or_insert_with(Instant::now);
        if let (About::RoutesToo, Some(routes)) = (about, &mut self.routes) {
            routes.is_lost = true;
        }
    }

    /// Reads the whole state.
    ///
    /// # Errors
    /// The kernel refuses a dump.
    pub async fn environment(&mut self) -> Result<Environment, KernelError> {
        let mut environment = Environment::default();
        self.look_again();
        self.look(&mut environment).await?;
        Ok(environment)
    }

    /// Makes the next look read the devices without relying on events, which may not have been read yet.
    pub fn look_again(&mut self) {
        self.is_stale = true;
    }

    /// Updates an environment that was read before and returns the changes. If it fails, the next successful call
    /// reports the changes found until then.
    ///
    /// # Errors
    /// The kernel refuses a dump.
    pub async fn look(&mut self, environment: &mut Environment) -> Result<Seen, KernelError> {
        let mut seen = std::mem::take(&mut self.untold);
        let looked = self.look_at_all(environment, &mut seen).await;
        if looked.is_err() {
            self.untold = std::mem::take(&mut seen);
        }
        looked.map(|()| seen)
    }

    async fn look_at_all(&mut self, environment: &mut Environment, seen: &mut Seen) -> Result<(), KernelError> {
        if self.is_stale || self.dumped.elapsed() > REFRESH {
            let Environment { devices, neighbors, vrfs, vrf_members, cores, host_name, .. } = self.devices().await?;
            if environment.host_name.is_empty() {
                environment.host_name = host_name;
            }
            self.is_stale = false;
            self.dumped = Instant::now();
            seen.neighbors |= neighbors != environment.neighbors;
            seen.devices |= (devices != environment.devices || cores != environment.cores)
                || (vrfs != environment.vrfs || vrf_members != environment.vrf_members);
            (environment.devices, environment.neighbors, environment.cores) = (devices, neighbors, cores);
            (environment.vrfs, environment.vrf_members) = (vrfs, vrf_members);
        } else if self.neighbors.take_changed() {
            let neighbors = self.neighbors.usable(&self.names);
            seen.neighbors |= neighbors != environment.neighbors;
            environment.neighbors = neighbors;
        }
        // While the routes are changed, there must be only one reference to them: otherwise all of them would be
        // copied.
        environment.routes = Arc::default();
        if let Some(routes) = &mut self.routes {
            let looked = routes.look(seen).await;
            environment.routes = Arc::clone(&routes.known);
            looked?;
        }
        self.read = Instant::now();
        Ok(())
    }

    /// Reads an environment without routes.
    async fn devices(&mut self) -> Result<Environment, KernelError> {
        let links: Vec<LinkMessage> =
            self.handle.link().get().execute().try_collect().await.map_err(netlink("list the interfaces"))?;
        let addresses: Vec<AddressMessage> =
            self.handle.address().get().execute().try_collect().await.map_err(netlink("list the addresses"))?;
        let neighbors: Vec<NeighbourMessage> =
            self.handle.neighbours().get().execute().try_collect().await.map_err(netlink("list the neighbours"))?;
        let mut devices: BTreeMap<u32, Device> = links.iter().map(|link| (link.header.index, device(link))).collect();
        for message in &addresses {
            if let (Some(device), Some(address)) = (devices.get_mut(&message.header.index), address(message)) {
                device.addresses.push(address);
            }
        }
        self.names = devices.iter().map(|(&index, device)| (index, device.name.clone())).collect();
        self.neighbors.dumped(&neighbors);
        let neighbors = self.neighbors.usable(&self.names);
        let vrfs: BTreeMap<u32, TableId> =
            links.iter().filter_map(|link| Some((link.header.index, vrf_table(link)?))).collect();
        let member =
            |link: &LinkMessage| Some((self.names.get(&link.header.index)?.clone(), *vrfs.get(&controller(link)?)?));
        let vrf_members = links.iter().filter_map(member).collect();
        Ok(Environment {
            host_name: super::host_name(),
            devices: devices.into_values().collect(),
            neighbors,
            vrfs,
            vrf_members,
            cores: cores(),
            ..Environment::default()
        })
    }

    /// Returns the gateway of the route to an address. `None`: there is no route, or the address is on-link.
    pub async fn gateway(&self, address: IpAddr) -> Option<IpAddr> {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let asked = match address {
            IpAddr::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(v4, length).build(),
            IpAddr::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(v6, length).build(),
        };
        let routes: Vec<_> = self.handle.route().get(asked).execute().try_collect().await.ok()?;
        routes.iter().flat_map(|route| &route.attributes).find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
            _ => None,
        })
    }

    /// Asks the kernel to resolve a neighbour, or to check one that is in use. Entries that somebody wrote by hand stay
    /// as they are. The answer arrives as a change.
    pub fn resolve(&self, ifindex: u32, address: IpAddr) {
        if !self.neighbors.is_fixed(ifindex, address) {
            self.requests.resolve(ifindex, address);
        }
    }

    /// Makes the kernel forget a neighbour that it is resolving.
    pub fn give_up(&self, ifindex: u32, address: IpAddr) {
        if !self.neighbors.is_known(ifindex, address) {
            self.requests.give_up(ifindex, address);
        }
    }

    /// Returns the neighbours that the kernel has resolved (true), or given up or forgotten (false), since the last
    /// call.
    pub fn settled_neighbors(&mut self) -> Vec<((u32, IpAddr), bool)> {
        self.neighbors.take_settled()
    }
}

/// The state that an event may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Devices,
    /// Devices and routes: with a device or an address, routes and their next hops may have appeared or vanished
    /// without an event of their own; or an event was lost.
    RoutesToo,
}

fn link_state(message: &NetlinkMessage<RouteNetlinkMessage>) -> Option<(u32, bool)> {
    match &message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Some((link.header.index, is_up(link))),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => Some((link.header.index, false)),
        _ => None,
    }
}

fn cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::followed_routes::tests::{Answer, followed};
    use super::*;

    #[tokio::test]
    async fn what_a_look_found_before_it_failed_is_told_by_the_next_one() {
        let mut mirror = Mirror::start().unwrap();
        let (followed, _kernel) = followed(&[Answer::Refuse]);
        mirror.routes = Some(followed);
        let mut environment = Environment::default();
        mirror.look(&mut environment).await.unwrap_err();
        tokio::time::sleep(mirror.rest()).await;
        let seen = mirror.look(&mut environment).await.unwrap();
        assert!(seen.devices && !seen.routes.is_empty(), "{seen:?}");
    }
}
