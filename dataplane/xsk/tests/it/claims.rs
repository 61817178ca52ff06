//! Tests which packets of a port go to the socket and which stay with the kernel.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failure here is a failed test

use crate::netns;

use std::io::{BufRead, BufReader};
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};

use netns::{PORT_MAC, Wire, bytes, enter, ip, ipv4, ipv6, tagged, try_ip, until, veth};
use srv6d_xsk::{Mode, Program, ProgramSettings, Rings, Rules, Socket, Umem, XskError};

/// A port with a program and a socket, and the wire at its far end.
struct Port {
    umem: Umem,
    socket: Socket,
    program: Program,
    wire: Wire,
}

impl Port {
    fn new(settings: &ProgramSettings) -> Self {
        enter();
        veth("port", "peer", 1500, 1);
        let mut umem = Umem::new(4096).unwrap();
        let mut program = Program::attach("port", Mode::Auto, settings).unwrap();
        let mut socket = Socket::open(&umem, "port", 0, Mode::Auto, Rings::default()).unwrap();
        socket.rx_burst(&mut umem, 0, &mut Vec::new());
        program.set_socket(0, &socket).unwrap();
        Self { umem, socket, program, wire: Wire::open("peer") }
    }

    /// Sends a frame into the port. Returns true if the socket got it (unchanged), false if the program passed it to
    /// the kernel.
    fn claims(&mut self, frame: &[u8]) -> bool {
        let before = self.program.counts().unwrap();
        self.wire.send(frame);
        let redirected = until("a verdict", || {
            let now = self.program.counts().unwrap();
            match (now.passed - before.passed, now.redirected - before.redirected) {
                (0, 0) => None,
                (1, 0) => Some(false),
                (0, 1) => Some(true),
                both => panic!("one frame, several verdicts: {both:?}"),
            }
        });
        let mut frames = Vec::new();
        if redirected {
            until("the claimed frame", || (self.socket.rx_burst(&mut self.umem, 8, &mut frames) > 0).then_some(()));
            assert_eq!(bytes(&self.umem, &frames[0]), frame);
            assert!(self.umem.recycle(frames.remove(0)).is_none());
        }
        assert_eq!(self.socket.rx_burst(&mut self.umem, 8, &mut frames), 0);
        redirected
    }
}

fn untagged() -> ProgramSettings {
    ProgramSettings { untagged: true, ..ProgramSettings::default() }
}

fn v6(text: &str, len: u8, xsk: bool) -> (Ipv6Addr, u8, bool) {
    (text.parse().unwrap(), len, xsk)
}

fn icmpv6(dst: &str, kind: u8) -> Vec<u8> {
    let mut frame = ipv6(PORT_MAC, dst, 100, 0);
    frame[20] = 58;
    frame[21] = 255;
    frame[54] = kind;
    frame
}

#[test]
#[ignore = "needs root"]
fn only_claimed_destinations_leave_the_kernel() {
    let mut port = Port::new(&untagged());
    let uscid = ipv6(PORT_MAC, "fcbb:0:1000:2000::", 100, 0);
    assert!(!port.claims(&uscid), "nothing is claimed yet");
    port.program
        .set_claims(
            &[v6("fcbb:0:1000::", 48, true), v6("fcbb:0:1000::1", 128, false)],
            &[("10.1.0.0".parse().unwrap(), 16, true), ("10.1.2.0".parse().unwrap(), 24, false)],
        )
        .unwrap();

    assert!(port.claims(&uscid));
    assert!(port.claims(&ipv6(PORT_MAC, "fcbb:0:1000::2", 60, 0)));
    assert!(!port.claims(&ipv6(PORT_MAC, "fcbb:0:1000::1", 100, 0)), "the router's own address inside its locator");
    assert!(!port.claims(&ipv6(PORT_MAC, "fcbb:0:1001::", 100, 0)));
    assert!(port.claims(&ipv4(PORT_MAC, "10.1.1.1")));
    assert!(!port.claims(&ipv4(PORT_MAC, "10.1.2.1")));
    assert!(!port.claims(&ipv4(PORT_MAC, "10.2.0.1")));

    port.program.set_claims(&[v6("fcbb:0:1001::", 48, true)], &[]).unwrap();
    assert!(!port.claims(&uscid), "a claim that was taken back");
    assert!(port.claims(&ipv6(PORT_MAC, "fcbb:0:1001::", 100, 0)));
    assert!(!port.claims(&ipv4(PORT_MAC, "10.1.1.1")));
}

