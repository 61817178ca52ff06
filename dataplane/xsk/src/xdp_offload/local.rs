//! The tc program (`bpf/tc.h`), which encapsulates what applications of this node send before it is cut into packets.
//!
//! It is attached by bpf_link (tcx) behind all other programs of the interface, and touches none of them.

use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};

use super::{XdpOffload, in_short};
use crate::XskError;
use crate::program::{chain, load, os_code, program_fix};

/// Name of the program's function in `bpf/tc.h`.
const PROGRAM: &str = "srv6d_local";

/// The interface whose egress has the program.
pub(super) struct Local {
    port: u16,
    ifindex: u32,
    // Holds the program on the interface.
    _link: SchedClassifierLink,
}

impl XdpOffload {
    /// Puts the program at the egress of an interface. What it forwards counts as received by this port, and is looked up
    /// in the table of this port.
    ///
    /// # Errors
    /// The kernel refuses; it must be Linux 6.6 or newer.
    pub fn put_on_local(&mut self, port: u16, ifname: &str) -> Result<(), XskError> {
        let ifindex = crate::ifindex(ifname)?;
        self.maps.port_of.insert(ifindex, u32::from(port), 0).map_err(|why| self.port_error(ifname, &why))?;
        let place = (TcAttachType::Egress, LinkOrder::last());
        let attached = self.attach(PROGRAM, ifname, place).map_err(|why| error(ifname, &why));
        if attached.is_err() {
            let _ = self.maps.port_of.remove(&ifindex); // it has just been inserted
        }
        self.local = Some(Local { port, ifindex, _link: attached? });
        Ok(())
    }

    pub(super) fn attach(
        &mut self,
        name: &str,
        ifname: &str,
        (place, order): (TcAttachType, LinkOrder),
    ) -> Result<SchedClassifierLink, ProgramError> {
        let program = self.ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
        let program: &mut SchedClassifier = program.try_into()?;
        if program.fd().is_err() {
            load(|| program.load())?;
        }
        let link = program.attach_with_options(ifname, place, TcAttachOptions::TcxOrder(order))?;
        program.take_link(link)
    }

    /// Takes the program off the interface.
    pub fn take_off_local(&mut self) {
        if let Some(local) = self.local.take() {
            // An entry that has vanished with its interface need not be removed.
            let _ = self.maps.port_of.remove(&local.ifindex);
        }
    }

    /// Returns the port whose packets the tc program forwards.
    pub fn local(&self) -> Option<u16> {
        self.local.as_ref().map(|local| local.port)
    }

    /// Returns the tc program, once it was put on an interface, for [`once_local`](crate::test_run::once_local).
    pub fn local_program(&self) -> Option<&SchedClassifier> {
        self.ebpf.program(PROGRAM).and_then(|program| program.try_into().ok())
    }
}

