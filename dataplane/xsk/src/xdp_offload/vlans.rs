//! Ports that are VLANs: the program removes the tag of a frame and knows the port by it, and puts in the tag of the port that the
//! packet leaves through.
//!
//! Such a tag stands in the frame. A frame with a tag beside it does not get here: the claim program, which can read such a tag,
//! does not call this program then.

use std::collections::BTreeMap;

use aya::maps::MapError;
use srv6d_fib::{VlanRow, vlan_key};

use super::XdpOffload;
use super::maps::Row as _;

impl XdpOffload {
    /// Changes the rows of VLANs, by number of the device and VLAN ID, to these.
    pub(super) fn write_vlans(&mut self, set: usize, wanted: BTreeMap<(u16, u16), VlanRow>) -> Result<(), MapError> {
        let Some(now) = self.sets.get_mut(set).map(|now| &mut now.vlans) else { return Ok(()) };
        let key = |(device, vid): (u16, u16)| vlan_key(set, device, vid);
        let gone: Vec<(u16, u16)> = now.keys().filter(|vlan| !wanted.contains_key(vlan)).copied().collect();
        for vlan in gone {
            self.maps.vlans.remove(&key(vlan))?;
            now.remove(&vlan);
        }
        for (vlan, row) in wanted {
            if now.get(&vlan) != Some(&row) {
                self.maps.vlans.insert(key(vlan), row.bytes(), 0)?;
                now.insert(vlan, row);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use srv6d_fib::{DeviceRow, Forwarding, GUARDS_SIDS};

    use super::super::tests::{PASS, REDIRECT, forwarding, frame, on_loopback, steering, wiring};
    use super::*;
    use crate::test_run::{once, once_behind};
    use crate::xdp_offload::{PacketCount, ProgramWiring};

    const TAG: [u8; 2] = [0x81, 0];

    /// Returns a frame with a tag of this type and contents in it.
    fn tagged(kind: [u8; 2], tci: u16, mut frame: Vec<u8>) -> Vec<u8> {
        frame.splice(12..12, [kind, tci.to_be_bytes()].concat());
        frame
    }

    /// Makes port 1, which packets come in through, and port 2, which they leave through, VLANs of device 3, or untagged.
    fn vlans(mut rows: Forwarding, came: Option<u16>, leaves: Option<u16>) -> (Forwarding, ProgramWiring) {
        rows.hops.values_mut().for_each(|hop| hop.port = 2);
        rows.vlans = [(1, came), (2, leaves)].into_iter().filter_map(|(port, vid)| Some((port, vid?))).collect();
        let to = [(2, DeviceRow { number: 3, mtu: u32::MAX, ..DeviceRow::default() })].into();
        (rows, ProgramWiring { to, vlan_slots: [(1, 4), (2, 5)].into(), ..wiring() })
    }

    #[test]
    #[ignore = "needs root"]
    fn the_tag_of_one_port_is_removed_and_that_of_the_other_put_in() {
        let (mut offload, arrival) = on_loopback();
        // What an untagged frame becomes by a shift, and by an encapsulation.
        for rows in [forwarding(9), steering()] {
            let (untagged, wired) = vlans(rows.clone(), None, None);
            offload.publish(&untagged, &wired).unwrap();
            let (_, expected) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
            for (came, leaves) in [(Some(7), Some(8)), (Some(7), None), (None, Some(8)), (Some(4094), Some(4094))] {
                let (rows, wired) = vlans(rows.clone(), came, leaves);
                offload.publish(&rows, &wired).unwrap();
                // The priority is no part of the VLAN, and ends here.
                let arrived = came.map_or_else(frame, |vid| tagged(TAG, 0xe000 | vid, frame()));
                let left = leaves.map_or_else(|| expected.clone(), |vid| tagged(TAG, vid, expected.clone()));
                let counts = |offload: &super::XdpOffload| {
                    [offload.received(3), offload.sent(3), offload.vlan_received(4), offload.vlan_sent(5)]
                };
                let before = counts(&offload);
                assert_eq!(once(offload.program().unwrap(), &arrived, arrival).unwrap(), (REDIRECT, left.clone()));
                let grown = before.into_iter().zip(counts(&offload)).map(|(before, now)| PacketCount {
                    packets: now.packets - before.packets,
                    bytes: now.bytes - before.bytes,
                });
                let of = |frame: &[u8], counts: bool| {
                    let bytes = frame.len() as u64;
                    if counts { PacketCount { packets: 1, bytes } } else { PacketCount::default() }
                };
                let expected = [(&arrived, true), (&left, true), (&arrived, came.is_some()), (&left, leaves.is_some())];
                assert_eq!(grown.collect::<Vec<_>>(), expected.map(|(frame, counts)| of(frame, counts)));
            }
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn what_is_the_workers_keeps_its_tag() {
        let (mut offload, arrival) = on_loopback();
        let (rows, wired) = vlans(forwarding(9), Some(7), None);
        offload.publish(&rows, &wired).unwrap();
        let with = |at: usize, byte: u8| {
            let mut frame = frame();
            frame[at] = byte;
            tagged(TAG, 0xa007, frame)
        };
        let mut short = frame();
        short.truncate(58);
        short[19] = 4;
        for (name, frame) in [
            ("another VLAN", tagged(TAG, 8, frame())),
            ("a priority alone", tagged(TAG, 0xe000, frame())),
            ("a tag of a service provider", tagged([0x88, 0xa8], 7, frame())),
            ("a second tag", tagged(TAG, 7, tagged(TAG, 7, frame()))),
            ("no tag", frame()),
            ("another MAC address", with(5, 2)),
            ("ARP", with(13, 6)),
            ("ICMPv6", with(20, 58)),
            ("the last hop", with(21, 1)),
            ("another length", with(19, 21)),
            ("no way to the next uSID", with(45, 3)),
            ("a frame that would have to be padded", tagged(TAG, 7, short)),
        ] {
            assert_eq!(once(offload.program().unwrap(), &frame, arrival).unwrap(), (PASS, frame), "{name}");
        }
        assert_eq!([offload.received(3), offload.vlan_received(4)], [PacketCount::default(); 2]);
        let seven = tagged(TAG, 7, frame());
        assert_eq!(once(offload.program().unwrap(), &seven, arrival).unwrap().0, REDIRECT);
        // The rules of the VLAN hold, and not those of the device.
        let mut guarded = rows.clone();
        guarded.ports.values_mut().for_each(|port| port.flags |= GUARDS_SIDS);
        offload.publish(&guarded, &wired).unwrap();
        assert_eq!(once(offload.program().unwrap(), &seven, arrival).unwrap(), (PASS, seven.clone()));
        guarded.carriers = [(1, [(0xfcbb << 112 | 1 << 80, 48)].into())].into();
        offload.publish(&guarded, &wired).unwrap();
        assert_eq!(once(offload.program().unwrap(), &seven, arrival).unwrap().0, REDIRECT);
        for gone in [Forwarding { vlans: BTreeMap::new(), ..rows.clone() }, Forwarding::default()] {
            offload.publish(&gone, &wired).unwrap();
            assert_eq!(once(offload.program().unwrap(), &seven, arrival).unwrap(), (PASS, seven.clone()));
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn a_tag_is_put_in_only_where_there_is_room_for_it() {
        let (mut offload, arrival) = on_loopback();
        let mut differs = Vec::new();
        for metadata in (32..=212).step_by(4) {
            let behind = [vec![0xee; metadata], frame()].concat();
            let verdicts = [None, Some(8)].map(|leaves| {
                let (rows, wired) = vlans(steering(), None, leaves);
                offload.publish(&rows, &wired).unwrap();
                let (verdict, out) = once_behind(offload.program().unwrap(), metadata, &behind, arrival).ok()?;
                assert_eq!(verdict == PASS, out == behind, "{metadata} bytes of metadata");
                Some(verdict)
            });
            match verdicts {
                [Some(REDIRECT), Some(PASS)] => differs.push(metadata),
                [untagged, with_tag] => assert_eq!(untagged, with_tag, "{metadata} bytes of metadata"),
            }
        }
        if once_behind(offload.program().unwrap(), 200, &[vec![0; 200], frame()].concat(), arrival).is_err() {
            return eprintln!("SKIPPED: this kernel takes no 200 bytes of metadata");
        }
        assert_eq!(differs.len(), 1, "{differs:?}: where there is room for an outer header and not for a tag");
    }
}
