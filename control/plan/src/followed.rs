//! Turns followed routes into SIDs, plain routes and steered prefixes: first those that FRR announces over FPM, then
//! those that the kernel has (`[kernel]`). A route that cannot be followed stays with the kernel, and is listed with
//! the reason.
//!
//! The file takes precedence, then FPM, then the kernel: a prefix that one of them has is not followed from the next
//! ones.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use srv6d_kernel_routes::{KernelAction, KernelEncap, KernelHop, KernelRoute, KernelSid, KernelSidAction, RouteKey};
use srv6d_srv6::desired::{
    Behavior, Csid, DscpMode, DtFamily, Flavors, Hop, LocalSid, PortId, Route, RouteAction, TableId,
};

use super::Context;
use super::environment::is_link_local;
use super::node::or;
use super::owners::{Owner, Owners};
use super::rules::{Chosen, LOCAL};
use srv6d_offer::{Offer, OfferOutcome, OfferedPath, OfferedSteer, OutcomeState};

/// Name of the kernel as a source of steered prefixes.
pub const KERNEL: &str = "kernel";
/// Name of FRR as a source of steered prefixes, over FPM.
pub const FPM: &str = "fpm";
/// `RTPROT_KERNEL`: zebra's protocol for every route of the kernel that zebra did not make.
const KERNEL_PROTOCOL: u8 = 2;

/// `proto kernel`: prefixes of addresses.
const MADE_BY_KERNEL: u8 = 2;
/// Protocols of FRR's daemons, from BGP to SR-TE (`zebra/rt_netlink.h`).
const FRR: RangeInclusive<u8> = 186..=198;

/// A route that stays with the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfollowed {
    /// The source of the route: `kernel` or `fpm`.
    pub source: &'static str,
    /// Table.
    pub table: TableId,
    /// Destination prefix.
    pub prefix: IpNet,
    /// The reason.
    pub why: String,
}

impl Unfollowed {
    /// Returns the route that leaves its packets to the kernel.
    pub(super) const fn left_to_the_kernel(&self) -> Route {
        Route { table: self.table, prefix: self.prefix, action: RouteAction::Kernel }
    }
}

/// The results of reading followed routes.
#[derive(Default)]
pub(super) struct Followed {
    pub(super) sids: Vec<LocalSid>,
    pub(super) routes: Vec<Route>,
    /// Routes with `encap seg6`, by source.
    pub(super) offers: Vec<Offer>,
    pub(super) unfollowed: Vec<Unfollowed>,
}

/// Reads the routes that FPM announces and those of the kernel. The result is empty without either.
pub(super) fn follow(context: &Context<'_>, owners: &mut Owners) -> Followed {
    let mut followed = Followed::default();
    let announced = announced(context);
    if let Some(fpm) = &context.config.fpm {
        let reader = Reader::new(context, FPM, "frr", or(&fpm.reduce, false));
        followed.read(&reader, announced.iter().copied().map(Chosen::from), owners);
    }
    if let Some(kernel) = &context.config.kernel {
        let reader = Reader::new(context, KERNEL, "ip route", or(&kernel.reduce, false));
        // FRR gives its routes to the kernel, too. These are followed already.
        let twice: HashSet<(TableId, IpNet)> = announced.iter().map(|route| (route.table, route.prefix)).collect();
        let routes = context.rules.choose(&context.environment.routes, |table| context.follows(table));
        let routes = routes.filter(|route| !is_of_another_table(context, route));
        followed.read(&reader, routes.filter(|route| !twice.contains(&(route.table, route.prefix))), owners);
        followed.unfollowed.extend(context.rules.unfollowed.iter().cloned());
    }
    followed
}

