//! Sources that are admitted to SIDs and through ports, sources that are refused because they are this node's own, and
//! carriers that are let in.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::MapError;
use srv6d_fib::{Forwarding, KeyRow, OF_DOMAIN, TABLES, key_owner, of_carriers, of_port, of_table};

use super::{ProgramWiring, XdpOffload, maps};

/// Prefixes by network and length.
type Prefixes = BTreeSet<(u128, u8)>;

impl XdpOffload {
    pub(super) fn write_sources(
        &mut self,
        set: usize,
        wanted: &Forwarding,
        wiring: &ProgramWiring,
    ) -> Result<(), MapError> {
        let wanted = by_owner(set, wanted, wiring);
        let Some(written) = self.sets.get_mut(set) else { return Ok(()) };
        let (map, now) = (&mut self.maps.sources, &mut written.sources);
        let none = Prefixes::new();
        for owner in now.keys().chain(wanted.keys()).copied().collect::<BTreeSet<u32>>() {
            let (has, wants) = (now.entry(owner).or_default(), wanted.get(&owner).unwrap_or(&none));
            for prefix in has.clone().difference(wants) {
                map.remove(&maps::key(KeyRow::new(owner, *prefix)))?;
                has.remove(prefix);
            }
            for prefix in wants {
                if !has.contains(prefix) {
                    map.insert(&maps::key(KeyRow::new(owner, *prefix)), 1, 0)?;
                    has.insert(*prefix);
                }
            }
        }
        now.retain(|_, prefixes| !prefixes.is_empty());
        Ok(())
    }
}

