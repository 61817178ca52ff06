//! What the program does with packets, in numbers: those of ports, counters, next hops and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One generation. In a table, a prefix is its network (host bits zero) and its length: the longest decides; where nothing matches
/// the worker decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// By the port's number: the ports whose packets it may forward.
    pub ports: BTreeMap<u16, InPort>,
    /// Prefixes of the SID space, besides the SIDs of the node: not every port may send there.
    pub sid_space: BTreeSet<(u128, u8)>,
    /// Sources that may use SIDs, as IPv6 prefixes. `None`: all. What others send there is left to the worker.
    pub domain: Option<BTreeSet<(u128, u8)>>,
    /// By the port's number: sources that may send through it. A port that is not here takes packets of all; what others
    /// send is left to the worker.
    pub sources: BTreeMap<u16, Sources>,
    /// By number. What a shift leads to is in the first one, 0.
    pub tables: BTreeMap<u16, Table>,
    /// By number. One that is not here is left to the worker.
    pub paths: BTreeMap<u32, Path>,
    /// By number.
    pub hops: BTreeMap<u32, Hop>,
}

impl Forwarding {
    /// Prefixes of sources, of both families and of all owners.
    pub fn source_prefixes(&self) -> usize {
        let of_ports: usize = self.sources.values().map(|sources| sources.v6.len() + sources.v4.len()).sum();
        of_ports + self.domain.as_ref().map_or(0, BTreeSet::len)
    }

    /// Prefixes of both families.
    pub fn prefixes(&self) -> usize {
        self.tables.values().map(|table| table.v6.len() + table.v4.len()).sum()
    }
}

/// Prefixes of sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// IPv6.
    pub v6: BTreeSet<(u128, u8)>,
    /// IPv4, in the upper 32 bits.
    pub v4: BTreeSet<(u128, u8)>,
}

/// What the ports of a table look up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// By IPv6 prefix.
    pub v6: BTreeMap<(u128, u8), Way>,
    /// By IPv4 prefix, in the upper 32 bits: packets that are encapsulated.
    pub v4: BTreeMap<(u128, u8), Way>,
}

/// A port that packets come in through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPort {
    /// The address that frames have to be sent to.
    pub mac: [u8; 6],
    /// Bytes of the longest frame.
    pub longest: u16,
    /// Number of its table.
    pub table: u16,
    /// What is sent to a SID block is left to the worker, which says who may.
    pub guards_sids: bool,
}

/// What a prefix leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Whatever is not one of the others.
    Worker,
    /// NEXT-CSID behind a 32-bit block.
    Shift {
        /// Bits consumed by one shift: 16 or 32.
        by: u8,
        /// Number of the SID's counter.
        sid: u32,
        /// uA: the next hops. uN: the new destination is looked up.
        via: Option<Group>,
    },
    /// Next hops.
    Route(Group),
    /// H.Encaps.Red in one segment.
    Encapsulate {
        /// Paths by number, each as often as its share of the flows.
        paths: Group,
        /// The RoCEv2 queue pair is part of the flow.
        with_qp: bool,
    },
}

/// Next hops by number, each as often as its share of the flows. A flow's hash picks one.
pub type Group = Arc<[u32]>;

/// A path of one segment: an outer header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Outer source and destination.
    pub addresses: [u8; 32],
    /// Outer hop limit.
    pub hop_limit: u8,
    /// Bits of the inner traffic class that the outer one has, and bits it has besides.
    pub class: (u8, u8),
    /// Longest outer packet.
    pub mtu: u32,
    /// The next hops.
    pub via: Group,
}

/// A next hop that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Destination and source.
    pub addresses: [u8; 12],
    /// Longest IPv6 packet.
    pub mtu: u32,
    /// Number of the port.
    pub port: u16,
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Bytes: of frames at ports, of IPv6 packets at SIDs, paths and next hops, as they leave.
    pub bytes: u64,
}
