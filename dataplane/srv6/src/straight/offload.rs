//! The straight way of shifts and encapsulations, for a program that forwards them in front of the workers.
//!
//! It is an extract like the rest of `Straight`, by the same rules, as data for somebody else: that program knows uN and
//! uA with 32-bit blocks and paths of one segment, and hands everything else to the worker.

mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_wire::eth;

use super::{PlainHop, PlainPath, PlainPort, PlainSid, Shift};
use crate::model::{PortId, Role};
use crate::tables::{MAIN, PortEntry, Tables, Target};
pub use scope::MOST;
use scope::Meanings;
pub(crate) use scope::{Met, Scope, is_met};

/// Tables there may be. The ports of others are the workers'.
pub const TABLES: u16 = 256;

/// What may be forwarded in front of the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Ports whose packets may be.
    pub ports: BTreeMap<PortId, OffloadedPort>,
    /// Ports that were asked for, and why their packets may not.
    pub refused: BTreeMap<PortId, &'static str>,
    /// Prefixes of the SID space, besides the SIDs of this node. Not every port may send there.
    pub sid_space: BTreeSet<(u128, u8)>,
    /// Sources that may use the SIDs of this node. `None`: all.
    pub domain: Option<BTreeSet<(u128, u8)>>,
    /// Sources that may send through a port, IPv6 and IPv4 (in the upper 32 bits). Ports that are not here ask nothing.
    pub sources: BTreeMap<PortId, [BTreeSet<(u128, u8)>; 2]>,
    /// By their number: the main table, 0, and those of the ports.
    pub tables: BTreeMap<u16, OffloadedTable>,
    /// There are more than [`MOST`] prefixes: those in steered ones are left out.
    pub too_many: bool,
    /// Paths of one segment, by the slot of their counter. All others are the worker's.
    pub paths: BTreeMap<u32, OffloadedPath>,
    /// Next hops that are ready, by the slot of their counter.
    pub hops: BTreeMap<u32, OffloadedHop>,
}

/// Prefixes of a table, by network and length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadedTable {
    /// All IPv6 prefixes in steered ones; in the main table also those in the block of a SID that shifts, or around it:
    /// what a carrier can meet.
    pub v6: BTreeMap<(u128, u8), OffloadedWay>,
    /// All IPv4 prefixes in steered ones, in the upper 32 bits.
    pub v4: BTreeMap<(u128, u8), OffloadedWay>,
}

/// A port that asks nothing of a packet but its MAC address, its length, and perhaps that it is not sent to a SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedPort {
    /// Address of the port.
    pub mac: [u8; 6],
    /// Longest frame, in bytes.
    pub longest: u16,
    /// Number of its table.
    pub table: u16,
    /// Edge or host port: who may send to a SID, the worker says.
    pub guards_sids: bool,
}

/// What a prefix leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadedWay {
    /// What only the worker does.
    Worker,
    /// NEXT-CSID.
    Shift {
        /// Bits consumed by one shift: 16 or 32.
        by: u8,
        /// Slot of the SID's counter.
        sid: u32,
        /// uA: the next hops, as buckets of slots. uN: the new destination is looked up.
        via: Option<Arc<[u32]>>,
    },
    /// Next hops, as buckets of slots.
    Route(Arc<[u32]>),
    /// Steered.
    Encapsulate {
        /// Paths, as buckets of slots.
        paths: Arc<[u32]>,
        /// The `RoCEv2` queue pair is part of the flow.
        with_qp: bool,
    },
}

/// H.Encaps.Red in one segment: what the outer header has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadedPath {
    /// Source and destination.
    pub addresses: [u8; 32],
    /// Hop limit.
    pub hop_limit: u8,
    /// Bits of the inner traffic class that the outer one has, and bits it has besides.
    pub class: (u8, u8),
    /// Longest outer packet that routers on the path carry.
    pub mtu: u32,
    /// Next hops, as buckets of slots.
    pub via: Arc<[u32]>,
}

