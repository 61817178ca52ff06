//! The tc program (`bpf/tc.h`), which encapsulates what applications of this node send before it is cut into packets.
//!
//! It is attached behind all other programs of the interface, and touches none of them: by bpf_link (tcx), or as a filter of
//! clsact where the kernel has no tcx (before Linux 6.6). A filter does not end with the process. It is harmless then: there is
//! no frame left for it, and the next srv6d takes it away.

use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact,
};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};

use super::{XdpOffload, in_short};
use crate::XskError;
use crate::program::{chain, load, os_code, program_fix};

/// Name of the program's function in `bpf/tc.h`.
const PROGRAM: &str = "srv6d_local";

/// By what tc programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// By bpf_link, which ends with the process (Linux 6.6).
    #[default]
    Tcx,
    /// As filters of the clsact qdisc, which is made if there is none, and stays.
    Clsact,
}

/// Priorities among the filters of clsact: in front of all others, and behind them.
const FIRST: u16 = 1;
const LAST: u16 = u16::MAX;
/// Handle of an own filter, by which it is known again. A process without CAP_PERFMON cannot name its programs.
const OWN: TcHandle = TcHandle::new(0x5352, 0x7636);

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
    /// The kernel refuses.
    pub fn put_on_local(&mut self, port: u16, ifname: &str) -> Result<(), XskError> {
        let ifindex = crate::ifindex(ifname)?;
        self.maps.port_of.insert(ifindex, u32::from(port), 0).map_err(|why| self.port_error(ifname, &why))?;
        let attached = self.attach(PROGRAM, ifname, TcAttachType::Egress).map_err(|why| error(ifname, &why));
        if attached.is_err() {
            let _ = self.maps.port_of.remove(&ifindex); // it has just been inserted
        }
        self.local = Some(Local { port, ifindex, _link: attached? });
        Ok(())
    }

    /// Attaches a program in front of all others that receive, or behind all others that send.
    pub(super) fn attach(
        &mut self,
        name: &str,
        ifname: &str,
        place: TcAttachType,
    ) -> Result<SchedClassifierLink, ProgramError> {
        let program = self.ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?;
        let program: &mut SchedClassifier = program.try_into()?;
        if program.fd().is_err() {
            load(|| program.load())?;
        }
        if self.hook == Hook::Tcx {
            let order = if place == TcAttachType::Ingress { LinkOrder::first() } else { LinkOrder::last() };
            match program.attach_with_options(ifname, place, TcAttachOptions::TcxOrder(order)) {
                Ok(link) => return program.take_link(link),
                // Older kernels have no such type of link.
                Err(why) if os_code(&why) == Some(libc::EINVAL) => self.hook = Hook::Clsact,
                Err(why) => return Err(why),
            }
        }
        let link = attach_to_clsact(program, ifname, place)?;
        program.take_link(link)
    }

    /// Attaches tc programs as on a kernel without tcx.
    pub fn forgo_tcx(&mut self) {
        self.hook = Hook::Clsact;
    }

    /// Returns by what tc programs are attached.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Lets the program send through a port, or leaves what is to be sent there to the workers.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn let_local_send(&mut self, port: u16, may: bool) -> Result<(), XskError> {
        let ifindex = self.ifindexes.get(&port).copied().filter(|_| may).unwrap_or_default();
        let set = self.maps.interfaces.set(port.into(), ifindex, 0);
        set.map_err(|why| super::map_error("name the port's interface", &why))
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

/// Attaches a program to the clsact qdisc of an interface, in the place of one that an srv6d has left behind.
fn attach_to_clsact(
    program: &mut SchedClassifier,
    ifname: &str,
    place: TcAttachType,
) -> Result<SchedClassifierLinkId, ProgramError> {
    match qdisc_add_clsact(ifname) {
        Err(TcError::NetlinkError(why)) if why.raw_os_error() == Some(libc::EEXIST) => {}
        made => made?,
    }
    let priority = if place == TcAttachType::Ingress { FIRST } else { LAST };
    let left_behind = SchedClassifierLink::attached(ifname, place, priority, OWN, None).map_err(TcError::IoError)?;
    drop(left_behind); // which takes it off; mostly there is none
    let options = NlOptions { priority, handle: OWN, ..NlOptions::default() };
    program.attach_with_options(ifname, place, TcAttachOptions::Netlink(options))
}

