//! A picture of the kernel that is never stale for long: events only say that something changed, a dump says what it is
//! now. So a lost event costs nothing but the time to the next one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder};
use srv6d_srv6::model::{Mac, TableId};

use super::{KernelError, netlink, resolve, routes, system};
use crate::plan::{Device, Environment, KernelNeighbor, KernelRoute};

/// How long events may come one after the other before they are acted on together.
const SETTLE: Duration = Duration::from_millis(2);
/// A dump even without an event: if one was lost, this is how long it can matter.
const REFRESH: Duration = Duration::from_secs(10);

/// A dump of the routes takes at most this share of the time, however fast they change: one in so many.
const ROUTE_DUMP_SHARE: u32 = 3;

type Events = futures_util::stream::BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>;

/// Devices, addresses and neighbours of the network namespace it was started in.
pub struct Mirror {
    handle: Handle,
    events: Events,
    names: BTreeMap<u32, String>,
    /// An event was read and not yet reported: `changed` may be dropped at any await.
    dirty: bool,
    routes: Routes,
}

/// The routes as of the last dump, which is dear: they are read anew only when something says that they changed.
struct Routes {
    known: Arc<Vec<KernelRoute>>,
    changed: bool,
    dumped: Instant,
    took: Duration,
}

impl Routes {
    /// The moment from which on the next dump may begin.
    fn next_dump(&self) -> Instant {
        self.dumped + self.took * (ROUTE_DUMP_SHARE - 1)
    }

    /// A dump even without an event.
    fn is_old(&self) -> bool {
        self.dumped.elapsed() > REFRESH.max(self.took * 100)
    }
}

impl Mirror {
    /// Opens netlink sockets. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// No netlink.
    pub fn start() -> Result<Self, KernelError> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Neigh,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, events) =
            rtnetlink::new_multicast_connection(&groups).map_err(system("listen to the kernel over netlink"))?;
        tokio::spawn(connection);
        let (connection, handle, _) = rtnetlink::new_connection().map_err(system("open a netlink socket"))?;
        tokio::spawn(connection);
        let (dumped, took) = (Instant::now(), Duration::ZERO);
        let routes = Routes { known: Arc::default(), changed: true, dumped, took };
        let events = events.map(|(message, _)| message).boxed();
        Ok(Self { handle, events, names: BTreeMap::new(), dirty: false, routes })
    }

    /// For requests beside the dumps.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns when something may have changed. Can be cancelled without losing a change.
    pub async fn changed(&mut self) {
        while let Ok(Some(message)) = tokio::time::timeout(self.rest(), self.events.next()).await {
            self.note(&message);
        }
        self.dirty = false;
    }

    /// How long the next event is waited for. Routes that change in a stream are read now and then, not all the time.
    fn rest(&self) -> Duration {
        match (self.dirty, self.routes.changed) {
            (true, _) => SETTLE,
            (false, true) => SETTLE.max(self.routes.next_dump().saturating_duration_since(Instant::now())),
            (false, false) => REFRESH,
        }
    }

    fn note(&mut self, message: &NetlinkMessage<RouteNetlinkMessage>) {
        match about(message) {
            About::Nothing => {}
            About::Route => self.routes.changed = true,
            About::Neighbour => self.dirty = true,
            // IPv4 routes go with their link or address without an event of their own.
            About::Anything => (self.dirty, self.routes.changed) = (true, true),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The kernel refuses a dump.
    pub async fn environment(&mut self) -> Result<Environment, KernelError> {
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
        let neighbors = neighbors.iter().filter_map(|message| self.neighbor(message)).collect();
        let routes = self.routes().await?;
        let devices = devices.into_values().collect();
        let vrfs = links.iter().filter_map(|link| Some((link.header.index, vrf_table(link)?))).collect();
        Ok(Environment { vrfs, devices, neighbors, cores: cores(), routes, ..Environment::default() })
    }

    async fn routes(&mut self) -> Result<Arc<Vec<KernelRoute>>, KernelError> {
        if !self.routes.changed && !self.routes.is_old() || Instant::now() < self.routes.next_dump() {
            return Ok(self.routes.known.clone());
        }
        let begin = Instant::now();
        self.routes.changed = false;
        let mut found = Vec::with_capacity(self.routes.known.len());
        for asked in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
            let mut dump = std::pin::pin!(self.handle.route().get(asked).execute());
            while let Some(message) = dump.try_next().await.map_err(netlink("list the routes"))? {
                found.extend(routes::decode(&message));
            }
        }
        if *self.routes.known != found {
            self.routes.known = Arc::new(found);
        }
        (self.routes.dumped, self.routes.took) = (Instant::now(), begin.elapsed());
        Ok(self.routes.known.clone())
    }

    /// The gateway of the route to an address; `None`: no route, or on-link.
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

    fn neighbor(&self, message: &NeighbourMessage) -> Option<KernelNeighbor> {
        use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
        let usable = matches!(message.header.state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
        let device = self.names.get(&message.header.ifindex).filter(|_| usable)?.clone();
        let mut found = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => found.0 = Some(IpAddr::V4(*v4)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => found.0 = Some(IpAddr::V6(*v6)),
                NeighbourAttribute::LinkLayerAddress(bytes) => found.1 = mac(bytes),
                _ => {}
            }
        }
        let (Some(address), Some(mac)) = found else { return None };
        (!mac.is_group() && !address.is_multicast()).then_some(KernelNeighbor { device, address, mac })
    }

    /// Asks the kernel to resolve a neighbour, or to check one that is in use.
    ///
    /// # Errors
    /// No such device, or no privilege.
    pub async fn resolve(&self, ifindex: u32, address: IpAddr) -> Result<(), KernelError> {
        resolve::resolve(&self.handle, ifindex, address).await
    }
}

/// What an event may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Nothing,
    Neighbour,
    Route,
    Anything,
}

/// Neighbour entries change state all the time; only those that can be used, or no more, matter.
fn about(message: &NetlinkMessage<RouteNetlinkMessage>) -> About {
    use rtnetlink::packet_core::NetlinkPayload::InnerMessage;
    match &message.payload {
        InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) => match entry.header.state {
            NeighbourState::Incomplete => About::Nothing,
            _ => About::Neighbour,
        },
        InnerMessage(RouteNetlinkMessage::DelNeighbour(_)) => About::Neighbour,
        InnerMessage(RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route)) => {
            if routes::decode(route).is_some() { About::Route } else { About::Nothing }
        }
        // Overrun among them: an event was lost, and nobody knows which.
        _ => About::Anything,
    }
}

fn device(link: &LinkMessage) -> Device {
    let mut device = Device {
        name: String::new(),
        ifindex: link.header.index,
        mac: Mac::default(),
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        addresses: Vec::new(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Address(bytes) => device.mac = mac(bytes).unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            _ => {}
        }
    }
    device
}

/// The table of a VRF device.
fn vrf_table(link: &LinkMessage) -> Option<TableId> {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(vrf)) => vrf.iter().find_map(|part| match part {
            InfoVrf::TableId(table) => Some(TableId(*table)),
            _ => None,
        }),
        _ => None,
    })
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

/// On a point-to-point interface `Local` is ours and `Address` the peer's.
fn address(message: &AddressMessage) -> Option<IpNet> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(other) => address = address.or(Some(*other)),
            _ => {}
        }
    }
    IpNet::new(address?, message.header.prefix_len).ok()
}

fn cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}