pub(super) fn error(ifname: &str, why: &ProgramError) -> XskError {
    let code = os_code(why);
    let fix = match code {
        // Older kernels have no such type of link.
        Some(libc::EINVAL) => "use Linux 6.6 or newer, which has tcx, or write engine = \"worker\" under [host]",
        _ => program_fix(code),
    };
    XskError::Program { ifname: ifname.to_owned(), what: "attach", why: in_short(&chain(why)), fix }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use std::collections::BTreeMap;

    use srv6d_fib::{
        DECREMENTS_LOCAL, DeviceRow, Forwarding, GroupRow, HopRow, NodeRow, PathKind, PathRow, PortRow,
        TARGET_INDEX_BITS, TARGET_STEER,
    };

    use super::*;
    use crate::test_run::once_local;
    use crate::xdp_offload::{PacketCount, ProgramWiring, Sizes};

    const PASS: u32 = u32::MAX;
    const REDIRECT: u32 = 7;
    const UDP: u8 = 17;

    /// Returns the program at `lo`. The own veth is port 2 of the tables and device 5. Packets leave by port 1, device 3.
    fn on_loopback() -> (XdpOffload, u32) {
        srv6d_netns::move_thread_to_new().unwrap();
        let mut offload = XdpOffload::load(&Sizes::largest()).unwrap();
        offload.add_port(3, "lo").unwrap();
        offload.put_on_local(5, "lo").unwrap();
        assert_eq!(offload.local(), Some(5));
        (offload, crate::ifindex("lo").unwrap())
    }

    fn publish(offload: &mut XdpOffload, forwarding: &Forwarding) {
        let to = [(1, DeviceRow { number: 3, mtu: 0 })].into();
        let wiring = ProgramWiring { from: [(2, 5)].into(), to, kernel: None };
        offload.publish(forwarding, &wiring).unwrap();
    }

    /// Returns tables that steer `2001:db8::/32` and `10.0.0.0/8` by path 11, which takes the DSCP over.
    fn steering() -> Forwarding {
        let path = PathRow {
            addresses: [0x30; 32],
            first: 6 << 60 | 64,
            class_kept: 0xff << 52,
            slot: 4,
            group: 9,
            mtu: 100,
            kind: PathKind::WithoutSrh,
            ..PathRow::default()
        };
        let steer = TARGET_STEER << TARGET_INDEX_BITS | 6;
        let one = |at| GroupRow { count: 1, at, ..GroupRow::default() };
        let prefixes = [(0x2001_0db8 << 96, 32), (10 << 120, 8)].map(|prefix| BTreeMap::from([(prefix, steer)]));
        Forwarding {
            ports: [(2, PortRow::default())].into(),
            tables: [(0, prefixes)].into(),
            steers: [(6, one(11))].into(),
            paths: [(11, path)].into(),
            groups: [(9, one(13))].into(),
            hops: [(13, HopRow { ethernet: [9; 12], mtu: 1500, slot: 7, port: 1, flags: 0 })].into(),
            ..Forwarding::default()
        }
    }

    /// Returns a frame with 12 bytes behind the IPv6 header, to `2001:db8::`.
    fn v6(next_header: u8) -> Vec<u8> {
        let head = [0x86, 0xdd, 0x62, 0xe0, 0, 0, 0, 12, next_header, 64];
        let destination = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        [[2; 12].as_slice(), &head, &[0x20; 16], &destination, &[7; 12]].concat()
    }

    /// Returns a frame with 12 bytes behind the IPv4 header, from 10.0.0.1 to 10.0.0.2, with a TTL of 64.
    fn v4() -> Vec<u8> {
        let ip = [0x45, 0x2e, 0, 32, 0, 0, 0, 0, 64, UDP, 0x66, 0x9d, 10, 0, 0, 1, 10, 0, 0, 2];
        [[2; 12].as_slice(), &[8, 0], &ip, &[7; 12]].concat()
    }

    fn run(offload: &XdpOffload, frame: &[u8], ifindex: u32) -> (u32, Vec<u8>) {
        once_local(offload.local_program().unwrap(), frame, ifindex).unwrap()
    }

    #[test]
    #[ignore = "needs root"]
    fn plain_packets_get_an_outer_header_and_are_counted() {
        let (mut offload, lo) = on_loopback();
        assert_eq!(run(&offload, &v6(UDP), lo), (PASS, v6(UDP)), "nothing is published yet");
        publish(&mut offload, &steering());
        for (frame, protocol, class) in [(v6(UDP), 41, [0x62, 0xe0]), (v4(), 4, [0x62, 0xe0])] {
            let (verdict, out) = run(&offload, &frame, lo);
            let (ethernet, outer) = out.split_at(14);
            let (outer, inner) = outer.split_at(40);
            assert_eq!((verdict, ethernet), (REDIRECT, [[9; 12].as_slice(), &[0x86, 0xdd]].concat().as_slice()));
            let len = u8::try_from(frame.len() - 14).unwrap();
            assert_eq!(outer.get(4..8), Some([0, len, protocol, 64].as_slice()));
            assert_eq!(outer.get(8..), Some([0x30; 32].as_slice()));
            assert_eq!([outer[0], outer[1] & 0xf0], class);
            assert_ne!([outer[1] & 0xf, outer[2], outer[3]], [0; 3], "flow label");
            assert_eq!(inner, frame.split_at(14).1);
        }
        let counted = [offload.path(4), offload.hop(7), offload.received(5), offload.sent(3)];
        let bytes = [40 + 52 + 40 + 32, 40 + 52 + 40 + 32, 14 + 52 + 14 + 32, 54 + 52 + 54 + 32];
        assert_eq!(counted, bytes.map(|bytes| PacketCount { packets: 2, bytes }));
    }

    #[test]
    #[ignore = "needs root"]
    fn a_foreign_program_stays_and_comes_first() {
        let (mut foreign, lo) = on_loopback();
        let programs = || {
            let (_, programs) = SchedClassifier::query_tcx("lo", TcAttachType::Egress).unwrap();
            programs.iter().map(aya::programs::ProgramInfo::id).collect::<Vec<u32>>()
        };
        let alone = programs();
        let mut own = XdpOffload::load(&Sizes::largest()).unwrap();
        own.put_on_local(5, "lo").unwrap();
        assert_eq!((programs().len(), programs().first()), (2, alone.first()));
        own.take_off_local();
        assert_eq!(programs(), alone);
        own.put_on_local(5, "lo").unwrap();
        drop(own);
        assert_eq!(programs(), alone, "the attachment ends with its owner");
        publish(&mut foreign, &steering());
        assert_eq!(run(&foreign, &v6(UDP), lo).0, REDIRECT);
    }

    #[test]
    #[ignore = "needs root"]
    fn the_hop_limit_is_decremented_where_the_node_says_so() {
        let (mut offload, lo) = on_loopback();
        publish(
            &mut offload,
            &Forwarding { node: NodeRow { flags: DECREMENTS_LOCAL, ..NodeRow::default() }, ..steering() },
        );
        let inner = |frame: &[u8]| run(&offload, frame, lo).1.split_off(54);
        let mut expected = v6(UDP).split_off(14);
        expected[7] = 63;
        assert_eq!(inner(&v6(UDP)), expected);
        let mut expected = v4().split_off(14);
        (expected[8], expected[10]) = (63, 0x67);
        assert_eq!(inner(&v4()), expected);
    }

    #[test]
    #[ignore = "needs root"]
    fn what_the_program_cannot_do_passes_as_it_was_and_uncounted() {
        let (mut offload, lo) = on_loopback();
        let with = |change: &dyn Fn(&mut Forwarding)| {
            let mut forwarding = steering();
            change(&mut forwarding);
            forwarding
        };
        let path = |change: fn(&mut PathRow)| with(&|rows| rows.paths.values_mut().for_each(change));
        let hop = |change: fn(&mut HopRow)| with(&|rows| rows.hops.values_mut().for_each(change));
        let tables = [
            ("SRH", path(|path| path.kind = PathKind::WithSrh)),
            ("path of the slow path", path(|path| path.kind = PathKind::Slow)),
            ("too long for the path", path(|path| path.mtu = 91)),
            ("too long for the port", hop(|hop| hop.mtu = 91)),
            ("no next hop", with(&|rows| rows.hops.clear())),
            ("unknown port", hop(|hop| hop.port = 4)),
            ("not steered", with(&|rows| rows.tables.clear())),
        ];
        for (name, forwarding) in tables {
            publish(&mut offload, &forwarding);
            assert_eq!(run(&offload, &v6(UDP), lo), (PASS, v6(UDP)), "{name}");
        }
        publish(&mut offload, &steering());
        let changed = |at: usize, byte: u8| {
            let mut frame = v6(UDP);
            frame[at] = byte;
            frame
        };
        let frames = [
            ("ICMPv6", v6(58)),
            ("hop-by-hop options", v6(0)),
            ("IPv6 inside", v6(41)),
            ("SRH inside", v6(43)),
            ("hop limit 1", changed(21, 1)),
            ("wrong length", changed(19, 11)),
            ("wrong Ethernet type", changed(13, 0xde)),
            ("elsewhere", changed(38, 0x30)),
        ];
        for (name, frame) in frames {
            assert_eq!(run(&offload, &frame, lo), (PASS, frame.clone()), "{name}");
        }
        assert_eq!(offload.path(4), PacketCount::default());
        assert_eq!(run(&offload, &v6(UDP), lo).0, REDIRECT);
        offload.remove_port(3);
        assert_eq!(run(&offload, &v6(UDP), lo).0, PASS, "the port is gone");
    }
}
