//! A network namespace per test thread, veth pairs, and raw frames on them.
//!
//! The namespace has no name: it belongs to the test's thread (and to the processes that it starts). The kernel removes
//! it and every interface in it when the thread ends, for whatever reason.

#![allow(dead_code)] // each test binary uses its own part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // a failure here is a failed test
#![allow(clippy::missing_panics_doc, missing_docs, clippy::doc_markdown)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // constants and patterns

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use srv6d_xsk::{Accounting, Frame, Socket, Umem};

/// Longest wait for any state.
pub const DEADLINE: Duration = Duration::from_mins(1);

pub const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Moves the calling thread into a network namespace of its own.
pub fn enter() {
    srv6d_netns::move_thread_to_new().expect("root");
    // Without this, router solicitations and MLD reports would appear between the test's frames.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("/proc/sys/net/ipv6");
    ip("link set lo up");
}

pub fn ip(args: &str) {
    let (ok, said) = try_ip(args);
    assert!(ok, "ip {args}: {said}");
}

pub fn try_ip(args: &str) -> (bool, String) {
    let out = Command::new("ip").args(args.split_whitespace()).output().expect("iproute2 is installed");
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Creates a veth pair `port` (with PORT_MAC) and `peer` (with PEER_MAC), both up.
pub fn veth(port: &str, peer: &str, mtu: u32, queues: u32) {
    ip(&format!(
        "link add name {port} address 02:00:00:00:00:01 mtu {mtu} numrxqueues {queues} numtxqueues {queues} type veth \
         peer name {peer} address 02:00:00:00:00:02 mtu {mtu} numrxqueues {queues} numtxqueues {queues}"
    ));
    ip(&format!("link set dev {port} up"));
    ip(&format!("link set dev {peer} up"));
}

/// A packet socket on one interface: it sends frames onto the wire and receives frames from the wire.
pub struct Wire(OwnedFd);

impl Wire {
    pub fn open(ifname: &str) -> Self {
        let protocol = i32::from(0x0003_u16.to_be()); // ETH_P_ALL
        // SAFETY: the call takes three numbers and no memory.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        assert!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was made just now and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeroes is a valid sockaddr_ll.
        let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = 0x0003_u16.to_be();
        addr.sll_ifindex = nix::net::if_::if_nametoindex(ifname).unwrap() as i32;
        // SAFETY: the pointer is to a live sockaddr_ll, with its size.
        let bound =
            unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        assert_eq!(bound, 0, "bind {ifname}: {}", io::Error::last_os_error());
        let socket = socket2::SockRef::from(&fd);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        Self(fd)
    }

    pub fn send(&self, frame: &[u8]) {
        let sent = socket2::SockRef::from(&self.0).send(frame).expect("send on the wire");
        assert_eq!(sent, frame.len());
    }

    /// Returns the next frame, or `None` if none comes within 20 ms.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 65536];
        let (len, _) = socket2::SockRef::from(&self.0).recv_from(&mut buffer).ok()?;
        // SAFETY: recv_from has written the first `len` bytes.
        Some(buffer[..len].iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }
}

/// Runs `step` until it returns something, for at most [`DEADLINE`].
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        if let Some(done) = step() {
            return done;
        }
    }
    panic!("not within {DEADLINE:?}: {what}");
}

/// Checks that every chunk is counted exactly once.
pub fn assert_adds_up(umem: &mut Umem) -> Accounting {
    let a = umem.accounting();
    assert_eq!(a.free + a.held + a.rx + a.tx + a.quarantine, a.frames, "{a:?}");
    a
}

/// Waits until everything sent on `socket` has come back.
pub fn drain(umem: &mut Umem, socket: &mut Socket) {
    until("sent frames complete", || {
        socket.flush(umem);
        (socket.outstanding().1 == 0 && !socket.tx_pending()).then_some(())
    });
}

/// Receives exactly one packet.
pub fn receive(umem: &mut Umem, socket: &mut Socket) -> Frame {
    let mut frames = Vec::new();
    until("a packet on the socket", || {
        socket.rx_burst(umem, 64, &mut frames);
        (!frames.is_empty()).then_some(())
    });
    assert_eq!(frames.len(), 1);
    frames.pop().unwrap()
}

/// Returns the whole packet of a frame.
pub fn bytes(umem: &Umem, frame: &Frame) -> Vec<u8> {
    umem.segments(frame).flatten().copied().collect()
}

/// Returns an Ethernet + IPv6/UDP-like packet of `len` bytes in all, with a pattern that differs at every offset and
/// for every `seed`.
pub fn ipv6(dst_mac: [u8; 6], dst: &str, len: usize, seed: u8) -> Vec<u8> {
    let dst: std::net::Ipv6Addr = dst.parse().unwrap();
    let mut frame: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect();
    frame[..6].copy_from_slice(&dst_mac);
    frame[6..12].copy_from_slice(&PEER_MAC);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
    frame[20] = 17;
    frame[21] = 64;
    frame[38..54].copy_from_slice(&dst.octets());
    frame
}

/// Returns an Ethernet + IPv4 packet of 60 bytes.
pub fn ipv4(dst_mac: [u8; 6], dst: &str) -> Vec<u8> {
    let dst: std::net::Ipv4Addr = dst.parse().unwrap();
    let mut frame = vec![0xa5; 60];
    frame[..6].copy_from_slice(&dst_mac);
    frame[6..12].copy_from_slice(&PEER_MAC);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[30..34].copy_from_slice(&dst.octets());
    frame
}

/// Returns the same frame with an 802.1Q tag.
pub fn tagged(frame: &[u8], vid: u16) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    out.extend_from_slice(&[0x81, 0x00]);
    out.extend_from_slice(&vid.to_be_bytes());
    out.extend_from_slice(&frame[12..]);
    out
}
