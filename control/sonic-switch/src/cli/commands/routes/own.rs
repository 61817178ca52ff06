//! Lists routes as zebra would: connected and static ones, SIDs, and those that other programs have added to the
//! kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use srv6d_sonic::{Action, Encap, RouteHop, Sid, StaticRoute, Switch, Target, is_default_vrf};
use srv6d_sonic_cli::routes::{Drops, Hop, Route, State, uptime};

use crate::cli::commands::node::Node;
use crate::cli::commands::portstat::interface;
use srv6d_api::state::{GenerationView, Health, NextHopStatus, PathStatus, RouteStatus, SidStatus};
use srv6d_command::Failure;
use srv6d_daemon as daemon;
use srv6d_daemon::kernel::ROUTE_PROTOCOL;
use srv6d_plan::{Environment, KernelAction, KernelHop, KernelRoute};

/// Name of the device of SONiC's SIDs: `dev sr0`.
const SID_DEVICE: &str = "sr0";
/// `proto kernel`: the route of an address.
const PROTO_KERNEL: u8 = 2;

/// The data of which a list is made, read at one moment.
struct Look {
    switch: Switch,
    kernel: Environment,
    routes: Vec<RouteStatus>,
    paths: Vec<PathStatus>,
    sids: Vec<SidStatus>,
    uptime: String,
    ipv6: bool,
    /// Name of the VRF. `None`: the default one.
    vrf: Option<String>,
    table: u32,
}

/// Returns every route of one family in one VRF.
pub fn routes(node: &Node, ipv6: bool, vrf: Option<&str>) -> Result<Vec<Route>, Failure> {
    let switch = node.switch()?;
    let Some(table) = switch.table(vrf) else {
        return Err(Failure::failed(format!("% VRF {} not found", vrf.unwrap_or_default())));
    };
    let look = Look {
        kernel: daemon::environment()?,
        routes: node.routes()?,
        paths: node.paths()?,
        sids: node.sids()?,
        uptime: uptime(unchanged_for(&node.generation()?)),
        ipv6,
        vrf: vrf.filter(|vrf| !is_default_vrf(vrf)).map(str::to_owned),
        table,
        switch,
    };
    let mut routes = look.connected();
    routes.extend(look.statics());
    if ipv6 && look.vrf.is_none() {
        routes.extend(look.switch.sids.iter().filter_map(|sid| look.sid(sid)));
    }
    let known: BTreeSet<IpNet> = routes.iter().map(|route| route.prefix).collect();
    routes.extend(look.of_others(&known));
    Ok(routes)
}

/// Returns the time since routes or SIDs were last changed, or since the daemon was started.
fn unchanged_for(view: &GenerationView) -> Duration {
    let changed = |kind: &str, changes: &BTreeMap<String, srv6d_api::state::Changed>| {
        changes.get(kind).is_some_and(|changed| changed.added + changed.removed + changed.changed > 0)
    };
    let last =
        view.generations.iter().find(|row| ["routes", "sids", "steers"].iter().any(|kind| changed(kind, &row.changes)));
    let since = last.map_or(view.started, |row| row.published);
    SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(since)).unwrap_or_default()
}

impl Look {
    fn route(&self, prefix: IpNet, protocol: &str, (distance, metric): (u32, u32), hops: Vec<Hop>) -> Route {
        let state = if hops.iter().any(|hop| hop.fib) { State::Installed } else { State::None };
        Route {
            prefix,
            protocol: protocol.to_owned(),
            distance,
            metric,
            selected: hops.iter().any(|hop| hop.active),
            state,
            uptime: self.uptime.clone(),
            hops,
        }
    }

    fn is_here(&self, vrf: Option<&String>) -> bool {
        vrf.filter(|vrf| !is_default_vrf(vrf)) == self.vrf.as_ref()
    }

    /// Returns the subnets of interfaces that are up.
    fn connected(&self) -> Vec<Route> {
        let ports = self.switch.ports.iter().filter(|port| self.is_here(port.vrf.as_ref()));
        let of_ports = ports.filter_map(|port| {
            let device = self.kernel.device(interface(port)?).filter(|device| device.up)?;
            Some((port.name.as_str(), device.addresses.as_slice()))
        });
        let loopbacks =
            self.switch.loopbacks.iter().filter(|loopback| loopback.admin_up && self.is_here(loopback.vrf.as_ref()));
        let of_loopbacks = loopbacks.map(|loopback| (loopback.name.as_str(), loopback.addresses.as_slice()));
        let mut seen = BTreeSet::new();
        let mut routes = Vec::new();
        for (name, addresses) in of_ports.chain(of_loopbacks) {
            for address in addresses.iter().filter(|address| address.addr().is_ipv6() == self.ipv6) {
                if seen.insert((address.trunc(), name)) {
                    routes.push(self.route(address.trunc(), "connected", (0, 0), vec![on(Some(name), true)]));
                }
            }
        }
        routes
    }

    fn statics(&self) -> Vec<Route> {
        let here =
            |route: &&StaticRoute| route.prefix.addr().is_ipv6() == self.ipv6 && self.is_here(route.vrf.as_ref());
        self.switch.routes.iter().filter(here).map(|route| self.static_route(route)).collect()
    }

    fn static_route(&self, route: &StaticRoute) -> Route {
        let prefix = route.prefix.trunc();
        let text = prefix.to_string();
        let row = self.routes.iter().find(|row| row.prefix == text && row.table == self.table);
        let hops = match &route.target {
            Target::Blackhole => vec![drops(Drops::Blackhole, row.is_some())],
            Target::Reject => vec![drops(Drops::Unreachable, row.is_some())],
            Target::Hops(hops) => hops.iter().map(|hop| self.hop(hop, row, &text)).collect(),
        };
        self.route(prefix, "static", (u32::from(route.distance), 0), hops)
    }