#[test]
#[ignore = "needs root"]
fn of_an_outer_source_only_packet_too_big_is_claimed() {
    let mut port = Port::new(&untagged());
    let source = "2001:db8::1";
    port.program.set_claims(&[v6(source, 128, false)], &[]).unwrap();
    assert!(!port.claims(&icmpv6(source, 2)));
    port.program.set_outer_sources(&[source.parse().unwrap()].into()).unwrap();
    assert!(port.claims(&icmpv6(source, 2)));
    for kind in [1, 3, 4, 128, 135] {
        assert!(!port.claims(&icmpv6(source, kind)), "type {kind}");
    }
    assert!(!port.claims(&ipv6(PORT_MAC, source, 100, 0)));
    assert!(!port.claims(&icmpv6("2001:db8::2", 2)), "somebody else's");
    port.program.set_outer_sources(&["2001:db8::2".parse().unwrap()].into()).unwrap();
    assert!(!port.claims(&icmpv6(source, 2)));
    assert!(port.claims(&icmpv6("2001:db8::2", 2)));
}

#[test]
#[ignore = "needs root"]
fn what_is_the_kernels_stays_even_when_everything_is_claimed() {
    let mut port = Port::new(&ProgramSettings { claim_all: true, ..untagged() });
    let plain = ipv6(PORT_MAC, "2001:db8::1", 100, 0);
    assert!(port.claims(&plain));
    assert!(port.claims(&ipv4(PORT_MAC, "192.0.2.1")));
    assert!(port.claims(&icmpv6("2001:db8::1", 128)), "an echo request");

    for kind in 133..=137 {
        let mut from_the_link = icmpv6("2001:db8::1", kind);
        assert!(!port.claims(&from_the_link), "ND type {kind}");
        from_the_link[21] = 254;
        assert!(port.claims(&from_the_link), "type {kind}, forwarded by somebody");
    }
    assert!(!port.claims(&ipv6(PORT_MAC, "fe80::1", 100, 0)));
    assert!(!port.claims(&ipv6(PORT_MAC, "febf::1", 100, 0)));
    assert!(port.claims(&ipv6(PORT_MAC, "fec0::1", 100, 0)), "fe80::/10 ends here");
    assert!(!port.claims(&ipv6([0x33, 0x33, 0, 0, 0, 1], "ff02::1", 100, 0)));
    assert!(!port.claims(&ipv4([0xff; 6], "255.255.255.255")));
    assert!(!port.claims(&ipv4([1, 0, 0x5e, 0, 0, 5], "224.0.0.5")));

    let mut arp = plain.clone();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert!(!port.claims(&arp));
    assert!(!port.claims(&plain[..53]), "an IPv6 header that is one byte short");
    assert!(!port.claims(&ipv4(PORT_MAC, "192.0.2.1")[..33]));
    assert!(!port.claims(&icmpv6("2001:db8::1", 128)[..54]), "no ICMPv6 type to look at");

    port.program.claim_all(false).unwrap();
    assert!(!port.claims(&plain));
}

#[test]
#[ignore = "needs root"]
fn only_known_vlans_and_only_one_tag() {
    let mut port = Port::new(&ProgramSettings { vlans: vec![100], claim_all: true, ..ProgramSettings::default() });
    let plain = ipv6(PORT_MAC, "2001:db8::1", 100, 0);
    assert!(!port.claims(&plain), "untagged frames were not asked for");
    assert!(port.claims(&tagged(&plain, 100)));
    assert!(port.claims(&tagged(&plain, 0xe000 | 0x64)), "the priority bits are no part of the VID");
    assert!(port.claims(&tagged(&ipv4(PORT_MAC, "192.0.2.1"), 100)));
    assert!(!port.claims(&tagged(&plain, 101)));
    assert!(!port.claims(&tagged(&plain, 0)), "a priority tag");
    assert!(!port.claims(&tagged(&tagged(&plain, 100), 100)), "two tags");
    assert!(!port.claims(&tagged(&plain, 100)[..17]), "cut off inside the tag");

    port.program.set_vlans(&[0, 200, 200]).unwrap();
    assert!(!port.claims(&tagged(&plain, 100)));
    assert!(port.claims(&tagged(&plain, 200)));
    assert!(!port.claims(&tagged(&plain, 0)), "VID 0 cannot be asked for");
    port.program.set_untagged(true).unwrap();
    assert!(port.claims(&plain));
}

#[test]
#[ignore = "needs root"]
fn frames_for_another_machine_are_left_alone() {
    let mut port = Port::new(&ProgramSettings { claim_all: true, ..untagged() });
    let other = [2, 0, 0, 0, 0, 9];
    assert!(!port.claims(&ipv6(other, "2001:db8::1", 100, 0)));
    assert!(port.claims(&ipv6([0xff; 6], "2001:db8::1", 100, 0)), "group addresses are looked at");
    port.program.set_mac(other).unwrap();
    assert!(port.claims(&ipv6(other, "2001:db8::1", 100, 0)));
    assert!(!port.claims(&ipv6(PORT_MAC, "2001:db8::1", 100, 0)));
}

