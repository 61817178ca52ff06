//! Delivery to this node: `bpf/offload.c` decapsulates on a port, and a tc program (`bpf/tc.h`) at the ingress of the port
//! hands what the kernel has merged to the kernel's end of srv6d's own veth.
//!
//! The tc program is attached in front of all other programs, as `local.rs` says, and touches none of them. What it hands
//! over was never the port's, as with a worker: filters and rules of the kernel see it on the own veth.
//!
//! It knows these packets by a mark in front of them. Programs of others on this node can write metadata, too, and so may a
//! sender that is allowed to load some; they would have to know a number that is drawn at each start.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use aya::programs::tc::SchedClassifierLink;
use aya::programs::{SchedClassifier, TcAttachType};
use srv6d_fib::{Forwarding, KernelEndRow};

use super::{KernelEnd, ProgramWiring, XdpOffload, maps};
use crate::XskError;

/// The tc program that delivers packets to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The XDP program of the port has decapsulated and marked them.
    Marked,
    /// The port has no XDP program: the tc program decapsulates them.
    Whole,
}

impl Delivery {
    /// Returns the name of the program's function in `bpf/tc.h`.
    const fn program(self) -> &'static str {
        match self {
            Self::Marked => "srv6d_delivered",
            Self::Whole => "srv6d_received",
        }
    }
}

/// Holds the tc program on a port.
pub(super) struct Ingress {
    delivery: Delivery,
    // Its end takes the program off.
    _link: SchedClassifierLink,
}

/// Returns a random number that is not 0, because metadata of others is often all zeros.
pub(super) fn random_mark() -> u32 {
    let [.., a, b, c, d] = RandomState::new().hash_one(std::process::id()).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]).max(1)
}

impl XdpOffload {
    /// Returns what stands in front of a packet that is delivered to this node, for [`test_run`](crate::test_run).
    pub fn mark(&self) -> [u8; 4] {
        self.mark.to_ne_bytes()
    }

