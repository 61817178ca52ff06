//! Tests that packets pass through real sockets byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failure here is a failed test

use crate::netns;

use std::time::{Duration, Instant};

use netns::{PORT_MAC, Wire, assert_adds_up, bytes, drain, enter, ipv6, receive, until, veth};
use srv6d_xsk::{
    CHUNK, Frame, MAX_CHUNKS, MAX_PUSH, Mode, Program, ProgramSettings, ROOM, Rings, Socket, Umem, UmemRings, Waker,
    wait,
};

const CLAIM: &str = "fcbb:0:1000::";

/// Attaches a program with a claim and opens a socket on queue 0 of a port.
fn port(umem: &Umem, ifname: &str, mode: Mode) -> (Program, Socket) {
    let settings = ProgramSettings { untagged: true, ..ProgramSettings::default() };
    let mut program = Program::attach(ifname, mode, &settings).unwrap();
    let socket = Socket::open(umem, ifname, 0, Mode::Auto, Rings::default()).unwrap();
    program.set_claims(&[(CLAIM.parse().unwrap(), 48, true)], &[]).unwrap();
    program.set_socket(0, &socket).unwrap();
    (program, socket)
}

/// Makes a namespace with one port `a` that is ready to receive from its peer `pa`.
fn alone(mtu: u32) -> (Program, Umem, Socket) {
    enter();
    veth("a", "pa", mtu, 1);
    let mut umem = Umem::new(4096).unwrap();
    let (program, mut a) = port(&umem, "a", Mode::Native);
    a.rx_burst(&mut umem, 0, &mut Vec::new());
    (program, umem, a)
}

/// Inserts `n` bytes of 0xee behind the Ethernet header, as an encapsulation does. The bytes behind them stay in place.
fn push(frame: &mut Frame, n: usize) {
    let (start, len) = (frame.start(), frame.head_len());
    let chunk = frame.chunk_mut();
    chunk.copy_within(start..start + 14, start - n);
    chunk[start - n + 14..start + 14].fill(0xee);
    frame.place(start - n, len + n);
}

/// Removes `n` bytes behind the Ethernet header. The bytes behind them stay in place.
fn pull(frame: &mut Frame, n: usize) {
    let (start, len) = (frame.start(), frame.head_len());
    frame.chunk_mut().copy_within(start..start + 14, start + n);
    frame.place(start + n, len - n);
}

/// Returns the address at which the head and its payload end.
fn end(frame: &Frame) -> *const u8 {
    frame.head().as_ptr_range().end
}

fn pushed(packet: &[u8], n: usize) -> Vec<u8> {
    [&packet[..14], &vec![0xee; n], &packet[14..]].concat()
}

fn pulled(packet: &[u8], n: usize) -> Vec<u8> {
    [&packet[..14], &packet[14 + n..]].concat()
}

/// A change of a frame between two ports.
type Rewrite = fn(&mut Frame);

/// Sends packets of every size around a boundary from port a to port b: unchanged, with 40 and with 176 bytes pushed,
/// and with 40 pulled.
fn crosses(mode: Mode, mtu: u32, sizes: &[usize]) {
    enter();
    veth("a", "pa", mtu, 1);
    veth("b", "pb", mtu + 200, 1);
    let mut umem = Umem::new(8192).unwrap();
    let (_on_a, mut a) = port(&umem, "a", mode);
    let (_on_b, mut b) = port(&umem, "b", mode);
    a.rx_burst(&mut umem, 0, &mut Vec::new());
    let (source, sink) = (Wire::open("pa"), Wire::open("pb"));

    for (seed, &size) in (0_u8..).zip(sizes) {
        let packet = ipv6(PORT_MAC, "fcbb:0:1000::7", size, seed);
        let rewrites: [(Rewrite, Vec<u8>); 4] = [
            (|_| {}, packet.clone()),
            (|frame| push(frame, 40), pushed(&packet, 40)),
            (|frame| push(frame, 176), pushed(&packet, 176)),
            (|frame| pull(frame, 40), pulled(&packet, 40)),
        ];
        for (rewrite, expected) in rewrites {
            source.send(&packet);
            let mut frame = receive(&mut umem, &mut a);
            assert_eq!(bytes(&umem, &frame), packet, "received, size {size}");
            assert_eq!((frame.packet_len(), frame.head_len()), (size, size.min(ROOM)));
            assert!(frame.start() >= MAX_PUSH, "no room in front of {}", frame.start());
            let payload = end(&frame);
            rewrite(&mut frame);
            assert_eq!(end(&frame), payload, "it was moved, size {size}");
            b.tx(frame).unwrap();
            b.flush(&mut umem);
            let arrived = until("the packet at the far end", || sink.next());
            assert!(arrived == expected, "sent, size {size}: {} bytes, wanted {}", arrived.len(), expected.len());
        }
    }
    drain(&mut umem, &mut b);
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.held, sum.tx), (0, 0), "{sum:?}");
    assert_eq!(b.stats().unwrap().tx_invalid_descs, 0);
}