impl Followed {
    fn read<'r>(&mut self, reader: &Reader<'_>, routes: impl Iterator<Item = Chosen<'r>>, owners: &mut Owners) {
        let source = reader.source;
        let mut steers = Vec::new();
        for Chosen { table, prefix, protocol, action } in routes {
            // If the configuration has an entry for the prefix, that entry is in force and this one has no effect.
            let leave = || Route { table, prefix, action: RouteAction::Kernel };
            let Some(action) = action else {
                let _ = self.route(leave(), owners);
                continue;
            };
            let taken = match reader.read_action(RouteKey { table, prefix }, protocol, action) {
                Ok(FollowedAs::Steer(steer)) => unwritten(steer, owners).map(|steer| steers.push(steer)),
                Ok(FollowedAs::Sid(sid)) => self.sid(sid, owners),
                Ok(FollowedAs::Route(action)) => self.route(Route { table, prefix, action }, owners),
                Err(why) => {
                    let _ = self.route(leave(), owners);
                    Err(why)
                }
            };
            self.unfollowed.extend(taken.err().map(|why| Unfollowed { source, table, prefix, why }));
        }
        self.offers.push(Offer { source: source.to_owned(), steers, ..Offer::default() });
    }

    fn sid(&mut self, sid: LocalSid, owners: &mut Owners) -> Result<(), String> {
        match owners.record_followed((TableId::MAIN, IpNet::V6(sid.prefix)), Owner::Sid) {
            Ok(()) => self.sids.push(sid),
            // The table is followed, and rules lead to it as well. SIDs belong to the node, whatever table their
            // routes are in.
            Err(_) if self.sids.contains(&sid) => {}
            Err(owner) => return Err(taken(owner)),
        }
        Ok(())
    }

    fn route(&mut self, route: Route, owners: &mut Owners) -> Result<(), String> {
        let hops = if let RouteAction::Via(hops) = &route.action { hops.clone() } else { Vec::new() };
        owners.record_followed((route.table, route.prefix), Owner::Route(hops)).map_err(taken)?;
        self.routes.push(route);
        Ok(())
    }
}

/// Returns the steered prefix if it has no other owner. Its paths are resolved with those of other sources, when all
/// prefixes are known.
fn unwritten(steer: OfferedSteer, owners: &Owners) -> Result<OfferedSteer, String> {
    match owners.written((TableId(steer.table), steer.prefix)) {
        Some(owner) => Err(taken(owner)),
        None => Ok(steer),
    }
}

fn taken(owner: &str) -> String {
    format!("the configuration has a {owner} for this prefix")
}

/// Returns true if the steered prefixes of this source are followed routes, and not a controller's.
pub(super) fn is_followed(source: &str) -> bool {
    [KERNEL, FPM].contains(&source)
}

/// Returns the route with `encap seg6` that an outcome refuses or leaves pending.
pub(super) fn refused(outcome: &OfferOutcome) -> Option<Unfollowed> {
    let source = [KERNEL, FPM].into_iter().find(|source| outcome.source == *source)?;
    let (OutcomeState::Refused(why) | OutcomeState::Pending(why)) = &outcome.state else { return None };
    Some(Unfollowed { source, table: outcome.table, prefix: outcome.prefix, why: why.clone() })
}

/// Returns the routes that FRR announces, without the node's own addresses and connected prefixes, which are known
/// already. If the kernel is followed, routes that zebra only found in the kernel are left out too, because the
/// kernel gives more details.
fn announced<'e>(context: &Context<'e>) -> Vec<&'e KernelRoute> {
    if context.config.fpm.is_none() {
        return Vec::new();
    }
    let devices = context.environment.devices.iter();
    let own: HashSet<IpAddr> = devices.flat_map(|device| &device.addresses).map(IpNet::addr).collect();
    let connected: HashSet<(TableId, IpNet)> =
        context.ports.connected.iter().map(|connected| (connected.table, connected.prefix)).collect();
    let read_from_the_kernel = |table| context.config.kernel.as_ref().is_some_and(|kernel| kernel.follows(table));
    let to_elsewhere = |route: &&KernelRoute| {
        let host = route.prefix.prefix_len() == route.prefix.max_prefix_len();
        !(is_link_local(route.prefix.addr())
            || route.protocol == KERNEL_PROTOCOL && read_from_the_kernel(route.table)
            || host && own.contains(&route.prefix.addr())
            || connected.contains(&(route.table, route.prefix)))
    };
    context.environment.announced.iter().filter(to_elsewhere).collect()
}

/// Returns true if the outcome is of a route with `encap seg6` that is in force.
pub(super) fn is_in_force(outcome: &OfferOutcome) -> bool {
    is_followed(&outcome.source) && outcome.state == OutcomeState::Programmed
}