#[test]
#[ignore = "needs root"]
fn a_queue_without_a_socket_is_the_kernels() {
    let mut port = Port::new(&ProgramSettings { claim_all: true, ..untagged() });
    let plain = ipv6(PORT_MAC, "2001:db8::1", 100, 0);
    assert!(port.claims(&plain));
    port.program.clear_socket(0).unwrap();
    port.program.clear_socket(0).unwrap();
    assert!(!port.claims(&plain));
    port.program.set_socket(0, &port.socket).unwrap();
    assert!(port.claims(&plain));
}

/// A sender can choose the queue by its ports and addresses, so queues without a socket must guard, too.
#[test]
#[ignore = "needs root"]
fn a_queue_without_a_socket_guards_what_the_port_guards() {
    let mut port = Port::new(&ProgramSettings { claim_all: true, ..untagged() });
    port.program.set_rules(0, &Rules { guards_sids: true, ..Rules::default() }).unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    let plain = ipv6(PORT_MAC, "2001:db8::1", 100, 0);
    let mut names_segments = plain.clone();
    names_segments[20] = 43; // Routing header
    port.program.clear_socket(0).unwrap();
    assert!(!port.claims(&plain), "the kernel may forward it");
    let before = port.program.counts().unwrap();
    port.wire.send(&names_segments);
    let now = until("a verdict", || Some(port.program.counts().unwrap()).filter(|now| *now != before));
    assert_eq!((now.passed, now.dropped), (before.passed, before.dropped + 1));
    port.program.set_socket(0, &port.socket).unwrap();
    assert!(port.claims(&names_segments), "the worker refuses and counts it");
}

/// A device of the kernel above the port (a macvlan, a VLAN) takes frames that are not the port's. They are not
/// claimed, but the kernel gets only those that it may forward.
#[test]
#[ignore = "needs root"]
fn what_a_device_above_the_port_takes_is_guarded_too() {
    let mut port = Port::new(&ProgramSettings { claim_all: true, ..untagged() });
    let above = [2, 0, 0, 0, 0, 9];
    let plain = ipv6(above, "2001:db8::1", 100, 0);
    let named = |frame: &[u8], next_header_at: usize| {
        let mut frame = frame.to_vec();
        frame[next_header_at] = 43; // Routing header
        frame
    };
    let in_vlan = tagged(&ipv6(PORT_MAC, "2001:db8::1", 100, 0), 9);
    for (frame, next_header_at) in [(&plain, 20), (&in_vlan, 24)] {
        assert!(!port.claims(&named(frame, next_header_at)), "nothing is guarded yet");
    }
    port.program.set_rules(0, &Rules { guards_sids: true, ..Rules::default() }).unwrap();
    // A kernel that does not forward does not tell the program of its SIDs, and processes them all the same.
    assert!(port.claims(&plain), "it may be for a SID of the kernel");
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    for (frame, next_header_at) in [(&plain, 20), (&in_vlan, 24)] {
        assert!(!port.claims(frame), "the kernel may forward it");
        assert!(port.claims(&named(frame, next_header_at)), "the worker refuses and counts it");
    }
    let sources = [("2001:db8:a::".parse().unwrap(), 64)].into();
    port.program.set_rules(0, &Rules { guards_sids: true, allowed_sources: sources, ..Rules::default() }).unwrap();
    assert!(port.claims(&plain), "a source that the port does not allow");
    assert!(!port.claims(&in_vlan), "the sources of a VLAN that is no port are the kernel's business");
}

/// Claims change under traffic. An address that is claimed before and after by different prefixes never reaches the
/// kernel in between.
#[test]
#[ignore = "needs root"]
fn a_change_of_claims_has_no_hole() {
    let mut port = Port::new(&untagged());
    let narrow: Vec<_> = (0..64).map(|n| (Ipv6Addr::new(0xfcbb, 0, 0x1000, n, 0, 0, 0, 0), 64, true)).collect();
    let wide = [v6("fcbb:0:1000::", 48, true)];
    port.program.set_claims(&wide, &[]).unwrap();
    let before = port.program.counts().unwrap();
    let packet = ipv6(PORT_MAC, "fcbb:0:1000:7::1", 100, 0);
    std::thread::scope(|scope| {
        let far_end = &port.wire;
        let sender = scope.spawn(move || (0..20_000).for_each(|_| far_end.send(&packet)));
        while !sender.is_finished() {
            port.program.set_claims(&narrow, &[]).unwrap();
            port.program.set_claims(&wide, &[]).unwrap();
        }
    });
    let after = until("all verdicts", || {
        let now = port.program.counts().unwrap();
        (now.redirected + now.passed - before.redirected - before.passed >= 20_000).then_some(now)
    });
    assert_eq!(after.passed, before.passed, "packets slipped through");
}

