//! The straight way of shifts, for a program that forwards them in front of the workers.
//!
//! It is an extract like the rest of `Straight`, by the same rules, as data for somebody else: that
//! program knows uN and uA with 32-bit blocks, and hands everything else to the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use srv6d_wire::eth;

use super::{PlainHop, PlainPort, PlainSid, Shift};
use crate::lpm::{Key, Value};
use crate::model::{PortId, Role};
use crate::tables::{MAIN, PortEntry, Tables, Target};

/// What may be forwarded in front of the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Ports whose packets may be.
    pub ports: BTreeMap<PortId, OffloadedPort>,
    /// Ports that were asked for, and why their packets may not.
    pub refused: BTreeMap<PortId, &'static str>,
    /// All prefixes of the main table that lie in the block of a SID that shifts, or around it: what a carrier can meet.
    /// By network and length.
    pub ways: BTreeMap<(u128, u8), OffloadedWay>,
    /// Next hops that are ready, by the slot of their counter.
    pub hops: BTreeMap<u32, OffloadedHop>,
}

/// A port that asks nothing of a packet but its MAC address and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedPort {
    /// Address of the port.
    pub mac: [u8; 6],
    /// Longest frame, in bytes.
    pub longest: u16,
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
    /// `entries` are the prefixes of the main table that matter, the first of equal ones in force.
    pub(crate) fn of(tables: &Tables, entries: &[(Key, Value)], ports: &BTreeSet<PortId>) -> Self {
        let mut offload = Self::default();
        for &id in ports {
            let Some(port) = tables.port(id) else { continue };
            match why_not(tables, port) {
                Some(reason) => drop(offload.refused.insert(id, reason)),
                None => drop(offload.ports.insert(id, OffloadedPort::of(port))),
            }
        }
        if offload.ports.is_empty() {
            return offload;
        }
        let mut groups = Groups { tables, known: BTreeMap::new() };
        for (key, value) in entries {
            let way = || groups.way(Target::decode(*value)).unwrap_or(OffloadedWay::Worker);
            offload.ways.entry((key.bits, key.len)).or_insert_with(way);
        }
        offload.hops = groups.hops();
        offload
    }
}

/// What the worker alone looks at.
fn why_not(tables: &Tables, port: &PortEntry) -> Option<&'static str> {
    let reasons = [
        (port.vlan.is_some(), "frames of a VLAN are the worker's"),
        (port.role != Role::Fabric, "what may enter through an edge or a host port is for the worker to check"),
        (port.vrf != MAIN, "SIDs are in the main table, and the port is in another one"),
        (!port.allowed_sources.is_empty(), "allowed_sources of the port are for the worker to check"),
        (!tables.policy.domain_sources.is_empty(), "domain_sources are for the worker to check"),
        (port.fill_checksum, "checksums of what comes in are for the worker to write"),
        (PlainPort::of(port).longest == 0, "its MAC address is a group's"),
    ];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}

impl OffloadedPort {
    fn of(port: &PortEntry) -> Self {
        let longest = port.mtu + eth::LEN;
        Self { mac: port.mac.0, longest: u16::try_from(longest).unwrap_or(u16::MAX) }
    }
}

/// Groups of next hops by their slots: a slot stays with its next hop from generation to generation.
struct Groups<'t> {
    tables: &'t Tables,
    known: BTreeMap<u32, Arc<[u32]>>,
}

impl Groups<'_> {
    fn way(&mut self, target: Target) -> Option<OffloadedWay> {
        match target {
            Target::Sid(index) => match PlainSid::of(self.tables, self.tables.sids.get(index as usize)?) {
                PlainSid::Shift(Shift { slot, by, group }) => {
                    let via = match group {
                        Some(group) => Some(self.slots(group)?),
                        None => None,
                    };
                    Some(OffloadedWay::Shift { by: u8::try_from(by).ok()?, sid: slot, via })
                }
                PlainSid::Decapsulate(_) | PlainSid::Walk => None,
            },
            Target::Route(group) | Target::Neighbor(group) => Some(OffloadedWay::Route(self.slots(group)?)),
            _ => None,
        }
    }

    fn slots(&mut self, group: u32) -> Option<Arc<[u32]>> {
        if let Some(known) = self.known.get(&group) {
            return Some(Arc::clone(known));
        }
        let slot = |&member: &u32| self.tables.adjacencies.get(member as usize).map(|adjacency| adjacency.slot);
        let slots: Option<Arc<[u32]>> = self.tables.groups.get(group as usize)?.iter().map(slot).collect();
        self.known.insert(group, Arc::clone(slots.as_ref()?));
        slots
    }

    /// The next hops that can be sent to. What goes to any other, the worker holds or refuses.
    fn hops(&self) -> BTreeMap<u32, OffloadedHop> {
        let used: BTreeSet<u32> = self.known.values().flat_map(|slots| slots.iter().copied()).collect();
        let hops = self.tables.adjacencies.iter().filter(|adjacency| used.contains(&adjacency.slot));
        let is_fabric = |device: u16| self.tables.port(PortId(device)).is_some_and(|port| port.role != Role::Kernel);
        hops.map(PlainHop::of)
            .filter(|hop| hop.mtu > 0 && is_fabric(hop.device))
            .map(|hop| (hop.slot, OffloadedHop { addresses: hop.ethernet, mtu: hop.mtu, device: hop.device }))
            .collect()
    }
}