#[test]
#[ignore = "needs root"]
fn packets_cross_two_ports_byte_for_byte() {
    crosses(Mode::Native, 1500, &[95, 100, 128, 512, 1499, 1500, 1514]);
}

#[test]
#[ignore = "needs root"]
fn jumbo_packets_cross_whole() {
    crosses(Mode::Native, 9500, &[128, 2048, 3583, 3584, 3585, 3839, 3840, 3841, 7680, 7681, 9000, 9514]);
}

#[test]
#[ignore = "needs root"]
fn jumbo_packets_cross_whole_in_generic_mode() {
    crosses(Mode::Generic, 9500, &[128, 3584, 3585, 3841, 9514]);
}

#[test]
#[ignore = "needs root"]
fn a_frame_is_sent_from_wherever_it_is_placed() {
    enter();
    veth("b", "pb", 9500, 1);
    let mut umem = Umem::new(4096).unwrap();
    let (_program, mut b) = port(&umem, "b", Mode::Native);
    let sink = Wire::open("pb");
    let short = [0, 1, 2, 13, 80, 216, 255, 256, 257, 1000, CHUNK - 100].map(|start| (start, 100));
    let long = [(0, CHUNK), (1, CHUNK - 1), (80, CHUNK - 80), (500, 3000)];
    for (seed, (start, len)) in (0_u8..).zip(short.into_iter().chain(long)) {
        let packet = ipv6(PORT_MAC, "2001:db8::1", len, seed);
        let mut frame = umem.frame().unwrap();
        assert_eq!((frame.start(), frame.head_len()), (MAX_PUSH, 0));
        frame.chunk_mut().fill(0xa5);
        frame.place(start, len);
        frame.head_mut().copy_from_slice(&packet);
        b.tx(frame).unwrap();
        b.flush(&mut umem);
        assert!(until("the packet", || sink.next()) == packet, "{len} bytes at {start}");
    }
    let nothing = umem.frame().unwrap();
    assert!(umem.recycle(b.tx(nothing).unwrap_err()).is_none());
    drain(&mut umem, &mut b);
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.held, sum.tx), (0, 0), "{sum:?}");
    assert_eq!(b.stats().unwrap().tx_invalid_descs, 0);
}

#[test]
#[ignore = "needs root"]
fn a_packet_of_too_many_chunks_is_dropped_and_counted() {
    let (_program, mut umem, mut a) = alone(20_000);
    let wire = Wire::open("pa");
    let longest = ipv6(PORT_MAC, "fcbb:0:1000::7", MAX_CHUNKS * ROOM, 1);
    wire.send(&ipv6(PORT_MAC, "fcbb:0:1000::7", MAX_CHUNKS * ROOM + 1, 0));
    wire.send(&longest);
    let frame = receive(&mut umem, &mut a);
    assert!(bytes(&umem, &frame) == longest);
    assert_eq!((a.stats().unwrap().rx_too_long, a.stats().unwrap().rx_packets), (1, 1));
    a.recycle(&mut umem, frame);
    assert_eq!(assert_adds_up(&mut umem).held, 0);
}

#[test]
#[ignore = "needs root"]
fn a_cut_off_tail_is_not_sent_and_its_chunks_return() {
    let (_program, mut umem, mut a) = alone(9500);
    let wire = Wire::open("pa");
    let packet = ipv6(PORT_MAC, "fcbb:0:1000::7", 9000, 1);
    wire.send(&packet);
    let mut frame = receive(&mut umem, &mut a);
    assert_eq!(assert_adds_up(&mut umem).held, 3, "9000 bytes: 3840, 3840, 1320");
    frame.drop_tail();
    assert_eq!((frame.head_len(), frame.tail_len()), (ROOM, 0));
    a.tx(frame).unwrap();
    a.flush(&mut umem);
    assert_eq!(until("the head", || wire.next()), packet[..ROOM]);
    drain(&mut umem, &mut a);
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.held, sum.tx), (0, 0), "{sum:?}");
}

