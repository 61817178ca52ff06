//! Longest-prefix match without an index: every entry is compared.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_srv6::desired::{Desired, Hop, LocalSid, PortId, RouteAction, Steer, TableId, UnknownSid};

/// Result of a look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Match<'d> {
    /// An address of the node itself.
    Local,
    Sid(&'d LocalSid),
    Steer(&'d Steer),
    Route(&'d RouteAction),
    /// The address is in a block but belongs to no SID.
    Unknown(UnknownSid),
}

/// Returns the longest entry that contains `address`. Between entries of equal length the order is: own address, SID,
/// steered prefix, route, block.
pub(crate) fn look_up(desired: &Desired, table: TableId, address: IpAddr) -> Option<Match<'_>> {
    let main = table == TableId::MAIN;
    let local =
        desired.local_addresses.iter().filter(|(in_table, own)| *in_table == table && !is_sid(desired, table, *own));
    let of_port = || desired.policy.vrf_sids && desired.ports.iter().any(|port| port.table == table);
    let sids = desired.sids.iter().filter(|_| main || of_port());
    let steers = desired.steers.iter().filter(|steer| steer.table == table);
    let routes = desired.routes.iter().filter(|route| route.table == table);
    let blocks = desired.blocks.iter().filter(|_| main);

    let all = local
        .map(|(_, own)| (IpNet::from(*own), Match::Local))
        .chain(sids.map(|sid| (sid.prefix.into(), Match::Sid(sid))))
        .chain(steers.map(|steer| (steer.prefix, Match::Steer(steer))))
        .chain(routes.map(|route| (route.prefix, Match::Route(&route.action))))
        .chain(blocks.filter_map(|block| Some((block.prefix.into(), Match::Unknown(block.unknown?)))));

    let mut best: Option<(u8, Match<'_>)> = None;
    for (prefix, found) in all.filter(|(prefix, _)| prefix.contains(&address)) {
        if best.is_none_or(|(len, _)| prefix.prefix_len() > len) {
            best = Some((prefix.prefix_len(), found));
        }
    }
    best.map(|(_, found)| found)
}

/// Returns whether an own address is also a SID. Then the SID processes its packets and gives to the kernel what is not
/// for the SID.
fn is_sid(desired: &Desired, table: TableId, own: IpAddr) -> bool {
    table == TableId::MAIN && desired.sids.iter().any(|sid| IpAddr::V6(sid.prefix.network()) == own)
}

/// Returns whether the address of the SID is also an address of the node.
pub(crate) fn is_local_address(desired: &Desired, sid: &LocalSid) -> bool {
    desired.local_addresses.contains(&(TableId::MAIN, IpAddr::V6(sid.prefix.network())))
}

/// Returns whether the address lies in a locator block.
pub(crate) fn in_block(desired: &Desired, address: Ipv6Addr) -> bool {
    desired.blocks.iter().any(|block| block.prefix.contains(&address))
}

/// Next hops that a packet can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UsableHops {
    /// Resolved next hops; any of them may be used.
    Ready(Vec<(PortId, IpAddr)>),
    /// No next hop is resolved; the packet waits for one of these.
    Wait(Vec<(PortId, IpAddr)>),
    /// The port of every next hop is down.
    Down,
}

/// Selects the next hops that can be used now. If a next hop has no address, `destination` is the neighbour.
pub(crate) fn usable_hops(desired: &Desired, hops: &[Hop], destination: IpAddr) -> UsableHops {
    let all: Vec<(PortId, IpAddr)> = hops.iter().map(|hop| (hop.port, hop.via.unwrap_or(destination))).collect();
    let is_up = |port: PortId| desired.ports.get(usize::from(port.0)).is_some_and(|port| port.up);
    let up: Vec<_> = all.into_iter().filter(|&(port, _)| is_up(port)).collect();
    let ready: Vec<_> = up.iter().copied().filter(|hop| desired.neighbors.contains_key(hop)).collect();
    match (ready.is_empty(), up.is_empty()) {
        (false, _) => UsableHops::Ready(ready),
        (true, false) => UsableHops::Wait(up),
        (true, true) => UsableHops::Down,
    }
}
