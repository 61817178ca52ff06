//! Tests ports that appear and disappear, and what happens to their chunks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failure here is a failed test

use crate::netns;

use netns::{PORT_MAC, Wire, assert_adds_up, bytes, drain, enter, ip, ipv6, receive, until, veth};
use srv6d_xsk::{
    BusyPolling, Mode, Program, ProgramSettings, Rings, Socket, Umem, UmemRings, XskError, device_features,
};

fn claim_all() -> ProgramSettings {
    ProgramSettings { untagged: true, claim_all: true, ..ProgramSettings::default() }
}

fn port(umem: &mut Umem, ifname: &str) -> (Program, Socket) {
    let mut program = Program::attach(ifname, Mode::Auto, &claim_all()).unwrap();
    let mut socket = Socket::open(umem, ifname, 0, Mode::Auto, Rings::default()).unwrap();
    socket.rx_burst(umem, 0, &mut Vec::new());
    program.set_socket(0, &socket).unwrap();
    (program, socket)
}

/// Sends a packet through the port in both directions.
fn works(umem: &mut Umem, socket: &mut Socket, peer: &str) {
    let wire = Wire::open(peer);
    let packet = ipv6(PORT_MAC, "2001:db8::1", 200, 9);
    wire.send(&packet);
    let frame = receive(umem, socket);
    assert_eq!(bytes(umem, &frame), packet);
    socket.tx(frame).unwrap();
    socket.flush(umem);
    assert_eq!(until("the packet back", || wire.next()), packet);
    drain(umem, socket);
}

/// The first socket's port stays; another port is deleted under load and made again, twice.
#[test]
#[ignore = "needs root"]
fn a_port_is_deleted_and_comes_back() {
    enter();
    veth("own", "ownpeer", 1500, 1);
    let mut umem = Umem::with_rings(2048, UmemRings { fill: 256, completion: 256 }).unwrap();
    let (_anchor_program, mut anchor) = port(&mut umem, "own");
    for _ in 0..2 {
        veth("b", "pb", 1500, 1);
        let (program, mut b) = port(&mut umem, "b");
        works(&mut umem, &mut b, "pb");
        assert_eq!(assert_adds_up(&mut umem).rx, 512);

        assert!(!b.device_is_gone());
        // These frames are sent but not flushed, so that some are lost with the device.
        for _ in 0..20 {
            let mut frame = umem.frame().unwrap();
            frame.place(frame.start(), 100);
            frame.head_mut().copy_from_slice(&ipv6(PORT_MAC, "2001:db8::1", 100, 0));
            b.tx(frame).unwrap();
        }
        ip("link del dev b");
        b.flush(&mut umem);
        assert!(b.is_gone() && b.device_is_gone());
        assert_eq!(assert_adds_up(&mut umem).tx, 20);
        b.close(&mut umem);
        drop(program);
        let sum = assert_adds_up(&mut umem);
        assert_eq!((sum.rx, sum.tx, sum.held, sum.quarantine), (256, 0, 0, 0), "{sum:?}");
    }
    works(&mut umem, &mut anchor, "ownpeer");
}

/// The case that the crate's documentation warns of: the UMEM depends on the first socket's device.
#[test]
#[ignore = "needs root"]
fn a_umem_whose_first_device_is_gone_binds_no_more_and_says_so() {
    enter();
    veth("first", "pf", 1500, 1);
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(8192).unwrap();
    let (_program, first) = port(&mut umem, "first");
    ip("link del dev first");
    first.close(&mut umem);
    let sum = assert_adds_up(&mut umem);
    assert_eq!(sum.free, sum.frames, "the device is gone, so the kernel has let go: {sum:?}");
    let refused = Socket::open(&umem, "b", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(matches!(refused, XskError::FirstSocket { .. }), "{refused}");
    assert!(refused.to_string().contains("deleted"), "{refused}");
}

#[test]
#[ignore = "needs root"]
fn a_closed_first_socket_keeps_its_chunks_until_its_device_goes() {
    enter();
    veth("first", "pf", 1500, 1);
    let mut umem = Umem::with_rings(1024, UmemRings { fill: 64, completion: 64 }).unwrap();
    let (_program, first) = port(&mut umem, "first");
    first.close(&mut umem);
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.quarantine, sum.rx), (64, 0), "the kernel may still write into them");
    let refused = Socket::open(&umem, "first", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(matches!(refused, XskError::FirstSocket { .. }), "{refused}");
    ip("link del dev first");
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.quarantine, sum.free), (0, 1024));
}

