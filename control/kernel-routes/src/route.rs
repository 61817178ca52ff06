//! Reads `RTM_NEWROUTE` and `RTM_DELROUTE`.

use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_addresses::TableId;

use crate::attribute::{Attributes, INET, INET6, address, byte_at, u16_at, u32_at, unspecified};
use crate::encap;
use crate::entry::{KernelAction, KernelHop};
use crate::next_hop::single;
use crate::rtnetlink::route::{
    DESTINATION, ENCAP, ENCAP_TYPE, GATEWAY, MULTIPATH, NEXT_HOP_ID, OIF, PRIORITY, TABLE, VIA,
};

/// Length of `struct rtmsg` in bytes.
const HEAD: usize = 12;
/// Types of routes: `RTN_*`.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
const ANYCAST: u8 = 4;
const MULTICAST: u8 = 5;
const BLACKHOLE: u8 = 6;
const UNREACHABLE: u8 = 7;
const PROHIBIT: u8 = 8;
const THROW: u8 = 9;
/// `RTM_F_CLONED`: a copy that the kernel keeps for a single destination.
const CLONED: u32 = 0x200;
/// Flags of a message: `NLM_F_REPLACE`, `NLM_F_APPEND`.
const REPLACE: u16 = 0x100;
const APPEND: u16 = 0x800;
/// Flags of a leg that carries no traffic: `RTNH_F_DEAD`, `RTNH_F_LINKDOWN`.
const DEAD: u8 = 1 | 16;
/// Length of `struct rtnexthop` in bytes: length, flags, weight minus one, device.
const LEG_HEAD: usize = 8;

/// Table and prefix of a route. The kernel uses one of the routes with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Table of the routes.
    pub table: TableId,
    /// Prefix of the destinations.
    pub prefix: IpNet,
}

/// A change of a route: it was added, replaced or deleted, or lost a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMessage {
    /// Whether the message is `RTM_NEWROUTE`.
    pub(crate) is_new: bool,
    /// `NLM_F_REPLACE`: the route replaces the one with the same key and metric.
    pub(crate) replaces: bool,
    /// `NLM_F_APPEND`: the route comes after the one with the same key and metric, or adds a leg to it.
    pub(crate) appends: bool,
    /// Table and prefix of the route.
    pub key: RouteKey,
    /// Metric; the route with the smallest one is used.
    pub metric: u32,
    /// Origin of the route (`proto`).
    pub protocol: u8,
    /// Why the route applies to some packets only, in words, if it does. The traffic class distinguishes such routes.
    pub(crate) only_for: Option<&'static str>,
    pub(crate) tos: u8,
    /// Number of the next-hop object (`nhid`).
    pub next_hop: Option<u32>,
    /// Action that the attributes describe; the attributes of a route with `nhid` may describe none. `None`: the route
    /// is one for the node itself (local, broadcast, anycast, multicast).
    pub action: Option<KernelAction>,
}

/// Reads a route. Returns `None` for routes that are not tracked: multicast, link-local prefixes (without meaning
/// unless a device is known), and copies that the kernel made for itself.
pub(crate) fn read(body: &[u8], is_new: bool, flags: u16) -> Option<RouteMessage> {
    let &[family, length, source_length, tos, table, protocol, _, kind] = body.first_chunk::<8>()?;
    let is_copy = u32_at(body, 8)? & CLONED != 0;
    if is_copy || !matches!(family, INET | INET6) {
        return None;
    }
    let mut found = RouteAttributes::default();
    for (kind, value) in Attributes(body.get(HEAD..)?) {
        found.take(kind, value);
    }
    let prefix = IpNet::new(found.destination.or_else(|| unspecified(family))?, length).ok()?.trunc();
    let is_of_the_link = match prefix.addr() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if prefix.addr().is_multicast() || is_of_the_link {
        return None;
    }
    let only_for = if source_length > 0 {
        Some("it depends on the source address")
    } else if tos > 0 {
        Some("it depends on the traffic class")
    } else {
        None
    };
    let action = match kind {
        LOCAL | BROADCAST | ANYCAST | MULTICAST => None,
        kind => Some(only_for.map_or_else(|| found.action(kind), |why| KernelAction::Other(why.to_owned()))),
    };
    Some(RouteMessage {
        is_new,
        replaces: flags & REPLACE != 0,
        appends: flags & APPEND != 0,
        key: RouteKey { table: TableId(found.table.unwrap_or_else(|| u32::from(table))), prefix },
        metric: found.priority,
        protocol,
        only_for,
        tos,
        next_hop: found.next_hop.filter(|_| only_for.is_none()),
        action,
    })
}