/// A next hop that untagged packets can be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedHop {
    /// Destination and source.
    pub addresses: [u8; 12],
    /// Longest IPv6 packet.
    pub mtu: u32,
    /// Where it leaves: index of the device's port.
    pub device: u16,
}

impl Offload {
    /// `met` are the prefixes that matter.
    pub(crate) fn of(tables: &Tables, met: &Met, ports: &BTreeSet<PortId>) -> Self {
        let mut offload = Self::default();
        for &id in ports {
            let Some(port) = tables.port(id) else { continue };
            match why_not(port) {
                Some(reason) => drop(offload.refused.insert(id, reason)),
                None => drop(offload.ports.insert(id, OffloadedPort::of(port))),
            }
        }
        if offload.ports.is_empty() {
            return offload;
        }
        let mut extract = Extract { tables, groups: BTreeMap::new(), paths: BTreeMap::new() };
        let used: BTreeSet<u16> = offload.ports.values().map(|port| port.table).chain([MAIN]).collect();
        for (&table, [v6, v4]) in met.tables.iter().filter(|(table, _)| used.contains(table)) {
            offload.tables.insert(table, OffloadedTable { v6: extract.ways(v6), v4: extract.ways(v4) });
        }
        let domain = &tables.policy.domain_sources;
        offload.domain = (!domain.is_empty()).then(|| domain.iter().copied().map(IpNet::V6).map(bits).collect());
        offload.sources = offload.ports.keys().filter_map(|&id| Some((id, sources(tables.port(id)?)?))).collect();
        offload.sid_space = tables.sid_space.prefixes().collect();
        offload.too_many = met.too_many;
        offload.hops = extract.hops();
        offload.paths = extract.paths.into_iter().filter_map(|(slot, path)| Some((slot, path?))).collect();
        offload
    }
}

/// What the worker alone looks at.
fn why_not(port: &PortEntry) -> Option<&'static str> {
    let reasons = [
        (port.vlan.is_some(), "frames of a VLAN are the worker's"),
        (port.role == Role::Kernel, "what applications of this node send is the worker's"),
        (port.vrf >= TABLES, "the XDP program has no room for so many tables"),
        (port.fill_checksum, "checksums of what comes in are for the worker to write"),
        (PlainPort::of(port).longest == 0, "its MAC address is a group's"),
    ];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}

/// Who may send through a port, where not everyone may.
fn sources(port: &PortEntry) -> Option<[BTreeSet<(u128, u8)>; 2]> {
    let (v6, v4): (Vec<IpNet>, Vec<IpNet>) =
        port.allowed_sources.iter().partition(|prefix| matches!(prefix, IpNet::V6(_)));
    let prefixes = |of: Vec<IpNet>| of.into_iter().map(bits).collect();
    (!port.allowed_sources.is_empty()).then(|| [prefixes(v6), prefixes(v4)])
}

/// The network, an IPv4 one in the upper 32 bits, and the length.
fn bits(prefix: IpNet) -> (u128, u8) {
    let network = match prefix {
        IpNet::V6(prefix) => prefix.network().to_bits(),
        IpNet::V4(prefix) => u128::from(prefix.network().to_bits()) << 96,
    };
    (network, prefix.prefix_len())
}

impl OffloadedPort {
    fn of(port: &PortEntry) -> Self {
        let longest = port.mtu + eth::LEN;
        let guards_sids = PlainPort::of(port).guards_sids;
        Self { mac: port.mac.0, longest: u16::try_from(longest).unwrap_or(u16::MAX), table: port.vrf, guards_sids }
    }
}

/// Next hops and paths by their slots: a slot stays with its own from generation to generation.
struct Extract<'t> {
    tables: &'t Tables,
    /// By their index.
    groups: BTreeMap<u32, Arc<[u32]>>,
    /// `None`: the worker's.
    paths: BTreeMap<u32, Option<OffloadedPath>>,
}