#[test]
#[ignore = "needs root"]
fn a_frame_is_copied_between_packet_memories_and_refused_without() {
    enter();
    veth("a", "pa", 9500, 1);
    veth("b", "pb", 9500, 1);
    let (mut near, mut far) = (Umem::new(4096).unwrap(), Umem::new(4096).unwrap());
    let (_on_a, mut a) = port(&near, "a", Mode::Native);
    let (_on_b, mut b) = port(&far, "b", Mode::Native);
    a.rx_burst(&mut near, 0, &mut Vec::new());
    let (source, sink) = (Wire::open("pa"), Wire::open("pb"));
    let packet = ipv6(PORT_MAC, "fcbb:0:1000::7", 9000, 3);
    source.send(&packet);
    let frame = receive(&mut near, &mut a);
    let mut frame = b.tx(frame).unwrap_err();
    push(&mut frame, 176);
    let packet = pushed(&packet, 176);
    let frame = far.recycle(frame).unwrap();
    let copy = far.copy_of(&near, &frame).unwrap();
    assert_eq!(assert_adds_up(&mut near).held, 3, "4016, 3840, 1320");
    assert_eq!(assert_adds_up(&mut far).held, 3, "4096, 3840, 1240");
    assert_eq!(bytes(&far, &copy), packet);
    b.tx(copy).unwrap();
    b.flush(&mut far);
    assert_eq!(until("the copy", || sink.next()), packet);
    let longest = far.frame_of(&vec![7; 19_456]).unwrap();
    assert_eq!((longest.packet_len(), assert_adds_up(&mut far).held), (19_456, 5));
    assert!(far.recycle(longest).is_none());
    assert!(far.frame_of(&vec![7; 19_457]).is_none(), "more than the chunks of a frame hold");
    let mut small = Umem::new(2).unwrap();
    assert!(small.copy_of(&near, &frame).is_none(), "too few chunks");
    assert!(small.copy_of(&far, &frame).is_none(), "the frame is not of that memory");
    assert_eq!(assert_adds_up(&mut small).free, 2);
    assert!(near.recycle(frame).is_none());
    drain(&mut far, &mut b);
    assert_eq!(assert_adds_up(&mut near).held, 0);
    assert_eq!(assert_adds_up(&mut far).held, 0);
}

#[test]
#[ignore = "needs root"]
fn a_sleeping_worker_wakes_for_a_packet_and_for_its_waker() {
    use std::os::fd::AsFd;

    let (_program, mut umem, mut a) = alone(1500);
    let waker = Waker::new().unwrap();
    let idle = wait(&[a.as_fd()], &waker, Some(Duration::from_millis(5))).unwrap();
    assert!(!idle.readable && !idle.by_waker && !idle.error);
    Wire::open("pa").send(&ipv6(PORT_MAC, "fcbb:0:1000::7", 100, 0));
    let woken = wait(&[a.as_fd()], &waker, Some(netns::DEADLINE)).unwrap();
    assert!(woken.readable && !woken.by_waker);
    let frame = receive(&mut umem, &mut a);
    a.recycle(&mut umem, frame);
    waker.wake();
    assert!(wait(&[a.as_fd()], &waker, None).unwrap().by_waker);
}

