//! Own sources: addresses that only this node may use as a source. A packet with such a source is spoofed if it arrives
//! by an edge or host port (RFC 8754 section 5.1, BCP 38).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::desired::{Desired, Hop, RouteAction, TableId};
use crate::prefix_set::{PrefixSet, bits_v6};
use crate::tables::VrfIndex;

/// The own sources of every VRF: the node's addresses and SIDs, and its blocks without the subnets of hosts and those
/// behind its ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSources {
    sids: PrefixSet,
    /// IPv6 and IPv4 sources, by VRF.
    of_vrfs: Vec<[PrefixSet; 2]>,
}

impl OwnSources {
    pub(crate) fn of(desired: &Desired, vrfs: &BTreeMap<TableId, VrfIndex>) -> Self {
        if !desired.ports.iter().any(|port| port.role.is_outside()) {
            return Self::default();
        }
        let parts = Parts::of(desired);
        let mut of_vrfs = vec![<[PrefixSet; 2]>::default(); vrfs.len()];
        for (&table, &vrf) in vrfs {
            if let Some(place) = of_vrfs.get_mut(usize::from(vrf)) {
                *place = parts.of_table(table);
            }
        }
        Self { sids: parts.sids, of_vrfs }
    }

    /// Returns true if a source is spoofed, in a packet that comes in by an edge or host port and is looked up in
    /// this VRF.
    #[inline]
    pub(crate) fn contains(&self, vrf: VrfIndex, is_v6: bool, source: u128) -> bool {
        let Some([v6, v4]) = self.of_vrfs.get(usize::from(vrf)) else { return false };
        if is_v6 { v6.contains(source) || self.sids.contains(source) } else { v4.contains(source) }
    }

    /// Returns the set as prefixes, IPv6 and IPv4 (in the upper 32 bits).
    pub(crate) fn prefixes(&self, vrf: VrfIndex) -> [Vec<(u128, u8)>; 2] {
        let Some([v6, v4]) = self.of_vrfs.get(usize::from(vrf)) else { return <[_; 2]>::default() };
        [v6.and(&self.sids).prefixes().collect(), v4.prefixes().collect()]
    }
}

/// Returns the spoofed IPv6 sources at edge and host ports of these tables: networks and lengths, by table.
pub fn own_sources(desired: &Desired, tables: &BTreeSet<TableId>) -> BTreeMap<TableId, Vec<(Ipv6Addr, u8)>> {
    let parts = Parts::of(desired);
    let of_table = |table: TableId| {
        let [v6, _] = parts.of_table(table);
        let prefixes = v6.and(&parts.sids);
        prefixes.prefixes().map(|(network, len)| (Ipv6Addr::from_bits(network), len)).collect()
    };
    tables.iter().map(|&table| (table, of_table(table))).collect()
}

/// The parts from which the set of each table is composed.
struct Parts {
    sids: PrefixSet,
    /// Blocks without the subnets of hosts.
    blocks: PrefixSet,
    /// IPv6 subnets behind ports.
    on_link: BTreeMap<TableId, Vec<Ipv6Net>>,
    addresses: BTreeMap<TableId, Vec<IpNet>>,
}

impl Parts {
    fn of(desired: &Desired) -> Self {
        let mut on_link: BTreeMap<TableId, Vec<Ipv6Net>> = BTreeMap::new();
        for route in &desired.routes {
            if let (IpNet::V6(prefix), RouteAction::Via(hops)) = (route.prefix, &route.action)
                && let Some(Hop { via: None, .. }) = hops.first()
            {
                on_link.entry(route.table).or_default().push(prefix);
            }
        }
        let mut addresses: BTreeMap<TableId, Vec<IpNet>> = BTreeMap::new();
        for &(table, address) in desired.local_addresses.iter().filter(|(_, address)| !is_link_local(*address)) {
            addresses.entry(table).or_default().push(IpNet::from(address));
        }
        let blocks = PrefixSet::of(desired.blocks.iter().map(|block| bits_v6(&block.prefix)));
        Self {
            sids: PrefixSet::of(desired.sids.iter().map(|sid| bits_v6(&sid.prefix))),
            blocks: blocks.without(&PrefixSet::of_v6(&desired.host_prefixes)),
            on_link,
            addresses,
        }
    }

    fn of_table(&self, table: TableId) -> [PrefixSet; 2] {
        let on_link = self.on_link.get(&table).map(|prefixes| PrefixSet::of_v6(prefixes)).unwrap_or_default();
        let [v6, v4] = self.addresses.get(&table).map(|own| PrefixSet::both(own)).unwrap_or_default();
        [self.blocks.without(&on_link).and(&v6), v4]
    }
}

/// Returns true for link-local addresses. Other nodes on the link may have the same, and neighbour discovery uses
/// them.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(address) => address.is_link_local(),
    }
}