    fn hop(&self, hop: &RouteHop, row: Option<&RouteStatus>, prefix: &str) -> Hop {
        let own = |row: &&NextHopStatus| {
            let same_neighbor = hop.via.is_none_or(|via| row.via.as_deref() == Some(via.to_string().as_str()));
            same_neighbor && hop.interface.as_ref().is_none_or(|name| *name == row.port)
        };
        let found = row.and_then(|row| row.next_hops.iter().find(own));
        let steered = || self.paths.iter().any(|path| path.prefix == prefix && path.table == self.table);
        let usable = match &hop.encap {
            Some(_) => steered(),
            None => found.is_some_and(|row| row.state != Health::Down),
        };
        Hop {
            via: hop.via,
            interface: hop.interface.clone().or_else(|| found.map(|row| row.port.clone())),
            active: usable,
            fib: usable,
            srv6: hop.encap.as_ref().map(seg6),
            weight: found.map_or(1, |row| u32::from(row.weight)),
            ..Hop::default()
        }
    }

    /// Returns the route of a SID. A uA that waits for its neighbour is not a route yet.
    fn sid(&self, sid: &Sid) -> Option<Route> {
        let prefix = sid.prefix.trunc();
        let text = prefix.to_string();
        let row = self.sids.iter().find(|row| row.sid == text);
        if row.is_none() && sid.action == Action::Ua {
            return None;
        }
        let port = sid.interface.as_deref().filter(|_| sid.action == Action::Ua);
        let hop = Hop { srv6: Some(self.seg6local(sid)), ..on(Some(port.unwrap_or(SID_DEVICE)), true) };
        let mut route = self.route(IpNet::V6(prefix), "static", (1, 0), vec![hop]);
        if row.is_none() {
            route.state = State::Rejected;
        }
        Some(route)
    }

    fn seg6local(&self, sid: &Sid) -> String {
        let word = sid.action.keyword();
        match sid.action {
            Action::Un => format!("seg6local {word}"),
            Action::Ua => {
                let neighbor = sid.adjacency.map_or("::".to_owned(), |neighbor| neighbor.to_string());
                format!("seg6local {word} nh6 {neighbor}, {}", sid.interface.as_deref().unwrap_or_default())
            }
            _ => format!("seg6local {word} table {}", self.switch.table(sid.vrf.as_deref()).unwrap_or_default()),
        }
    }

    /// Returns the routes of BGP, `ip route` and others: those that srv6d has not added itself.
    fn of_others(&self, known: &BTreeSet<IpNet>) -> Vec<Route> {
        let wanted = |route: &&KernelRoute| {
            route.table.0 == self.table
                && route.prefix.addr().is_ipv6() == self.ipv6
                && ![ROUTE_PROTOCOL, PROTO_KERNEL].contains(&route.protocol)
                && !known.contains(&route.prefix)
        };
        self.kernel.routes.used().filter(wanted).map(|route| self.of_kernel(route)).collect()
    }

    fn of_kernel(&self, route: &KernelRoute) -> Route {
        let (protocol, distance) = protocol(route.protocol);
        // zebra gives its routes a metric of its own in the kernel, which is not shown.
        let metric = if protocol == "kernel" { route.metric } else { 0 };
        let hops = match &route.action {
            KernelAction::Via(hops) => hops.iter().map(|hop| self.kernel_hop(hop)).collect(),
            KernelAction::Sid(sid) => vec![self.on_index(sid.device)],
            KernelAction::Blackhole => vec![drops(Drops::Blackhole, true)],
            KernelAction::Unreachable => vec![drops(Drops::Unreachable, true)],
            KernelAction::Other(_) => vec![on(None, true)],
        };
        self.route(route.prefix, protocol, (distance, metric), hops)
    }

    fn kernel_hop(&self, hop: &KernelHop) -> Hop {
        let list =
            |segments: &[std::net::Ipv6Addr]| segments.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let srv6 = hop.encap.as_ref().map(|encap| behavior(&list(&encap.segments), encap.reduced));
        let via: Option<IpAddr> = hop.via;
        Hop { via, srv6, weight: u32::from(hop.weight), ..self.on_index(Some(hop.device)) }
    }

    fn on_index(&self, index: Option<u32>) -> Hop {
        let device = self.kernel.devices.iter().find(|device| Some(device.ifindex) == index);
        on(device.map(|device| device.name.as_str()), device.is_none_or(|device| device.up))
    }
}

fn on(interface: Option<&str>, up: bool) -> Hop {
    Hop { interface: interface.map(str::to_owned), active: up, fib: up, weight: 1, ..Hop::default() }
}

fn drops(how: Drops, installed: bool) -> Hop {
    Hop { drops: Some(how), ..on(None, installed) }
}

fn seg6(encap: &Encap) -> String {
    let segments: Vec<String> = encap.segments.iter().map(ToString::to_string).collect();
    behavior(&segments.join(","), encap.reduced)
}

fn behavior(segments: &str, reduced: bool) -> String {
    format!("seg6 {segments}{}", if reduced { ", encap behavior H.Encaps.Red" } else { "" })
}

/// Returns FRR's name of a protocol number of the kernel, and FRR's distance.
const fn protocol(number: u8) -> (&'static str, u32) {
    match number {
        186 => ("bgp", 20),
        187 => ("isis", 115),
        188 => ("ospf", 110),
        189 => ("rip", 120),
        190 => ("ripng", 120),
        191 => ("nhrp", 10),
        192 => ("eigrp", 90),
        194 => ("sharp", 150),
        195 => ("pbr", 200),
        196 => ("static", 1),
        197 => ("openfabric", 115),
        _ => ("kernel", 0),
    }
}