/// Two queues of one port have a worker each, with its own packet memory. Every packet comes out on one of the two.
#[test]
#[ignore = "needs root"]
fn two_queues_two_packet_memories() {
    const PACKETS: usize = 200;

    enter();
    veth("a", "pa", 1500, 2);
    let mut umems = [Umem::new(4096).unwrap(), Umem::new(4096).unwrap()];
    let settings = ProgramSettings { untagged: true, claim_all: true, ..ProgramSettings::default() };
    let mut program = Program::attach("a", Mode::Auto, &settings).unwrap();
    let mut sockets: Vec<Socket> = Vec::new();
    for (queue, umem) in (0_u32..).zip(&mut umems) {
        let mut socket = Socket::open(umem, "a", queue, Mode::Auto, Rings::default()).unwrap();
        socket.rx_burst(umem, 0, &mut Vec::new());
        program.set_socket(queue, &socket).unwrap();
        sockets.push(socket);
    }
    // The transmit queue of a packet socket follows the CPU it sends from, and
    // a veth's receive queue is its peer's transmit queue.
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus: Vec<usize> =
        (0..nix::sched::CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).take(2).collect();
    let sender = std::thread::spawn(move || {
        let wire = Wire::open("pa");
        for at in 0..PACKETS {
            let mut set = nix::sched::CpuSet::new();
            set.set(cpus[at % cpus.len()]).unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
            wire.send(&ipv6(PORT_MAC, &format!("2001:db8::{at:x}"), 100, 0));
        }
    });
    let mut seen = [0; 2];
    let mut frames = Vec::new();
    until("all packets", || {
        for ((socket, umem), seen) in sockets.iter_mut().zip(&mut umems).zip(&mut seen) {
            *seen += socket.rx_burst(umem, 64, &mut frames);
            for frame in frames.drain(..) {
                socket.recycle(umem, frame);
            }
        }
        (seen.iter().sum::<usize>() == PACKETS).then_some(())
    });
    sender.join().unwrap();
    assert!(seen.iter().all(|&n| n > 0), "one queue had nothing: {seen:?}");
    for umem in &mut umems {
        assert_eq!(assert_adds_up(umem).held, 0);
    }
}

/// Uses the smallest rings that work and sends more packets than they hold, in both directions at once: no chunk is
/// lost, and no call blocks.
#[test]
#[ignore = "needs root"]
fn tiny_rings_under_load_lose_no_chunk() {
    enter();
    veth("a", "pa", 1500, 1);
    veth("b", "pb", 1500, 1);
    let mut umem = Umem::with_rings(64, UmemRings { fill: 16, completion: 8 }).unwrap();
    let settings = ProgramSettings { untagged: true, claim_all: true, ..ProgramSettings::default() };
    let rings = Rings { rx: 8, tx: 16 };
    let mut sockets = Vec::new();
    let mut programs = Vec::new();
    for ifname in ["a", "b"] {
        let mut program = Program::attach(ifname, Mode::Auto, &settings).unwrap();
        let mut socket = Socket::open(&umem, ifname, 0, Mode::Auto, rings).unwrap();
        socket.rx_burst(&mut umem, 0, &mut Vec::new());
        program.set_socket(0, &socket).unwrap();
        sockets.push(socket);
        programs.push(program);
    }
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let senders: Vec<_> = ["pa", "pb"]
        .map(|ifname| {
            let (wire, stop) = (Wire::open(ifname), stop.clone());
            std::thread::spawn(move || {
                let packet = ipv6(PORT_MAC, "2001:db8::1", 200, 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    wire.send(&packet);
                }
            })
        })
        .into_iter()
        .collect();

    let end = Instant::now() + Duration::from_secs(5);
    let (mut forwarded, mut dropped) = (0_u64, 0_u64);
    let mut frames = Vec::new();
    let mut round = 0;
    while Instant::now() < end {
        let from = round % 2;
        round += 1;
        sockets[from].rx_burst(&mut umem, 64, &mut frames);
        let to = &mut sockets[1 - from];
        for frame in frames.drain(..) {
            match to.tx(frame) {
                Ok(()) => forwarded += 1,
                Err(frame) => {
                    dropped += 1;
                    assert!(umem.recycle(frame).is_none());
                }
            }
        }
        to.flush(&mut umem);
        if round % 1024 == 0 {
            assert_adds_up(&mut umem);
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for sender in senders {
        sender.join().unwrap();
    }
    for socket in &mut sockets {
        drain(&mut umem, socket);
    }
    let sum = assert_adds_up(&mut umem);
    assert_eq!((sum.held, sum.tx), (0, 0), "{sum:?}");
    assert!(forwarded > 1000, "forwarded {forwarded}, dropped {dropped}");
    let received: u64 = sockets.iter().map(|s| s.stats().unwrap().rx_packets).sum();
    assert_eq!(received, forwarded + dropped);
    println!("forwarded {forwarded}, tx rings full {dropped}");
}