#[test]
#[ignore = "needs root"]
fn a_foreign_program_is_named_and_left_alone() {
    enter();
    veth("port", "peer", 1500, 1);
    for mode in [Mode::Native, Mode::Generic] {
        let foreign = Program::attach("port", mode, &untagged()).unwrap();
        for wanted in [Mode::Auto, Mode::Native, Mode::Generic] {
            let refused = Program::attach("port", wanted, &untagged()).unwrap_err();
            let XskError::ForeignProgram { id, ref name, .. } = refused else { panic!("{refused}") };
            assert!(id > 0);
            assert_eq!(name, "srv6d_claim");
            assert!(refused.to_string().contains(&format!("program {id}")), "{refused}");
            let on = srv6d_xsk::probe::interface("port").unwrap().program.unwrap();
            assert_eq!((on.id, on.generic), (id, mode == Mode::Generic));
        }
        drop(foreign);
        assert_eq!(srv6d_xsk::probe::interface("port").unwrap().program, None);
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_attached_by_iproute2_is_left_alone() {
    enter();
    veth("port", "peer", 1500, 1);
    let object = std::env::temp_dir().join(format!("srv6d-{}-claim.o", std::process::id()));
    std::fs::write(&object, include_bytes!(concat!(env!("OUT_DIR"), "/claim.o"))).unwrap();
    let (attached, said) = try_ip(&format!("link set dev port xdp obj {} sec xdp.frags", object.display()));
    std::fs::remove_file(&object).unwrap();
    if !attached {
        // An iproute2 without libbpf cannot load the object at all.
        println!("skipped: this iproute2 cannot attach the object: {said}");
        return;
    }
    let refused = Program::attach("port", Mode::Auto, &untagged()).unwrap_err();
    assert!(matches!(refused, XskError::ForeignProgram { .. }), "{refused}");
    ip("link set dev port xdp off");
    Program::attach("port", Mode::Auto, &untagged()).unwrap();
}

/// This is no test of its own: it is the process that [`a_killed_process_gives_the_port_back`] kills.
#[test]
#[ignore = "needs root"]
fn child_that_holds_a_port() {
    if std::env::var_os("SRV6D_XSK_CHILD").is_none() {
        return;
    }
    let mut umem = Umem::new(4096).unwrap();
    let settings = ProgramSettings { claim_all: true, ..untagged() };
    let mut program = Program::attach("port", Mode::Auto, &settings).unwrap();
    let mut socket = Socket::open(&umem, "port", 0, Mode::Auto, Rings::default()).unwrap();
    socket.rx_burst(&mut umem, 0, &mut Vec::new());
    program.set_socket(0, &socket).unwrap();
    println!("\nchild is ready");
    std::thread::sleep(netns::DEADLINE * 3);
}

#[test]
#[ignore = "needs root"]
fn a_killed_process_gives_the_port_back() {
    enter();
    veth("port", "peer", 1500, 1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "claims::child_that_holds_a_port", "--ignored", "--nocapture"])
        .env("SRV6D_XSK_CHILD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "child is ready"));
    // If the kernel gets echo requests for this address, it answers them.
    std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
    ip("addr add 192.0.2.1/24 dev port");
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev port");
    let wire = Wire::open("peer");
    let request = echo_request();
    wire.send(&request);
    assert!(wire.next().is_none_or(|frame| frame[..6] != netns::PEER_MAC), "the child has the port");

    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(srv6d_xsk::probe::interface("port").unwrap().program, None, "gone with its process");
    wire.send(&request);
    let reply = until("an answer of the kernel", || wire.next().filter(|frame| frame[..6] == netns::PEER_MAC));
    assert_eq!(reply[34], 0, "an echo reply");
    // A successor can use the queue at once after the process was killed.
    let umem = Umem::new(4096).unwrap();
    Program::attach("port", Mode::Auto, &untagged()).unwrap();
    Socket::open(&umem, "port", 0, Mode::Auto, Rings::default()).unwrap();
}

/// Returns an ICMP echo request from 192.0.2.2 to 192.0.2.1 with correct checksums.
fn echo_request() -> Vec<u8> {
    let mut frame = ipv4(PORT_MAC, "192.0.2.1");
    frame[23] = 1;
    frame[26..30].copy_from_slice(&[192, 0, 2, 2]);
    frame[15] = 0;
    frame[18..22].fill(0);
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum);
    frame[34..60].fill(0);
    frame[34] = 8;
    let sum = checksum(&frame[34..60]);
    frame[36..38].copy_from_slice(&sum);
    frame
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap();
    (!folded).to_be_bytes()
}
