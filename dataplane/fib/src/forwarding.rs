//! What the XDP program forwards by: the rows of the tables that it needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{GroupRow, HopRow, NodeRow, PathRow, PatternRow, PortRow, SidRow, SrhRow};

/// Network (host bits zero, an IPv4 one in the upper 32 bits) and length.
pub type Prefix = (u128, u8);

/// IPv6 and IPv4 prefixes.
pub type Prefixes = [BTreeSet<Prefix>; 2];

/// Targets by IPv6 and by IPv4 prefix.
pub type PrefixTable = [BTreeMap<Prefix, u32>; 2];

/// One generation of the rows that the XDP program forwards by: an extract of the tables. Packets that need a row that
/// is not here are left to the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Settings of the node, which hold for every packet.
    pub node: NodeRow,
    /// MAC address of the kernel's end of srv6d's own veth, and of the packet end.
    pub to_kernel: [u8; 12],
    /// Ports whose packets the program may forward or deliver.
    pub ports: BTreeMap<u16, PortRow>,
    /// VLAN IDs of the ports that have one, also of those that packets only leave through.
    pub vlans: BTreeMap<u16, u16>,
    /// Prefixes of the SID space, in addition to the SIDs of the node. Not every port may send to them.
    pub sid_space: BTreeSet<Prefix>,
    /// Sources that may use the SIDs of the node, where not all may.
    pub domain: BTreeSet<Prefix>,
    /// Sources that may send through a port, where not all may.
    pub sources: BTreeMap<u16, Prefixes>,
    /// Destinations in SID space that may enter through a port, where others may not.
    pub carriers: BTreeMap<u16, BTreeSet<Prefix>>,
    /// Sources of this node by table: no sender outside the domain has one.
    pub own_sources: BTreeMap<u16, Prefixes>,
    /// Tables by number. The longest prefix decides.
    pub tables: BTreeMap<u16, PrefixTable>,
    /// SIDs of this node, by index.
    pub sids: BTreeMap<u32, SidRow>,
    /// Groups of paths, by the index of the steered prefix.
    pub steers: BTreeMap<u32, GroupRow>,
    /// List of the members of `steers`.
    pub steer_members: BTreeMap<u32, u32>,
    /// Patterns of `steers`, by index.
    pub steer_patterns: BTreeMap<u32, PatternRow>,
    /// Paths, by index.
    pub paths: BTreeMap<u32, PathRow>,
    /// SRHs of the paths that have an SRH of at most two segments, by the index of the path.
    pub srhs: BTreeMap<u32, SrhRow>,
    /// Groups of next hops, by index.
    pub groups: BTreeMap<u32, GroupRow>,
    /// List of the members of `groups`.
    pub group_members: BTreeMap<u32, u32>,
    /// Patterns of `groups`, by index.
    pub group_patterns: BTreeMap<u32, PatternRow>,
    /// Next hops, by index.
    pub hops: BTreeMap<u32, HopRow>,
}

impl Forwarding {
    /// Returns the number of prefixes of sources and of carriers, of both families and of all owners.
    pub fn source_prefixes(&self) -> usize {
        let listed = self.sources.values().chain(self.own_sources.values()).flatten();
        listed.chain(self.carriers.values()).map(BTreeSet::len).sum::<usize>() + self.domain.len()
    }

    /// Returns the number of prefixes of both families in all tables.
    pub fn prefixes(&self) -> usize {
        self.tables.values().flatten().map(BTreeMap::len).sum()
    }
}
