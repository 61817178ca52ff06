//! The counters of the program: those in its present maps, and those of the maps that were replaced.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::{MapData, PerCpuArray};
use srv6d_fib::CountRow;

use super::maps::{self, CountBytes};
use super::{XdpOffload, map_error};
use crate::XskError;

/// A count of packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCount {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes as sent: of frames for a port, of IPv6 packets for a SID, a path or a next hop.
    pub bytes: u64,
}

/// Counts by the number of the counter. Missing ones are zero.
type Counts = BTreeMap<u32, PacketCount>;

/// All counts, by kind.
#[derive(Debug, Default)]
pub(super) struct Counted {
    sids: Counts,
    paths: Counts,
    hops: Counts,
    received: Counts,
    sent: Counts,
    vlan_received: Counts,
    vlan_sent: Counts,
}

impl XdpOffload {
    /// Returns the count of packets forwarded at a SID.
    pub fn sid(&self, number: u32) -> PacketCount {
        one(&self.maps.sid_counts, &self.counted.sids, number)
    }

    /// Returns the count of packets encapsulated towards a path.
    pub fn path(&self, number: u32) -> PacketCount {
        one(&self.maps.path_counts, &self.counted.paths, number)
    }

    /// Returns the count of packets sent to a next hop.
    pub fn hop(&self, number: u32) -> PacketCount {
        one(&self.maps.hop_counts, &self.counted.hops, number)
    }

    /// Returns the count of packets that came in through a port and were forwarded.
    pub fn received(&self, port: u16) -> PacketCount {
        one(&self.maps.rx_counts, &self.counted.received, port.into())
    }

    /// Returns the count of packets sent through a port.
    pub fn sent(&self, port: u16) -> PacketCount {
        one(&self.maps.tx_counts, &self.counted.sent, port.into())
    }

    /// Returns the count of packets of a VLAN that came in and were forwarded.
    pub fn vlan_received(&self, slot: u32) -> PacketCount {
        one(&self.maps.vlan_rx_counts, &self.counted.vlan_received, slot)
    }

    /// Returns the count of packets sent into a VLAN.
    pub fn vlan_sent(&self, slot: u32) -> PacketCount {
        one(&self.maps.vlan_tx_counts, &self.counted.vlan_sent, slot)
    }

    /// Resets the counters of these SIDs, paths and next hops to zero. The tables in force must not lead to them, and
    /// the program must be [settled](Self::settle).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear(&mut self, sids: &BTreeSet<u32>, paths: &BTreeSet<u32>, hops: &BTreeSet<u32>) -> Result<(), XskError> {
        let (maps, counted) = (&mut self.maps, &mut self.counted);
        let all = [
            (&mut maps.sid_counts, &mut counted.sids, sids),
            (&mut maps.path_counts, &mut counted.paths, paths),
            (&mut maps.hop_counts, &mut counted.hops, hops),
        ];
        let cleared = all.into_iter().try_for_each(|(counts, before, numbers)| {
            before.retain(|number, _| !numbers.contains(number));
            numbers.range(..counts.len()).try_for_each(|&number| maps::clear(counts, number))
        });
        cleared.map_err(|why| map_error("clear counters", &why))
    }

    /// Returns all counts so far.
    pub(super) fn counted(&self) -> Counted {
        let (maps, before) = (&self.maps, &self.counted);
        Counted {
            sids: all(&maps.sid_counts, &before.sids),
            paths: all(&maps.path_counts, &before.paths),
            hops: all(&maps.hop_counts, &before.hops),
            received: all(&maps.rx_counts, &before.received),
            sent: all(&maps.tx_counts, &before.sent),
            vlan_received: all(&maps.vlan_rx_counts, &before.vlan_received),
            vlan_sent: all(&maps.vlan_tx_counts, &before.vlan_sent),
        }
    }
}

fn one(counts: &PerCpuArray<MapData, CountBytes>, before: &Counts, number: u32) -> PacketCount {
    let begin = before.get(&number).copied().unwrap_or_default();
    maps::read(counts, number).iter().fold(begin, |sum, cell: &CountRow| PacketCount {
        packets: sum.packets + cell.packets,
        bytes: sum.bytes + cell.bytes,
    })
}

fn all(counts: &PerCpuArray<MapData, CountBytes>, before: &Counts) -> Counts {
    let each = (0..counts.len()).map(|number| (number, one(counts, before, number)));
    each.filter(|(_, count)| *count != PacketCount::default()).collect()
}