#[test]
#[ignore = "needs root"]
fn a_closed_port_is_opened_again_at_once() {
    enter();
    veth("own", "ownpeer", 1500, 1);
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(16384).unwrap();
    let (_anchor_program, _anchor) = port(&mut umem, "own");
    for _ in 0..3 {
        let (_program, mut b) = port(&mut umem, "b");
        works(&mut umem, &mut b, "pb");
        b.close(&mut umem);
        assert_eq!(assert_adds_up(&mut umem).rx, 2048);
    }
    // The socket is dropped without being closed: the UMEM finds its chunks nevertheless.
    drop(port(&mut umem, "b"));
    assert_eq!(assert_adds_up(&mut umem).rx, 2048);
}

/// Each of the rings could take half of the chunks, which would be right for one port only.
#[test]
#[ignore = "needs root"]
fn ports_that_come_later_get_chunks_too() {
    enter();
    let mut umem = Umem::with_rings(1024, UmemRings { fill: 512, completion: 512 }).unwrap();
    let mut ports = Vec::new();
    for number in 0..5 {
        let (name, peer) = (format!("b{number}"), format!("pb{number}"));
        veth(&name, &peer, 1500, 1);
        ports.push((port(&mut umem, &name), peer));
        assert!(assert_adds_up(&mut umem).free > 0, "some are left after {name}");
    }
    for ((_program, socket), peer) in &mut ports {
        works(&mut umem, socket, peer);
    }
}