/// Attributes of a route, or of one of its legs.
#[derive(Default)]
struct RouteAttributes<'a> {
    table: Option<u32>,
    destination: Option<IpAddr>,
    priority: u32,
    via: Option<IpAddr>,
    device: Option<u32>,
    next_hop: Option<u32>,
    encap_type: u16,
    encap: &'a [u8],
    legs: &'a [u8],
}

impl<'a> RouteAttributes<'a> {
    fn take(&mut self, kind: u16, value: &'a [u8]) {
        match kind {
            TABLE => self.table = u32_at(value, 0),
            DESTINATION => self.destination = address(value),
            PRIORITY => self.priority = u32_at(value, 0).unwrap_or_default(),
            GATEWAY => self.via = address(value),
            // `struct rtvia`: the family, then an address of that family.
            VIA => self.via = value.get(2..).and_then(address),
            OIF => self.device = u32_at(value, 0),
            NEXT_HOP_ID => self.next_hop = u32_at(value, 0),
            ENCAP_TYPE => self.encap_type = u16_at(value, 0).unwrap_or_default(),
            ENCAP => self.encap = value,
            MULTIPATH => self.legs = value,
            _ => {}
        }
    }

    fn action(&self, kind: u8) -> KernelAction {
        let why = match kind {
            BLACKHOLE => return KernelAction::Blackhole,
            UNREACHABLE => return KernelAction::Unreachable,
            UNICAST if self.legs.is_empty() => return self.single(1),
            UNICAST => {
                let legs: Result<Vec<KernelHop>, String> = Legs(self.legs).collect();
                let sorted = |mut legs: Vec<KernelHop>| {
                    // For IPv6, the order of legs in an event differs from that in a dump.
                    legs.sort_unstable();
                    KernelAction::Via(legs)
                };
                return legs.map_or_else(KernelAction::Other, sorted);
            }
            PROHIBIT => "a prohibit route: the kernel answers".to_owned(),
            THROW => "a throw route: the next rule decides".to_owned(),
            other => format!("a route of type {other}"),
        };
        KernelAction::Other(why)
    }

    fn single(&self, weight: u16) -> KernelAction {
        match (encap::encap(self.encap_type, self.encap), self.device, self.next_hop) {
            // The kernel names no device for a SID if `seg6local` names another one.
            (Ok(Some(encap::Encap::Seg6Local(sid))), ..) => KernelAction::Sid(sid),
            (encap, Some(device), _) => single(device, self.via, encap, weight),
            (_, None, Some(id)) => KernelAction::Other(format!("its next-hop object {id} is not known")),
            (_, None, None) => KernelAction::Other("it names no device".to_owned()),
        }
    }
}

/// Iterates over the legs of a multipath route.
struct Legs<'a>(&'a [u8]);

impl Iterator for Legs<'_> {
    type Item = Result<KernelHop, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let (flags, weight, device) = (byte_at(self.0, 2)?, byte_at(self.0, 3)?, u32_at(self.0, 4)?);
        let weight = if flags & DEAD == 0 { u16::from(weight) + 1 } else { 0 };
        let mut found = RouteAttributes { device: Some(device), ..RouteAttributes::default() };
        for (kind, value) in Attributes(self.0.get(LEG_HEAD..length)?) {
            found.take(kind, value);
        }
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(match found.single(weight) {
            KernelAction::Via(hops) => hops.into_iter().next().ok_or_else(String::new),
            KernelAction::Other(why) => Err(why),
            _ => Err("one of its legs is a SID".to_owned()),
        })
    }
}