/// Returns the prefixes by the value that stands in front of the address in a key.
fn by_owner(set: usize, wanted: &Forwarding, wiring: &ProgramWiring) -> BTreeMap<u32, Prefixes> {
    let domain = (key_owner(set, OF_DOMAIN, false), wanted.domain.clone());
    let comes_in = |port: &u16| wiring.from.contains_key(port).then_some(*port);
    let of_ports = wanted.sources.iter().filter_map(|(port, sources)| Some((of_port(comes_in(port)?), sources)));
    let of_tables = wanted.own_sources.iter().filter(|&(&table, _)| u32::from(table) < TABLES);
    let of_tables = of_tables.map(|(&table, sources)| (of_table(table), sources));
    let families = of_ports.chain(of_tables).flat_map(|(owner, [v6, v4])| {
        let key = |is_v4| key_owner(set, owner, is_v4);
        [(key(false), v6.clone()), (key(true), v4.clone())]
    });
    let carriers = wanted
        .carriers
        .iter()
        .filter_map(|(port, carriers)| Some((key_owner(set, of_carriers(comes_in(port)?), false), carriers.clone())));
    families.chain(carriers).chain([domain]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use srv6d_fib::{
        CHECKS_SOURCES, DECAPSULATES_V4, DECAPSULATES_V6, FORWARDS, GUARDS_SIDS, SidKind, SidRow, TARGET_INDEX_BITS,
        TARGET_ROUTE, TARGET_SID,
    };

    use super::super::tests::{PASS, REDIRECT, forwarding, on_loopback, wiring};
    use super::*;
    use crate::test_run::once;

    /// Table that packets behind an outer header are looked up in.
    const INSIDE: u16 = 4;
    const SID: (u128, u8) = (0xfcbb << 112 | 0xfe << 80, 48);
    /// Sources of the outer and of the inner header, and a prefix of each family that contains nothing of these tests.
    const OUTER: (u128, u8) = (0x3001 << 112, 16);
    const INNER: (u128, u8) = (0x3002 << 112, 16);
    const INNER_V4: (u128, u8) = (0x0a00_0002 << 96, 32);
    const OTHER: (u128, u8) = (0x3003 << 112, 16);

    /// Returns a frame to the SID with a packet to `fcbb:0:2::` inside.
    fn v6_inside() -> Vec<u8> {
        let inner = v6(17, INNER.0, 0xfcbb << 112 | 2 << 80, &[7; 20]);
        ethernet(&v6(41, OUTER.0, SID.0, &inner))
    }

    /// Returns a frame to the SID with a packet from 10.0.0.2 to 10.0.0.1 inside.
    fn v4_inside() -> Vec<u8> {
        let head = [0x45, 0, 0, 52, 0, 0, 0, 0, 64, 17, 0x66, 0xb7, 10, 0, 0, 2, 10, 0, 0, 1];
        ethernet(&v6(4, OUTER.0, SID.0, &[head.as_slice(), &[7; 32]].concat()))
    }

    fn v6(next_header: u8, from: u128, to: u128, payload: &[u8]) -> Vec<u8> {
        let len = u8::try_from(payload.len()).unwrap();
        let head = [0x60, 0, 0, 7, 0, len, next_header, 64];
        [head.as_slice(), &from.to_be_bytes(), &to.to_be_bytes(), payload].concat()
    }

    fn ethernet(packet: &[u8]) -> Vec<u8> {
        [[2, 0, 0, 0, 0, 1].as_slice(), &[2, 0, 0, 0, 0, 2], &[0x86, 0xdd], packet].concat()
    }

    /// Returns tables of a port that guards SIDs and lets in packets to one that decapsulates.
    fn decapsulating() -> Forwarding {
        let target = |of: u32, index: u32| of << TARGET_INDEX_BITS | index;
        let sid = SidRow {
            kind: SidKind::Decapsulate,
            flags: DECAPSULATES_V6 | DECAPSULATES_V4,
            table: INSIDE,
            ..SidRow::default()
        };
        let mut rows = forwarding(9);
        rows.ports.values_mut().for_each(|port| port.flags = FORWARDS | GUARDS_SIDS);
        rows.sids = [(2, sid)].into();
        let way = target(TARGET_ROUTE, 9);
        rows.tables = [
            (0, [[(SID, target(TARGET_SID, 2))].into(), BTreeMap::new()]),
            (INSIDE, [[((0xfcbb << 112, 16), way)].into(), [((0x0a00_0001 << 96, 32), way)].into()]),
        ]
        .into();
        rows.carriers = [(1, [SID].into())].into();
        rows
    }

    #[test]
    #[ignore = "needs root"]
    fn what_is_inside_of_a_packet_from_outside_obeys_the_rules_for_packets_from_outside() {
        let (mut offload, arrival) = on_loopback();
        let with = |change: &dyn Fn(&mut Forwarding)| {
            let mut rows = decapsulating();
            change(&mut rows);
            rows
        };
        let flags = |flags: u32| with(&|rows| rows.ports.values_mut().for_each(|port| port.flags = flags));
        let own = |table: u16, v6: (u128, u8), v4: (u128, u8)| {
            with(&|rows| drop(rows.own_sources.insert(table, [[v6].into(), [v4].into()])))
        };
        let allowed = |guards: u32, v6: &[(u128, u8)], v4: (u128, u8)| {
            with(&|rows| {
                rows.ports.values_mut().for_each(|port| port.flags = FORWARDS | CHECKS_SOURCES | guards);
                rows.sources = [(1, [v6.iter().copied().collect(), [v4].into()])].into();
            })
        };
        let block = |prefix: (u128, u8)| with(&|rows| rows.sid_space = [prefix].into());
        let carriers = |of: &[(u128, u8)]| {
            with(&|rows| {
                rows.sid_space = [(0xfcbb << 112, 32)].into();
                rows.carriers = [(1, of.iter().copied().collect())].into();
            })
        };
        let nothing_v4 = (0x0b00_0000 << 96, 8);
        // The verdicts about IPv6 and about IPv4 inside.
        let cases = [
            ("nothing is listed", decapsulating(), [REDIRECT; 2]),
            ("the SID may not be used", with(&|rows| rows.carriers.clear()), [PASS; 2]),
            ("SIDs are for all", flags(FORWARDS), [REDIRECT; 2]),
            ("the sources inside are this node's", own(INSIDE, INNER, INNER_V4), [PASS; 2]),
            ("they are this node's in another table", own(0, INNER, INNER_V4), [REDIRECT; 2]),
            ("other sources are this node's", own(INSIDE, OTHER, nothing_v4), [REDIRECT; 2]),
            ("the sources are allowed", allowed(GUARDS_SIDS, &[OUTER, INNER], INNER_V4), [REDIRECT; 2]),
            ("only the outer source is", allowed(GUARDS_SIDS, &[OUTER], nothing_v4), [PASS; 2]),
            ("only the outer source has to be, in the domain", allowed(0, &[OUTER], nothing_v4), [REDIRECT; 2]),
            ("only the inner sources are", allowed(GUARDS_SIDS, &[INNER], INNER_V4), [PASS; 2]),
            ("the destination is in a block", block((0xfcbb << 112, 32)), [PASS, REDIRECT]),
            ("it is not", block((0xfcbc << 112, 32)), [REDIRECT; 2]),
            ("it is one that the port may send to", carriers(&[SID, (0xfcbb << 112 | 2 << 80, 48)]), [REDIRECT; 2]),
            ("it is another one", carriers(&[SID, (0xfcbb << 112 | 3 << 80, 48)]), [PASS, REDIRECT]),
        ];
        for (name, rows, verdicts) in cases {
            offload.publish(&rows, &wiring()).unwrap();
            for (frame, verdict) in [v6_inside(), v4_inside()].into_iter().zip(verdicts) {
                let (done, out) = once(offload.program().unwrap(), &frame, arrival).unwrap();
                assert_eq!((done, out == frame), (verdict, verdict == PASS), "{name}");
            }
        }
        offload.publish(&decapsulating(), &wiring()).unwrap();
        for next_header in [43, 44, 51] {
            let inner = v6(next_header, INNER.0, 0xfcbb << 112 | 2 << 80, &[0; 24]);
            let frame = ethernet(&v6(41, OUTER.0, SID.0, &inner));
            assert_eq!(once(offload.program().unwrap(), &frame, arrival).unwrap(), (PASS, frame), "{next_header}");
        }
    }
}