#[test]
#[ignore = "needs root"]
fn a_taken_queue_and_a_missing_queue_are_named() {
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(8192).unwrap();
    let (_program, _socket) = port(&mut umem, "b");
    let other = Umem::new(64).unwrap();
    let taken = Socket::open(&other, "b", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(taken.to_string().contains("b queue 0") && taken.to_string().contains("owns it"), "{taken}");
    let twice = Socket::open(&umem, "b", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(twice.to_string().contains("busy"), "{twice}");
    let missing = Socket::open(&other, "b", 7, Mode::Auto, Rings::default()).unwrap_err();
    assert!(missing.to_string().contains("ethtool -l"), "{missing}");
    let none = Socket::open(&other, "nosuch", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(none.to_string().contains("nosuch: no such interface"), "{none}");
    let odd = Socket::open(&other, "b", 0, Mode::Auto, Rings { rx: 100, tx: 64 }).unwrap_err();
    assert!(odd.to_string().contains("rx ring of 100"), "{odd}");
}

#[test]
#[ignore = "needs root"]
fn a_hidden_proc_is_named() {
    enter();
    veth("b", "pb", 1500, 1);
    let umem = Umem::new(64).unwrap();
    // From here on mounts concern this thread alone.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    for mount in ["mount --make-rprivate /", "mount -t tmpfs none /proc"] {
        let arguments: Vec<&str> = mount.split(' ').collect();
        assert!(std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success(), "{mount}");
    }
    let refused = Socket::open(&umem, "b", 0, Mode::Auto, Rings::default()).unwrap_err();
    assert!(matches!(refused, XskError::TxRing { .. }), "{refused}");
    assert!(refused.to_string().contains("mount -t proc"), "{refused}");
}

#[test]
#[ignore = "needs root"]
fn the_mode_and_its_reason_are_told() {
    enter();
    veth("b", "pb", 1500, 1);
    let umem = Umem::new(64).unwrap();
    let program = Program::attach("b", Mode::Auto, &claim_all()).unwrap();
    assert_eq!(program.chosen().0, Mode::Native);
    let socket = Socket::open(&umem, "b", 0, Mode::Auto, Rings::default()).unwrap();
    let (mode, reason) = socket.chosen();
    assert_eq!(mode, Mode::Native);
    assert!(reason.contains("refused zero-copy"), "{reason}");
    assert!(socket.multi_buffer());

    veth("c", "pc", 1500, 1);
    let program = Program::attach("c", Mode::Generic, &claim_all()).unwrap();
    assert_eq!(program.chosen().0, Mode::Generic);
    let socket = Socket::open(&umem, "c", 0, Mode::Auto, Rings::default()).unwrap();
    assert_eq!(socket.chosen().0, Mode::Generic, "{}", socket.chosen().1);

    let refused = Socket::open(&Umem::new(64).unwrap(), "pc", 0, Mode::ZeroCopy, Rings::default()).unwrap_err();
    assert!(refused.to_string().contains("mode `auto`"), "{refused}");
    // A bridge driver has no native XDP mode.
    ip("link add name br type bridge");
    let program = Program::attach("br", Mode::Auto, &claim_all()).unwrap();
    assert_eq!(program.chosen().0, Mode::Generic);
    assert!(program.chosen().1.contains("driver"), "{}", program.chosen().1);
    assert!(matches!(Program::attach("br", Mode::Native, &claim_all()), Err(XskError::ForeignProgram { .. })));
}

#[test]
#[ignore = "needs root"]
fn a_worker_opens_sockets_from_another_thread() {
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(8192).unwrap();
    let handle = umem.handle();
    // A scoped thread is in the test's namespace, as a control thread would be.
    let mut socket = std::thread::scope(|scope| {
        scope.spawn(|| Socket::open_on(&handle, "b", 0, Mode::Auto, Rings::default()).unwrap()).join().unwrap()
    });
    let mut program = Program::attach("b", Mode::Auto, &claim_all()).unwrap();
    program.set_socket(0, &socket).unwrap();
    socket.rx_burst(&mut umem, 0, &mut Vec::new());
    works(&mut umem, &mut socket, "pb");
}

#[test]
#[ignore = "needs root"]
fn a_link_that_is_down_holds_packets_and_blocks_nobody() {
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(8192).unwrap();
    let (_program, mut b) = port(&mut umem, "b");
    ip("link set dev b down");
    let mut frame = umem.frame().unwrap();
    frame.place(frame.start(), 100);
    frame.head_mut().copy_from_slice(&ipv6(PORT_MAC, "2001:db8::1", 100, 0));
    b.tx(frame).unwrap();
    b.flush(&mut umem);
    assert!(b.tx_pending() && !b.is_gone());
    assert_eq!(b.stats().unwrap().tx_wakeup_again, 1);
    ip("link set dev b up");
    drain(&mut umem, &mut b);
    assert_eq!(assert_adds_up(&mut umem).tx, 0);
}

/// The kernel's default is 32 packets per wake-up, and EAGAIN for the rest.
#[test]
#[ignore = "needs root"]
fn one_wake_up_sends_more_than_one_burst() {
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(17)) {
        println!("SKIPPED: {release} has no XDP_MAX_TX_SKB_BUDGET (Linux 6.17)");
        return;
    }
    enter();
    veth("b", "pb", 1500, 1);
    let wire = Wire::open("pb");
    let mut umem = Umem::new(8192).unwrap();
    let (_program, mut b) = port(&mut umem, "b");
    for seed in 0..100 {
        let mut frame = umem.frame().unwrap();
        frame.place(frame.start(), 100);
        frame.head_mut().copy_from_slice(&ipv6(netns::PEER_MAC, "2001:db8::1", 100, seed));
        b.tx(frame).unwrap();
    }
    assert!(!b.device_is_gone(), "it asks with one wake-up");
    let mut arrived = 0;
    until("all packets arrive", || {
        arrived += usize::from(wire.next().is_some());
        (arrived == 100).then_some(())
    });
    drain(&mut umem, &mut b);
    assert_eq!(assert_adds_up(&mut umem).tx, 0);
}

#[test]
#[ignore = "needs root"]
fn offloads_are_read_and_switched() {
    enter();
    veth("b", "pb", 1500, 3);
    assert!(device_features::tx_checksum_on("b").unwrap());
    device_features::set_tx_checksum_off("b").unwrap();
    assert!(!device_features::tx_checksum_on("b").unwrap());
    device_features::set_segmentation_off("b").unwrap();
    let now = device_features::features("b").unwrap();
    assert!(!now.tx_checksum && !now.tso && !now.gso, "{now:?}");
    assert_eq!(device_features::driver("b").unwrap(), "veth");
    assert_eq!(device_features::queues("b").unwrap(), 3);
    assert_eq!(device_features::mac("b").unwrap(), PORT_MAC);
    assert_eq!(device_features::mtu("b").unwrap(), 1500);
    let port = srv6d_xsk::probe::interface("b").unwrap();
    assert_eq!((port.driver.as_str(), port.queues, port.program), ("veth", 3, None));
    let wrong = device_features::tx_checksum_on("nosuch").unwrap_err();
    assert!(wrong.to_string().contains("nosuch: no such interface"), "{wrong}");
}

/// The kernel associates no NAPI with a socket on a veth: it accepts the options, they have no effect, and packets
/// arrive as before.
#[test]
#[ignore = "needs root"]
fn busy_polling_is_taken_on_a_veth_and_does_nothing() {
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(8192).unwrap();
    let (_program, mut b) = port(&mut umem, "b");
    let watch = b.prefer_busy_poll(64);
    assert_eq!(watch.now(), BusyPolling::Unknown);
    works(&mut umem, &mut b, "pb");
    assert_eq!(watch.now(), BusyPolling::NoNapi);
    // The kernel accepts no budget above 65535.
    assert_eq!(b.prefer_busy_poll(1 << 16).now(), BusyPolling::Refused);
    works(&mut umem, &mut b, "pb");
}

#[test]
#[ignore = "needs root"]
fn what_waits_in_a_ring_is_not_lost_and_what_finds_it_full_is() {
    const RING: u32 = 64;
    const SENT: u64 = 200;
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::with_rings(2048, UmemRings { fill: 256, completion: 256 }).unwrap();
    let mut program = Program::attach("b", Mode::Auto, &claim_all()).unwrap();
    let mut socket = Socket::open(&umem, "b", 0, Mode::Auto, Rings { rx: RING, tx: RING }).unwrap();
    socket.rx_burst(&mut umem, 0, &mut Vec::new());
    program.set_socket(0, &socket).unwrap();
    let (wire, losses) = (Wire::open("pb"), socket.losses());
    let packet = ipv6(PORT_MAC, "2001:db8::1", 200, 9);
    let send = |count: u64, all: u64| {
        (0..count).for_each(|_| wire.send(&packet));
        until("all redirected", || (program.counts().unwrap().redirected == all).then_some(()));
    };
    send(u64::from(RING) / 2, u64::from(RING) / 2);
    assert_eq!(losses.lost(), 0, "nobody has looked for them yet, and none is lost");
    send(SENT - u64::from(RING) / 2, SENT);
    let lost = losses.lost();
    let mut frames = Vec::new();
    while socket.rx_burst(&mut umem, 64, &mut frames) > 0 {}
    assert!(lost > 0);
    assert_eq!(frames.len() as u64 + lost, SENT);
    for frame in frames {
        assert!(umem.recycle(frame).is_none());
    }
    assert!(!losses.is_closed());
    socket.close(&mut umem);
    assert_eq!((losses.lost(), losses.is_closed()), (lost, true), "known for ever");
}

/// A child process that was started while a port was open does not keep its queue.
#[test]
#[ignore = "needs root"]
fn a_child_process_holds_no_queue() {
    enter();
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::new(4096).unwrap();
    let bound = port(&mut umem, "b");
    let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    drop(bound);
    drop(umem);
    let mut successor = Umem::new(4096).unwrap();
    let opened = Socket::open(&successor, "b", 0, Mode::Auto, Rings::default());
    child.kill().unwrap();
    child.wait().unwrap();
    opened.unwrap().close(&mut successor);
}
