//! The devices of the ports in the tables.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_fib::{
    CAPTURED, DELIVERS, DeviceRow, Forwarding, PORT_INDEX_BIT, PortRow, Prefix, SENDS, TAKES_OVER, VlanRow,
};

use crate::XskError;

/// The devices of one generation, by the index of their port in the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramWiring {
    /// Number of the device, for ports whose packets the program may forward.
    pub from: BTreeMap<u16, u16>,
    /// What the program knows of ports that packets may leave through.
    pub to: BTreeMap<u16, DeviceRow>,
    /// Slots of the counters of ports that are VLANs. Those without one are left to the workers.
    pub vlan_slots: BTreeMap<u16, u16>,
    /// Where packets for this node are delivered, if the program may.
    pub kernel: Option<KernelEnd>,
    /// Ports, next hops and prefixes that the program takes over from the workers.
    pub taken_over: TakenOver,
    /// Numbers of devices that somebody captures: what the program forwards from or to them goes into the
    /// [`Tap`](super::Tap), too.
    pub captured: BTreeSet<u16>,
}

impl ProgramWiring {
    /// Whether somebody captures the device of this number.
    pub(super) fn captures(&self, number: u32) -> bool {
        u16::try_from(number).is_ok_and(|number| self.captured.contains(&number))
    }

    /// Returns the rows of the VLANs that packets may come in through, by number of the device and VLAN ID.
    pub(super) fn vlans(&self, wanted: &Forwarding) -> BTreeMap<(u16, u16), VlanRow> {
        let row = |(port, &vid): (&u16, &u16)| {
            let (number, slot) = (*self.from.get(port)?, *self.vlan_slots.get(port)?);
            let port = self.flagged(*port, *wanted.ports.get(port)?);
            Some(((number, vid), VlanRow { port, slot: slot.into(), zero: 0 }))
        };
        wanted.vlans.iter().filter_map(row).collect()
    }

    /// Returns the rows of the untagged ports that packets may come in through, by number of the device.
    pub(super) fn untagged(&self, wanted: &Forwarding) -> BTreeMap<u32, PortRow> {
        let untagged = wanted.ports.iter().filter(|(port, _)| !wanted.vlans.contains_key(port));
        untagged.filter_map(|(port, row)| Some(((*self.from.get(port)?).into(), self.flagged(*port, *row)))).collect()
    }

    /// Returns the row of a port, which has a number, with all of its flags.
    fn flagged(&self, port: u16, row: PortRow) -> PortRow {
        let flag = |applies: bool, flag: u32| if applies { flag } else { 0 };
        let delivers = self.kernel.as_ref().is_some_and(|end| end.from.contains(&port));
        let is_captured = self.from.get(&port).is_some_and(|number| self.captures((*number).into()));
        let flags = if delivers { row.flags } else { row.flags & !DELIVERS };
        let marks = flag(self.taken_over.ports.contains(&port), TAKES_OVER) | flag(is_captured, CAPTURED);
        PortRow { flags: flags | marks | u32::from(port) << PORT_INDEX_BIT, ..row }
    }

    /// Returns what the program knows of ports that packets may leave through, by their index in the tables.
    pub(super) fn devices(&self, wanted: &Forwarding) -> impl Iterator<Item = (u32, DeviceRow)> {
        let row = move |(port, row): (&u16, &DeviceRow)| {
            let flags = SENDS | if self.captures(row.number) { CAPTURED } else { 0 };
            let vlan = match wanted.vlans.get(port) {
                Some(&vid) => Some((vid, *self.vlan_slots.get(port)?)),
                None => None,
            };
            let (vid, slot) = vlan.unwrap_or_default();
            Some((u32::from(*port), DeviceRow { flags, vid, slot, ..*row }))
        };
        self.to.iter().filter_map(row)
    }
}

/// Packets that only the workers have forwarded until now. Of each queue, the program leaves them to the worker until that has
/// finished all it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Number of this hand-over. Queues that have done one of this number have nothing to wait for.
    pub number: u32,
    /// All packets that come in through these ports, by their index in the tables.
    pub ports: BTreeSet<u16>,
    /// All packets to these next hops.
    pub hops: BTreeSet<u32>,
    /// All packets to these prefixes, by table and by whether they are IPv4.
    pub prefixes: BTreeSet<(u16, bool, Prefix)>,
}

/// The kernel's end of srv6d's own veth, and the ports whose packets are delivered there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelEnd {
    /// Index of its interface.
    pub ifindex: u32,
    /// Number of the device that is the packet end of the veth.
    pub number: u16,
    /// Ports that [`put_on_ingress`](super::XdpOffload::put_on_ingress) has been called for, by their index in the tables.
    pub from: BTreeSet<u16>,
}

impl KernelEnd {
    /// Returns the end with this name. The other end is the device with this number. Nothing is delivered there yet.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn of(ifname: &str, number: u16) -> Result<Self, XskError> {
        Ok(Self { ifindex: crate::ifindex(ifname)?, number, from: BTreeSet::new() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::super::tests::{PASS, REDIRECT, forwarding, frame, on_loopback, steering, wiring};
    use super::*;
    use crate::test_run::once;
    use crate::{Capacity, ClaimProgram};

    /// What the program takes over, one thing at a time.
    fn cases() -> [(&'static str, TakenOver); 3] {
        let over = |number| TakenOver { number, ..TakenOver::default() };
        let block = (0xfcbb << 112 | 1 << 80, 48);
        [
            ("a port", TakenOver { ports: [1].into(), ..over(1) }),
            ("a next hop", TakenOver { hops: [8].into(), ..over(2) }),
            ("a prefix", TakenOver { prefixes: [(0, false, block)].into(), ..over(3) }),
        ]
    }

    #[test]
    #[ignore = "needs root"]
    fn a_queue_is_taken_over_once_its_worker_has_finished_and_not_before() {
        let (mut offload, arrival) = on_loopback();
        let claims = ClaimProgram::load(Capacity { ports: 4, queues: 2 }).unwrap();
        offload.take_over_from(&claims).unwrap();
        // The port has number 3, and two queues.
        let (queue, other) = (claims.hand_over(6), claims.hand_over(7));
        other.give(1);
        for (name, taken_over) in cases() {
            let number = taken_over.number;
            let run = |offload: &super::super::XdpOffload| {
                let (verdict, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
                assert_eq!(out == frame(), verdict == PASS, "{name}");
                verdict
            };
            queue.give(5);
            offload.publish(&forwarding(9), &ProgramWiring { taken_over, ..wiring() }).unwrap();
            for (seen, finished) in [(number - 1, 5), (number, 4)] {
                queue.finish(seen, finished);
                assert_eq!((run(&offload), queue.taken()), (PASS, number - 1), "{name}: {finished} of 5 are finished");
            }
            queue.finish(number, 5);
            assert_eq!((run(&offload), queue.taken()), (REDIRECT, number), "{name}");
            queue.give(6);
            assert_eq!(run(&offload), REDIRECT, "{name}: what others send to the worker does not matter any more");
        }
        // What is not new is not looked at.
        let more = TakenOver { number: 4, hops: [7].into(), ports: [2].into(), prefixes: [(1, false, (0, 0))].into() };
        offload.publish(&steering(), &ProgramWiring { taken_over: more, ..wiring() }).unwrap();
        assert_eq!(once(offload.program().unwrap(), &frame(), arrival).unwrap().0, REDIRECT);
        assert_eq!((queue.taken(), other.taken()), (3, 0));
    }
}