/// Returns true for the prefix of a port in a VRF, if the kernel has no device for the VRF: then the route is in the
/// wrong table.
fn is_of_another_table(context: &Context<'_>, route: &Chosen<'_>) -> bool {
    let connected = || context.ports.connected_at(route.prefix);
    let is_elsewhere = |table| table != route.table && !context.rules.lead_to(table);
    route.protocol == MADE_BY_KERNEL && connected().count() > 0 && connected().all(|own| is_elsewhere(own.table))
}

fn port_numbers(context: &Context<'_>) -> HashMap<u32, PortId> {
    let ports = context.ports.written.iter().enumerate();
    ports.filter_map(|(index, port)| Some((port.layer3?.ifindex, super::ports::port_id(index)?))).collect()
}

/// The entry that a followed route becomes in srv6d.
enum FollowedAs {
    Sid(LocalSid),
    Route(RouteAction),
    Steer(OfferedSteer),
}

struct Reader<'a> {
    context: &'a Context<'a>,
    source: &'static str,
    /// Name of the source for people.
    peer: &'static str,
    /// Ports by kernel index of the device.
    ports: HashMap<u32, PortId>,
    /// Devices whose link is down.
    down: HashSet<u32>,
    reduce: bool,
}

impl<'a> Reader<'a> {
    fn new(context: &'a Context<'a>, source: &'static str, peer: &'static str, reduce: bool) -> Self {
        let down =
            context.environment.devices.iter().filter(|device| !device.up).map(|device| device.ifindex).collect();
        Self { context, source, peer, ports: port_numbers(context), down, reduce }
    }

    fn read_action(&self, key: RouteKey, protocol: u8, action: &KernelAction) -> Result<FollowedAs, String> {
        match action {
            KernelAction::Blackhole => Ok(FollowedAs::Route(RouteAction::Blackhole)),
            KernelAction::Unreachable => Ok(FollowedAs::Route(RouteAction::Unreachable)),
            KernelAction::Other(why) => Err(why.clone()),
            KernelAction::Sid(sid) => self.sid(key.prefix, protocol, sid).map(FollowedAs::Sid),
            KernelAction::Via(hops) => self.via(key, hops),
        }
    }

    fn via(&self, key: RouteKey, hops: &[KernelHop]) -> Result<FollowedAs, String> {
        let encapsulated = hops.iter().filter(|hop| hop.encap.is_some()).count();
        let is_alive = |hop: &&KernelHop| hop.weight > 0 && !self.down.contains(&hop.device);
        let alive = hops.iter().filter(|hop| hops.len() == 1 || is_alive(hop));
        if encapsulated == 0 {
            let resolved: Vec<Hop> = alive.map(|hop| self.hop(hop)).collect::<Result<_, _>>()?;
            return match resolved.as_slice() {
                [] => Err("all of its links are down".to_owned()),
                [_, _, ..] if resolved.iter().any(|hop| hop.via.is_none()) => {
                    Err("it has several next hops, and not all of them are neighbours".to_owned())
                }
                _ => Ok(FollowedAs::Route(RouteAction::Via(resolved))),
            };
        }
        if encapsulated < hops.len() {
            return Err("some of its next hops encapsulate, others do not".to_owned());
        }
        let encaps = alive.filter_map(|hop| Some((hop.weight, hop.encap.as_ref()?)));
        self.steer(key, &encaps.collect::<Vec<_>>()).map(FollowedAs::Steer)
    }

    fn hop(&self, hop: &KernelHop) -> Result<Hop, String> {
        Ok(Hop { port: self.port(hop.device)?, via: hop.via, weight: hop.weight })
    }

    fn port(&self, device: u32) -> Result<PortId, String> {
        self.ports.get(&device).copied().ok_or_else(|| {
            let devices = &self.context.environment.devices;
            let known = devices.iter().find(|known| known.ifindex == device);
            let name = known.map_or_else(|| format!("device {device}"), |known| known.name.clone());
            format!("it leaves by {name}, which is no [[port]]")
        })
    }