    /// Puts a program that delivers to this node at the ingress of a port, in place of the other one. It is not an error if
    /// it is there already.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn put_on_ingress(&mut self, port: u16, ifname: &str, delivery: Delivery) -> Result<(), XskError> {
        if self.ingress.get(&port).is_none_or(|now| now.delivery != delivery) {
            self.ingress.remove(&port);
            let attached = self.attach(delivery.program(), ifname, TcAttachType::Ingress);
            let link = attached.map_err(|why| super::local::error(ifname, &why))?;
            self.ingress.insert(port, Ingress { delivery, _link: link });
        }
        Ok(())
    }

    /// Returns the program that decapsulates, once it was put on a port, for [`once_local`](crate::test_run::once_local).
    pub fn whole_program(&self) -> Option<&SchedClassifier> {
        self.ebpf.program(Delivery::Whole.program()).and_then(|program| program.try_into().ok())
    }

    /// Takes the program off all ports except these. The tables in force must not deliver packets from other ports.
    pub fn keep_on_ingress(&mut self, ports: &BTreeSet<u16>) {
        self.ingress.retain(|port, _| ports.contains(port));
    }

    pub(super) fn write_kernel_end(&mut self, forwarding: &Forwarding, wiring: &ProgramWiring) -> Result<(), XskError> {
        let row = |end: &KernelEnd| {
            let (ifindex, number) = (end.ifindex, end.number.into());
            KernelEndRow { ethernet: forwarding.to_kernel, ifindex, number, mark: self.mark }
        };
        let row = wiring.kernel.as_ref().map(row).unwrap_or_default();
        if row != self.kernel_end {
            let written = self.maps.kernel_end.set(0, maps::kernel_end(row), 0);
            written.map_err(|why| super::map_error("write the way into the kernel", &why))?;
            self.kernel_end = row;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed test may panic")]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{self, Read as _};
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::time::Duration;

    use srv6d_fib::{
        CHECKS_DOMAIN, DECAPSULATES_V4, DECAPSULATES_V6, DELIVERS, FORWARDS, GUARDS_SIDS, IS_OWN_ADDRESS, NodeRow,
        PortRow, SidKind, SidRow, TARGET_INDEX_BITS, TARGET_KERNEL, TARGET_SID, UNIFORM,
    };

    use super::*;
    use crate::test_run::{Arrival, once, once_local};
    use crate::xdp_offload::{PacketCount, Sizes};

    const PASS: u32 = 2;
    const NEXT: u32 = u32::MAX;
    const REDIRECT: u32 = 7;
    const SID: u128 = 0xfcbb << 112 | 0xfe << 80;
    const OWN_V6: u128 = 0x2001_0db8 << 96 | 1;
    const OWN_V4: u128 = 0x0a00_0001 << 96;
    const OF_SID: u16 = 4;

    /// Returns the programs with loopback as device 3, port 1 of the tables. The own veth is device 5.
    fn on_loopback() -> (XdpOffload, Arrival) {
        srv6d_netns::move_thread_to_new().unwrap();
        let mut offload = XdpOffload::load(&Sizes::largest()).unwrap();
        offload.add_port(3, "lo").unwrap();
        offload.put_on_ingress(3, "lo", Delivery::Whole).unwrap();
        (offload, Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 })
    }

    fn publish(offload: &mut XdpOffload, forwarding: &Forwarding, delivers: bool) {
        let kernel = KernelEnd { from: [1].into(), ..KernelEnd::of("lo", 5).unwrap() };
        let kernel = Some(kernel).filter(|_| delivers);
        offload
            .publish(forwarding, &ProgramWiring { from: [(1, 3)].into(), kernel, ..ProgramWiring::default() })
            .unwrap();
    }

    /// Returns tables with a SID that decapsulates into table 4, which has addresses of this node.
    fn delivering() -> Forwarding {
        let target = |of: u32, index: u32| of << TARGET_INDEX_BITS | index;
        let own = target(TARGET_KERNEL, IS_OWN_ADDRESS);
        let sid = SidRow {
            kind: SidKind::Decapsulate,
            flags: DECAPSULATES_V6 | DECAPSULATES_V4,
            slot: 9,
            table: OF_SID,
            argument: [0xffff, u64::MAX],
            ..SidRow::default()
        };
        let port = PortRow { mac: [2; 6], longest: 1514, flags: DELIVERS, ..PortRow::default() };
        Forwarding {
            ports: [(1, port)].into(),
            tables: [
                (0, [[((SID, 48), target(TARGET_SID, 6))].into(), BTreeMap::new()]),
                (OF_SID, [[((OWN_V6, 128), own)].into(), [((OWN_V4, 32), own)].into()]),
            ]
            .into(),
            sids: [(6, sid)].into(),
            ..Forwarding::default()
        }
    }

    /// Returns an IPv6 packet to an address.
    fn v6(class: u8, next_header: u8, to: u128, payload: &[u8]) -> Vec<u8> {
        let len = u8::try_from(payload.len()).unwrap();
        let head = [0x60 | class >> 4, class << 4, 0, 7, 0, len, next_header, 64];
        [&head, [0x20; 16].as_slice(), &to.to_be_bytes(), payload].concat()
    }

    /// Returns an IPv4 packet from 10.0.0.2 to 10.0.0.1.
    fn v4(tos: u8, sum: [u8; 2]) -> Vec<u8> {
        let head = [0x45, tos, 0, 32, 0, 0, 0, 0, 64, 17, sum[0], sum[1], 10, 0, 0, 2, 10, 0, 0, 1];
        [head.as_slice(), &[7; 12]].concat()
    }

    fn ethernet(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [[2; 6].as_slice(), &[3; 6], &kind, packet].concat()
    }

    fn v6_inside(outer: u8, inner: u8) -> Vec<u8> {
        ethernet([0x86, 0xdd], &v6(outer, 41, SID, &v6(inner, 17, OWN_V6, &[7; 12])))
    }

    fn run(offload: &XdpOffload, arrival: Arrival, frame: &[u8]) -> (u32, Vec<u8>) {
        once(offload.program().unwrap(), frame, arrival).unwrap()
    }

    /// Returns the frame with the address of loopback, as the tc program takes no others.
    fn for_loopback(frame: &[u8]) -> Vec<u8> {
        [&[0; 6], frame.split_at(6).1].concat()
    }

    /// Runs the tc program of a port without XDP program.
    fn run_whole(offload: &XdpOffload, arrival: Arrival, frame: &[u8]) -> (u32, Vec<u8>) {
        once_local(offload.whole_program().unwrap(), &for_loopback(frame), arrival.ifindex).unwrap()
    }

    #[test]
    #[ignore = "needs root"]
    fn what_is_for_this_node_loses_its_outer_header_gets_a_mark_and_is_counted() {
        let (mut offload, arrival) = on_loopback();
        publish(&mut offload, &delivering(), true);
        let mark = offload.mark();
        let marked = |kind: [u8; 2], packet: &[u8]| (PASS, [mark.as_slice(), &ethernet(kind, packet)].concat());
        let whole = |kind: [u8; 2], packet: &[u8]| (REDIRECT, [[0; 12].as_slice(), &kind, packet].concat());
        let inner_v6 = |class: u8| v6(class, 17, OWN_V6, &[7; 12]);
        let uniform = |forwarding: &mut Forwarding| forwarding.sids.get_mut(&6).unwrap().flags |= UNIFORM;
        // Each case has the traffic class of the outer header, that of the inner header, the resulting one, and the one
        // that results with the DSCP of the outer header.
        for (outer, inner, class, of_uniform) in
            [(0, 0, 0, 0), (0xb8, 2, 2, 0xba), (0xbb, 2, 3, 0xbb), (0xb9, 2, 1, 0xb9), (0xba, 0x29, 0x29, 0xb9)]
        {
            publish(&mut offload, &delivering(), true);
            let frame = v6_inside(outer, inner);
            assert_eq!(run(&offload, arrival, &frame), marked([0x86, 0xdd], &inner_v6(class)), "{outer:x} {inner:x}");
            assert_eq!(run_whole(&offload, arrival, &frame), whole([0x86, 0xdd], &inner_v6(class)));
            let mut forwarding = delivering();
            uniform(&mut forwarding);
            publish(&mut offload, &forwarding, true);
            assert_eq!(run(&offload, arrival, &frame), marked([0x86, 0xdd], &inner_v6(of_uniform)));
            assert_eq!(run_whole(&offload, arrival, &frame), whole([0x86, 0xdd], &inner_v6(of_uniform)));
        }
        let counted = [offload.sid(9), offload.received(3), offload.sent(5)];
        assert_eq!(counted, [92, 106, 66].map(|bytes| PacketCount { packets: 20, bytes: 20 * bytes }));
        let frame = |tos, sum| ethernet([0x86, 0xdd], &v6(0xbb, 4, SID, &v4(tos, sum)));
        let frame = frame(2, [0x66, 0xc9]);
        assert_eq!(run(&offload, arrival, &frame), marked([8, 0], &v4(0xbb, [0x66, 0x10])));
        assert_eq!(run_whole(&offload, arrival, &frame), whole([8, 0], &v4(0xbb, [0x66, 0x10])));
    }

    #[test]
    #[ignore = "needs root"]
    fn what_the_worker_has_to_decide_is_left_as_it_was_and_uncounted() {
        let (mut offload, arrival) = on_loopback();
        let with = |change: &dyn Fn(&mut Forwarding)| {
            let mut forwarding = delivering();
            change(&mut forwarding);
            forwarding
        };
        let port = |flags: u32| with(&|rows| rows.ports.get_mut(&1).unwrap().flags = flags);
        let sid = |change: fn(&mut SidRow)| with(&|rows| change(rows.sids.get_mut(&6).unwrap()));
        let tables = [
            ("the port does not deliver", port(FORWARDS)),
            ("SIDs are guarded", port(DELIVERS | GUARDS_SIDS)),
            ("SIDs of the slow path", sid(|sid| sid.kind = SidKind::Slow)),
            ("only IPv4", sid(|sid| sid.flags = DECAPSULATES_V4)),
            ("another table", sid(|sid| sid.table = 5)),
            ("no own address", with(&|rows| drop(rows.tables.remove(&OF_SID)))),
            ("domain_sources", with(&|rows| rows.node = NodeRow { flags: CHECKS_DOMAIN, ..NodeRow::default() })),
        ];
        for (name, forwarding) in tables {
            publish(&mut offload, &forwarding, true);
            assert_eq!(run(&offload, arrival, &v6_inside(0, 0)), (PASS, v6_inside(0, 0)), "{name}");
            let left = (NEXT, for_loopback(&v6_inside(0, 0)));
            assert_eq!(run_whole(&offload, arrival, &v6_inside(0, 0)), left, "{name}");
        }
        publish(&mut offload, &delivering(), false);
        assert_eq!(run(&offload, arrival, &v6_inside(0, 0)), (PASS, v6_inside(0, 0)), "there is no way to the kernel");
        publish(&mut offload, &delivering(), true);
        let outer = |next_header, inner: &[u8]| ethernet([0x86, 0xdd], &v6(0, next_header, SID, inner));
        let inside = |at: usize, byte: u8| {
            let mut inner = v6(0, 17, OWN_V6, &[7; 12]);
            inner[at] = byte;
            outer(41, &inner)
        };
        let mut argument = v6_inside(0, 0);
        argument[53] = 1;
        let frames = [
            ("CE outside, Not-ECT inside", v6_inside(3, 0)),
            ("ECT outside, Not-ECT inside", v6_inside(2, 0)),
            ("an argument behind the SID", argument),
            ("IPv6 that says IPv4", outer(4, &v6(0, 17, OWN_V6, &[7; 12]))),
            ("IPv4 with a wrong checksum", outer(4, &v4(0, [0x66, 0xca]))),
            ("no packet inside", outer(59, &[7; 60])),
            ("another length", inside(5, 11)),
            ("ICMPv6", inside(6, 58)),
            ("an SRH inside", inside(6, 43)),
            ("hop limit 1", inside(7, 1)),
            (
                "from nowhere",
                outer(
                    41,
                    &[&[0x60, 0, 0, 0, 0, 12, 17, 64], [0; 16].as_slice(), &OWN_V6.to_be_bytes(), &[7; 12]].concat(),
                ),
            ),
            ("for another node", inside(39, 2)),
        ];
        for (name, frame) in frames {
            assert_eq!(run(&offload, arrival, &frame), (PASS, frame.clone()), "{name}");
            assert_eq!(run_whole(&offload, arrival, &frame), (NEXT, for_loopback(&frame)), "{name}");
        }
        assert_eq!([offload.sid(9), offload.received(3), offload.sent(5)], [PacketCount::default(); 3]);
        assert_ne!(run(&offload, arrival, &v6_inside(0, 0)).1, v6_inside(0, 0));
    }

    /// Returns the packets that an interface gets, as a packet socket sees them.
    fn received_by(ifname: &str) -> OwnedFd {
        let protocol = i32::from(0x86dd_u16.to_be());
        // SAFETY: the call takes three numbers and no memory.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        assert!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was made just now and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeroes is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_protocol = 0x86dd_u16.to_be();
        address.sll_ifindex = crate::ifindex(ifname).unwrap().try_into().unwrap();
        let len = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        // SAFETY: the pointer is to a live sockaddr_ll, with its size.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(bound, 0, "bind {ifname}: {}", io::Error::last_os_error());
        socket2::SockRef::from(&fd).set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        fd
    }

    #[test]
    #[ignore = "needs root"]
    fn a_packet_with_the_mark_of_somebody_else_is_left_to_the_port() {
        let (mut own, arrival) = on_loopback();
        let mut foreign = XdpOffload::load(&Sizes::largest()).unwrap();
        foreign.add_port(3, "lo").unwrap();
        assert_ne!(own.mark, foreign.mark, "marks are random");
        let commands = ["link add own type veth peer name end", "link set end up", "link set own up", "link set lo up"];
        srv6d_netns::ip_batch_here(&commands.map(str::to_owned)).unwrap();
        let kernel = || Some(KernelEnd { from: [1].into(), ..KernelEnd::of("own", 5).unwrap() });
        let wiring = || ProgramWiring { from: [(1, 3)].into(), kernel: kernel(), ..ProgramWiring::default() };
        own.publish(&delivering(), &wiring()).unwrap();
        own.put_on_ingress(3, "lo", Delivery::Marked).unwrap();
        let delivered = received_by("own");
        // The XDP program of the one marks packets, and the tc program of the other gets them.
        let send = |marks: &XdpOffload, byte: u8| {
            let frame = ethernet([0x86, 0xdd], &v6(0, 41, SID, &v6(0, 17, OWN_V6, &[byte; 12])));
            crate::test_run::live(marks.program().unwrap(), &frame, arrival, 8, 8).unwrap();
        };
        for (byte, mark) in [(1, foreign.mark), (2, 0x5352_7636), (3, 0)] {
            (foreign.mark, foreign.kernel_end) = (mark, KernelEndRow::default());
            foreign.publish(&delivering(), &wiring()).unwrap();
            assert_eq!(run(&foreign, arrival, &v6_inside(0, 0)).1[..4], mark.to_ne_bytes());
            send(&foreign, byte);
        }
        send(&own, 9);
        let mut packet = [0; 128];
        let first = loop {
            match (&*socket2::SockRef::from(&delivered)).read(&mut packet) {
                // The interface says hello to its neighbours, too.
                Ok(len) if packet[38..54] != OWN_V6.to_be_bytes() => assert!(len < packet.len()),
                Ok(len) => break packet[..len].last().copied(),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    return eprintln!(
                        "SKIPPED: this kernel keeps no metadata of frames that no wire has brought (before Linux 6.15)"
                    );
                }
                Err(why) => panic!("{why}"),
            }
        };
        assert_eq!(first, Some(9), "the first one that was delivered");
    }

    #[test]
    #[ignore = "needs root"]
    fn a_foreign_program_stays_and_the_own_one_ends_with_its_owner() {
        let (mut foreign, _) = on_loopback();
        let programs = || {
            let (_, programs) = SchedClassifier::query_tcx("lo", TcAttachType::Ingress).unwrap();
            programs.iter().map(aya::programs::ProgramInfo::id).collect::<Vec<u32>>()
        };
        foreign.put_on_ingress(3, "lo", Delivery::Marked).unwrap();
        let alone = programs();
        let mut own = XdpOffload::load(&Sizes::largest()).unwrap();
        own.put_on_ingress(3, "lo", Delivery::Marked).unwrap();
        own.put_on_ingress(3, "lo", Delivery::Marked).unwrap();
        assert_eq!((programs().len(), programs().last()), (2, alone.last()));
        own.keep_on_ingress(&BTreeSet::new());
        assert_eq!(programs(), alone);
        own.put_on_ingress(3, "lo", Delivery::Marked).unwrap();
        drop(own);
        assert_eq!(programs(), alone);
    }
}