pub(super) fn error(ifname: &str, why: &ProgramError) -> XskError {
    let fix = program_fix(os_code(why));
    XskError::Program { ifname: ifname.to_owned(), what: "attach", why: in_short(&chain(why)), fix }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use std::collections::BTreeMap;

    use srv6d_fib::{
        DECREMENTS_LOCAL, DeviceRow, FORWARDS, Forwarding, GroupRow, HopRow, NodeRow, ONE_SEGMENT, PathKind, PathRow,
        PortRow, SrhRow, TARGET_INDEX_BITS, TARGET_STEER, TWO_SEGMENTS,
    };

    use super::*;
    use crate::test_run::once_local;
    use crate::xdp_offload::{PacketCount, ProgramWiring, Sizes};

    const PASS: u32 = u32::MAX;
    const REDIRECT: u32 = 7;
    const UDP: u8 = 17;

    /// Returns the program at `lo`. The own veth is port 2 of the tables and device 5. Packets leave by port 1, device 3.
    /// Device 0 is there, too.
    fn on_loopback() -> (XdpOffload, u32) {
        srv6d_netns::move_thread_to_new().unwrap();
        let mut offload = XdpOffload::load(&Sizes::largest()).unwrap();
        offload.add_port(0, "lo").unwrap();
        offload.add_port(3, "lo").unwrap();
        offload.put_on_local(5, "lo").unwrap();
        assert_eq!(offload.local(), Some(5));
        (offload, crate::ifindex("lo").unwrap())
    }

    fn publish(offload: &mut XdpOffload, forwarding: &Forwarding) {
        let to = [(1, DeviceRow { number: 3, ..DeviceRow::default() })].into();
        let wiring = ProgramWiring { from: [(2, 5)].into(), to, ..ProgramWiring::default() };
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
            ports: [(2, PortRow { flags: FORWARDS, ..PortRow::default() })].into(),
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

    /// A port that is emulated has no row. Its zeros name the device of number 0, which is there.
    #[test]
    #[ignore = "needs root"]
    fn a_port_without_a_device_is_the_workers() {
        let (mut offload, lo) = on_loopback();
        publish(&mut offload, &steering());
        assert_eq!(run(&offload, &v6(UDP), lo).0, REDIRECT);
        let wiring = ProgramWiring { from: [(2, 5)].into(), ..ProgramWiring::default() };
        offload.publish(&steering(), &wiring).unwrap();
        assert_eq!(run(&offload, &v6(UDP), lo), (PASS, v6(UDP)));
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

    /// Returns the frame to another address, from its top.
    fn to(frame: Vec<u8>, address: [u64; 2]) -> Vec<u8> {
        let mut frame = frame;
        frame[38..54].copy_from_slice(address.map(u64::to_be_bytes).as_flattened());
        frame
    }

    /// Returns the entry of the cache that an address has (`bpf/destination_cache.h`).
    fn entry([high, low]: [u64; 2]) -> u64 {
        (high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56
    }

    #[test]
    #[ignore = "needs root"]
    fn the_cache_keeps_destinations_families_and_publications_apart() {
        const STEERED: [u64; 2] = [0x2001_0db8 << 32, 0];
        let (mut offload, lo) = on_loopback();
        publish(&mut offload, &steering());
        let other = (0..u64::MAX).map(|low| [0x3fff << 48, low]).find(|other| entry(*other) == entry(STEERED)).unwrap();
        // The address of the IPv4 frame, in the place that it has in the cache.
        let like_v4 = [0x0a00_0002 << 32, 0];
        for _ in 0..3 {
            assert_eq!(run(&offload, &to(v6(UDP), STEERED), lo).0, REDIRECT);
            assert_eq!(run(&offload, &to(v6(UDP), other), lo), (PASS, to(v6(UDP), other)));
            assert_eq!(run(&offload, &v4(), lo).0, REDIRECT);
            assert_eq!(run(&offload, &to(v6(UDP), like_v4), lo), (PASS, to(v6(UDP), like_v4)));
        }
        let nothing = Forwarding { tables: BTreeMap::new(), ..steering() };
        for (forwarding, verdict) in [(nothing, PASS), (steering(), REDIRECT)] {
            publish(&mut offload, &forwarding);
            assert_eq!([run(&offload, &v6(UDP), lo).0, run(&offload, &v4(), lo).0], [verdict; 2]);
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn an_srh_stands_behind_the_outer_header_and_names_what_is_inside() {
        let (mut offload, lo) = on_loopback();
        let mut srh = SrhRow::default();
        (0..).zip(srh.bytes.as_flattened_mut()).for_each(|(at, byte)| *byte = at);
        for units in [ONE_SEGMENT, TWO_SEGMENTS] {
            let len = 8 * units;
            let longest = 52 + 40 + u16::from(len);
            let path = |path: PathRow, mtu| PathRow { kind: PathKind::WithSrh, srh_units: units, mtu, ..path };
            let of = |mtu, flags| {
                let steering = steering();
                let paths = steering.paths.iter().map(|(&at, &row)| (at, path(row, mtu))).collect();
                let node = NodeRow { flags, ..NodeRow::default() };
                Forwarding { node, paths, srhs: [(11, srh)].into(), ..steering }
            };
            publish(&mut offload, &of(longest - 1, 0));
            assert_eq!(run(&offload, &v6(UDP), lo), (PASS, v6(UDP)), "the SRH counts");
            let before = offload.path(4).bytes;
            for (flags, spent) in [(0, 0), (DECREMENTS_LOCAL, 1)] {
                publish(&mut offload, &of(longest, flags));
                for (frame, protocol, hop_limit) in [(v6(UDP), 41, 7), (v4(), 4, 8)] {
                    let (verdict, out) = run(&offload, &frame, lo);
                    let (outer, behind) = out.split_at(54);
                    let (written, inner) = behind.split_at(len.into());
                    let payload = u8::try_from(inner.len()).unwrap() + len;
                    assert_eq!((verdict, &outer[18..22]), (REDIRECT, [0, payload, 43, 64].as_slice()));
                    assert_eq!((written[0], &written[1..]), (protocol, &srh.bytes.as_flattened()[1..len.into()]));
                    let mut expected = frame[14..].to_vec();
                    expected[hop_limit] -= spent;
                    if protocol == 4 {
                        expected[10] += spent;
                    }
                    assert_eq!(inner, expected);
                }
            }
            assert_eq!(offload.path(4).bytes - before, 2 * (52 + 32 + 2 * (40 + u64::from(len))));
        }
        let two = steering().paths.values().next().copied().unwrap();
        let three = PathRow { kind: PathKind::WithSrh, srh_units: TWO_SEGMENTS + 2, mtu: 1500, ..two };
        let forwarding = Forwarding { paths: [(11, three)].into(), srhs: [(11, srh)].into(), ..steering() };
        publish(&mut offload, &forwarding);
        assert_eq!(run(&offload, &v6(UDP), lo), (PASS, v6(UDP)), "an SRH of three segments is the worker's");
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

    /// Returns the filters at the egress of `lo`, first priorities.
    fn filters() -> Vec<(u64, String)> {
        let show = ["-j", "filter", "show", "dev", "lo", "egress"];
        let shown = std::process::Command::new("tc").args(show).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        let lines = text.split("\"pref\":").skip(1);
        let filter = |line: &str| {
            let (priority, rest) = line.split_once(',').unwrap();
            let name = rest.split_once("\"bpf_name\":\"").and_then(|(_, name)| name.split_once('"'));
            Some((priority.parse().unwrap(), name?.0.to_owned()))
        };
        lines.filter_map(filter).collect()
    }

    #[test]
    #[ignore = "needs root"]
    fn without_tcx_the_program_is_a_filter_behind_the_foreign_ones_and_its_leftover_is_replaced() {
        let (mut foreign, lo) = on_loopback();
        foreign.take_off_local();
        let program: &mut SchedClassifier = foreign.ebpf.program_mut("srv6d_delivered").unwrap().try_into().unwrap();
        program.load().unwrap();
        qdisc_add_clsact("lo").unwrap();
        let options = TcAttachOptions::Netlink(NlOptions { priority: 50_000, ..NlOptions::default() });
        let link = program.attach_with_options("lo", TcAttachType::Egress, options).unwrap();
        let _of_others = program.take_link(link).unwrap();
        let others = filters();
        assert_eq!(others.len(), 1, "{others:?}");

        let own = || {
            let mut own = XdpOffload::load(&Sizes::largest()).unwrap();
            own.forgo_tcx();
            own.add_port(3, "lo").unwrap();
            own.put_on_local(5, "lo").unwrap();
            own
        };
        let with_own = [others.clone(), vec![(u64::from(LAST), "srv6d_local".to_owned())]].concat();
        let killed = own();
        assert_eq!((killed.hook(), filters()), (Hook::Clsact, with_own.clone()));
        std::mem::forget(killed.local); // as if the process had been killed
        assert_eq!(filters(), with_own);
        let mut own = own();
        assert_eq!(filters(), with_own, "it takes the place of what was left behind");
        publish(&mut own, &steering());
        assert_eq!(run(&own, &v6(UDP), lo).0, REDIRECT);
        drop(own);
        assert_eq!(filters(), others);
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
            ("SRH that is not there", path(|path| path.kind = PathKind::WithSrh)),
            ("path of the slow path", path(|path| path.kind = PathKind::Slow)),
            ("too long for the path", path(|path| path.mtu = 91)),
            ("too long for the port", hop(|hop| hop.mtu = 91)),
            ("no next hop", with(&|rows| rows.hops.clear())),
            ("unknown port", hop(|hop| hop.port = 4)),
            ("the port is the worker's", with(&|rows| rows.ports.values_mut().for_each(|port| port.flags = 0))),
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
        for (may, verdict) in [(false, PASS), (true, REDIRECT)] {
            offload.let_local_send(3, may).unwrap();
            assert_eq!(run(&offload, &v6(UDP), lo).0, verdict);
        }
        offload.remove_port(3);
        assert_eq!(run(&offload, &v6(UDP), lo).0, PASS, "the port is gone");
    }
}