    /// Reads a route with `encap seg6`. The kernel, too, sends the encapsulated packet by a look-up of its own, and
    /// not to the next hop of the route.
    fn steer(&self, key: RouteKey, encaps: &[(u16, &KernelEncap)]) -> Result<OfferedSteer, String> {
        let (_, first) = encaps.first().ok_or("all of its links are down")?;
        // SONiC's FRR names an address of any interface instead of the configured one.
        let source = first.source.filter(|_| self.source != FPM || self.context.config.node.source.is_none());
        if encaps.iter().any(|(_, encap)| encap.reduced != first.reduced) {
            return Err("some of its next hops have mode encap, others encap.red".to_owned());
        }
        if encaps.iter().any(|(_, encap)| encap.source != first.source) {
            return Err("its next hops have different sources".to_owned());
        }
        let table = if key.table == TableId::MAIN { String::new() } else { format!("@{}", key.table.0) };
        let path = |(number, (weight, encap)): (usize, &(u16, &KernelEncap))| OfferedPath {
            name: if encaps.len() == 1 {
                format!("{}{table}", key.prefix)
            } else {
                format!("{}{table}#{}", key.prefix, number + 1)
            },
            segments: encap.segments.clone(),
            weight: *weight,
        };
        Ok(OfferedSteer {
            peer: self.peer.to_owned(),
            prefix: key.prefix,
            table: key.table.0,
            full_srh: !first.reduced && !self.reduce,
            source,
            via: None,
            port: None,
            paths: encaps.iter().enumerate().map(path).collect(),
            last_good: Vec::new(),
            // Routes of this node itself cannot be taken away by another machine.
            is_in_force: true,
        })
    }

    fn sid(&self, prefix: IpNet, protocol: u8, sid: &KernelSid) -> Result<LocalSid, String> {
        use KernelSidAction as A;
        let written = prefix;
        let IpNet::V6(prefix) = prefix else { return Err("a SID is an IPv6 prefix".to_owned()) };
        let csid =
            sid.csid.map(|csid| if FRR.contains(&protocol) { whole_function(written, sid.action, csid) } else { csid });
        let csid = csid.map(|(lblen, nflen)| Csid { lblen, nflen });
        let behavior = match sid.action {
            A::End => Behavior::End { csid, dscp: DscpMode::Pipe(0) },
            A::EndX if sid.via.is_none_or(|via| via.is_unspecified()) => {
                return Err("End.X without a neighbour (nh6)".to_owned());
            }
            A::EndX => Behavior::EndX { csid, via: vec![self.adjacency(sid)?], backup: Vec::new() },
            A::EndDx6 => Behavior::EndDx { family: DtFamily::V6, via: vec![self.adjacency(sid)?] },
            A::EndDx4 => Behavior::EndDx { family: DtFamily::V4, via: vec![self.adjacency(sid)?] },
            A::EndDt6(table) => end_dt(DtFamily::V6, table),
            A::EndDt4(table) => end_dt(DtFamily::V4, table),
            A::EndDt46(table) => end_dt(DtFamily::V46, table),
        };
        Ok(LocalSid { prefix: prefix.trunc(), behavior, flavors: Flavors { psp: sid.psp, usp: sid.usp, usd: sid.usd } })
    }

    fn adjacency(&self, sid: &KernelSid) -> Result<Hop, String> {
        let via = sid.via.filter(|via| !via.is_unspecified());
        if let Some(device) = sid.device.filter(|device| *device != 0) {
            return Ok(Hop { port: self.port(device)?, via, weight: 1 });
        }
        let via = via.ok_or("it names neither a neighbour nor a device")?;
        let port = self.connected_port(via).ok_or_else(|| format!("{via} is in the subnet of no [[port]]"))?;
        Ok(Hop { port, via: Some(via), weight: 1 })
    }

    fn connected_port(&self, address: IpAddr) -> Option<PortId> {
        self.context.ports.connected_around(address).last().map(|connected| connected.port)
    }
}

/// Returns the lengths of a NEXT-CSID shift as FRR means them. FRR releases from 10.4 on give 16 bits for every uA. A
/// uA that is reached by node and function consumes both, as its prefix shows. Otherwise the function would stay at
/// the front of the carrier.
pub fn whole_function(prefix: IpNet, action: KernelSidAction, (block, shift): (u8, u8)) -> (u8, u8) {
    let matched = prefix.prefix_len().saturating_sub(block);
    let longer = action == KernelSidAction::EndX && matched > shift && prefix.prefix_len() < prefix.max_prefix_len();
    (block, if longer { matched } else { shift })
}

fn end_dt(family: DtFamily, table: TableId) -> Behavior {
    let table = if table == LOCAL { TableId::MAIN } else { table };
    Behavior::EndDt { family, table, dscp: DscpMode::Pipe(0) }
}
