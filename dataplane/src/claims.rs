//! The claims: packets that the XDP program of a port hands to srv6d. All others stay with the kernel.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_srv6::LOCATOR_BITS;
use srv6d_srv6::desired::{Desired, Path, RouteAction, TableId, UnknownSid};

/// Rules by destination: address, prefix length, and whether srv6d gets the packet (true) or the kernel (false).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) v6: Vec<(Ipv6Addr, u8, bool)>,
    pub(crate) v4: Vec<(Ipv4Addr, u8, bool)>,
    /// Addresses of this node whose Packet Too Big messages go to a worker first, because they may be about srv6d's
    /// outer packets.
    pub(crate) outer_sources: BTreeSet<Ipv6Addr>,
}

/// Returns the claims of a device whose ports look packets up in `tables`.
pub(crate) fn claims(desired: &Desired, tables: &BTreeSet<TableId>) -> Claims {
    let mut claims = Claims::default();
    let mut seen = BTreeSet::new();
    let mut add = |prefix: IpNet, ours: bool| {
        if seen.insert(prefix) {
            match prefix {
                IpNet::V6(prefix) => claims.v6.push((prefix.network(), prefix.prefix_len(), ours)),
                IpNet::V4(prefix) => claims.v4.push((prefix.network(), prefix.prefix_len(), ours)),
            }
        }
    };
    let main = tables.contains(&TableId::MAIN);
    for &(table, address) in desired.local_addresses.iter().filter(|(table, _)| tables.contains(table)) {
        let is_sid =
            table == TableId::MAIN && desired.sids.iter().any(|sid| IpAddr::V6(sid.prefix.network()) == address);
        if !is_sid {
            add(IpNet::from(address), false);
        }
    }
    if main || desired.policy.vrf_sids {
        desired.sids.iter().for_each(|sid| add(sid.prefix.into(), true));
    }
    for steer in desired.steers.iter().filter(|steer| tables.contains(&steer.table)) {
        add(steer.prefix, true);
    }
    for route in desired.routes.iter().filter(|route| tables.contains(&route.table)) {
        add(route.prefix, route.action != RouteAction::Kernel);
    }
    if main {
        for block in &desired.blocks {
            if let Some(unknown) = block.unknown {
                add(block.prefix.into(), unknown != UnknownSid::Punt);
            }
        }
        claims.outer_sources = outer_sources(desired);
    }
    claims
}

/// Returns the part of the SID space that the claims do not contain: blocks, SIDs for ports whose tables do not have
/// them, and locators of steered paths. The node's own addresses and the subnets of hosts are not in it.
pub(crate) fn sid_space(desired: &Desired) -> Vec<(Ipv6Addr, u8, bool)> {
    let of = |prefix: &Ipv6Net, is_sid_space: bool| (prefix.network(), prefix.prefix_len(), is_sid_space);
    let blocks = desired.blocks.iter().map(|block| of(&block.prefix, true));
    let hosts = desired.host_prefixes.iter().map(|prefix| of(prefix, false));
    let own = desired.local_addresses.iter().filter_map(|(_, address)| match address {
        IpAddr::V6(address) => Some((*address, 128, false)),
        IpAddr::V4(_) => None,
    });
    let sids = desired.sids.iter().map(|sid| of(&sid.prefix, true));
    let locators = locators_of(desired, desired.steers.iter().flat_map(|steer| &steer.paths));
    blocks.chain(hosts).chain(own).chain(sids).chain(locators.into_iter().map(|prefix| of(&prefix, true))).collect()
}

/// Returns the locators of all segments of `paths` that lie in no block.
pub(crate) fn locators_of<'d>(desired: &Desired, paths: impl Iterator<Item = &'d Path>) -> BTreeSet<Ipv6Net> {
    let segments = paths.flat_map(|path| path.segments.addresses());
    let is_in_block = |segment: &Ipv6Addr| desired.blocks.iter().any(|block| block.prefix.contains(segment));
    let outside = segments.filter(|segment| !segment.is_unspecified() && !is_in_block(segment));
    outside.filter_map(|&segment| Some(Ipv6Net::new(segment, LOCATOR_BITS).ok()?.trunc())).collect()
}

/// Returns the outer sources of all paths, as far as they are addresses of this node. Any other source is claimed as a
/// SID or route, or does not belong to this node.
fn outer_sources(desired: &Desired) -> BTreeSet<Ipv6Addr> {
    sources_of(desired, desired.steers.iter().flat_map(|steer| &steer.paths)).collect()
}

/// Returns the outer sources of `paths`, as far as they are addresses of this node.
pub(crate) fn sources_of<'d>(
    desired: &'d Desired,
    paths: impl Iterator<Item = &'d Path>,
) -> impl Iterator<Item = Ipv6Addr> {
    let sources = paths.flat_map(|path| match path.source {
        Some(source) => vec![source],
        None => desired.ports.iter().filter_map(|port| port.source).chain(desired.tunnel.source).collect(),
    });
    sources.filter(|source| desired.local_addresses.contains(&(TableId::MAIN, IpAddr::V6(*source))))
}