impl Extract<'_> {
    fn ways(&mut self, meanings: &Meanings) -> BTreeMap<(u128, u8), OffloadedWay> {
        meanings.iter().map(|(&prefix, &value)| (prefix, self.way(Target::decode(value)))).collect()
    }

    fn way(&mut self, target: Target) -> OffloadedWay {
        let way = match target {
            Target::Sid(sid) => self.shift(sid),
            Target::Steer(steer) => self.encapsulate(steer),
            Target::Route(group) | Target::Neighbor(group) => self.slots(group).map(OffloadedWay::Route),
            _ => None,
        };
        way.unwrap_or(OffloadedWay::Worker)
    }

    fn shift(&mut self, sid: u32) -> Option<OffloadedWay> {
        match *self.tables.straight.sids.get(sid as usize)? {
            PlainSid::Shift(Shift { slot, by, group }) => {
                let via = match group {
                    Some(group) => Some(self.slots(group)?),
                    None => None,
                };
                Some(OffloadedWay::Shift { by: u8::try_from(by).ok()?, sid: slot, via })
            }
            PlainSid::Decapsulate(_) | PlainSid::Walk => None,
        }
    }

    fn encapsulate(&mut self, steer: u32) -> Option<OffloadedWay> {
        let buckets = self.tables.steers.get(steer as usize)?;
        let mut known = BTreeSet::new();
        for &path in buckets.iter().filter(|&&path| known.insert(path)) {
            let slot = self.tables.paths.get(path as usize)?.slot;
            let plain = self.path(path);
            // Of two that share a counter, and would be one here, neither is.
            let same = |known: &mut Option<OffloadedPath>| known.take_if(|known| Some(&*known) != plain.as_ref());
            self.paths.entry(slot).and_modify(|known| drop(same(known))).or_insert_with(|| plain.clone());
        }
        let slots: Arc<[u32]> =
            buckets.iter().filter_map(|&path| self.tables.paths.get(path as usize)).map(|path| path.slot).collect();
        let is_plain = slots.iter().any(|slot| self.paths.get(slot).is_some_and(Option::is_some));
        is_plain.then_some(OffloadedWay::Encapsulate { paths: slots, with_qp: self.tables.tunnel.hash_qp })
    }

    fn path(&mut self, path: u32) -> Option<OffloadedPath> {
        let straight = &self.tables.straight;
        let &PlainPath { addresses, first, group, mtu, way, .. } = straight.paths.get(path as usize)?;
        let is_plain = way == super::Way::WithoutSrh;
        Some(OffloadedPath {
            addresses,
            hop_limit: first as u8,
            class: straight.class.bits(),
            mtu: mtu.into(),
            via: is_plain.then(|| self.slots(group)).flatten()?,
        })
    }

    fn slots(&mut self, group: u32) -> Option<Arc<[u32]>> {
        if let Some(known) = self.groups.get(&group) {
            return Some(Arc::clone(known));
        }
        let slot = |&member: &u32| self.tables.adjacencies.get(member as usize).map(|adjacency| adjacency.slot);
        let slots: Option<Arc<[u32]>> = self.tables.groups.get(group as usize)?.iter().map(slot).collect();
        self.groups.insert(group, Arc::clone(slots.as_ref()?));
        slots
    }

    /// The next hops that can be sent to. What goes to any other, the worker holds or refuses.
    fn hops(&self) -> BTreeMap<u32, OffloadedHop> {
        let used: BTreeSet<u32> = self.groups.values().flat_map(|slots| slots.iter().copied()).collect();
        let hops = self.tables.adjacencies.iter().filter(|adjacency| used.contains(&adjacency.slot));
        let is_fabric = |device: u16| self.tables.port(PortId(device)).is_some_and(|port| port.role != Role::Kernel);
        hops.map(PlainHop::of)
            .filter(|hop| hop.mtu > 0 && is_fabric(hop.device))
            .map(|hop| (hop.slot, OffloadedHop { addresses: hop.ethernet, mtu: hop.mtu, device: hop.device }))
            .collect()
    }
}
