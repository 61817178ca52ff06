//! The sockets: raw ones that send whole packets to a next hop, and a UDP socket to which probes come back.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Type};

/// Largest datagram that is read whole. A longer one is no probe, and neither is its beginning.
pub(super) const MOST_BYTES: usize = 256;
/// Bits of a traffic class that are ECN, and its mark of congestion (RFC 3168).
const CE: i32 = 0b11;

/// Sends whole packets through one network device.
#[derive(Debug)]
pub(super) struct Sender {
    raw: socket2::Socket,
    ifindex: u32,
}

impl Sender {
    /// Opens the socket. It needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The device is gone, or the privilege is missing.
    pub(super) fn open(device: &str, ifindex: u32) -> io::Result<Self> {
        // The only raw protocol that the daemon may use. The packets are whole, so it does not matter for them.
        let raw = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        raw.set_header_included_v6(true)?;
        // Nobody reads the messages that the kernel puts here.
        raw.set_recv_buffer_size(0)?;
        raw.set_nonblocking(true)?;
        raw.bind_device(Some(device.as_bytes()))?;
        Ok(Self { raw, ifindex })
    }

    /// Sends a packet to a neighbour, whatever its header says: the kernel looks the neighbour up, and not the destination.
    ///
    /// # Errors
    /// The link is down, or its queue is full.
    pub(super) fn send(&self, packet: &[u8], to: Ipv6Addr) -> io::Result<()> {
        self.raw.send_to(packet, &SocketAddrV6::new(to, 0, 0, self.ifindex).into()).map(drop)
    }

    pub(super) const fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

/// The socket to which probes come back.
#[derive(Debug)]
pub(super) struct Receiver {
    udp: socket2::Socket,
    at: (Ipv6Addr, u16),
}

/// A datagram, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Length. A longer datagram than can be read has the largest one.
    pub(super) length: usize,
    /// Kernel index of the device.
    pub(super) ifindex: Option<u32>,
    /// True if a port on the way was congested.
    pub(super) ce: bool,
    /// Time of arrival since 1970 in nanoseconds, as the kernel has it.
    pub(super) wall: Option<u64>,
}

impl Receiver {
    /// Opens the socket.
    ///
    /// # Errors
    /// The address is not this node's, or another process uses the UDP port.
    pub(super) fn open(address: Ipv6Addr, port: u16) -> io::Result<Self> {
        let udp = socket2::Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        udp.set_nonblocking(true)?;
        udp.set_only_v6(true)?;
        setsockopt(&udp, sockopt::Ipv6RecvPacketInfo, &true)?;
        setsockopt(&udp, sockopt::Ipv6RecvTClass, &true)?;
        setsockopt(&udp, sockopt::ReceiveTimestampns, &true)?;
        udp.bind(&SocketAddrV6::new(address, port, 0, 0).into())?;
        Ok(Self { udp, at: (address, port) })
    }

    /// Reads one datagram into `bytes`. Returns `None` if there is none.
    pub(super) fn receive(&self, bytes: &mut [u8; MOST_BYTES]) -> Option<Received> {
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec, libc::in6_pktinfo, libc::c_int);
        let mut parts = [IoSliceMut::new(bytes)];
        let message = match recvmsg::<()>(self.udp.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)
        {
            Ok(message) => message,
            // The kernel reports an error of an earlier packet now.
            Err(why) if why != Errno::EAGAIN => return Some(Received::default()),
            Err(_) => return None,
        };
        let mut received = Received { length: message.bytes, ..Received::default() };
        for control in message.cmsgs().ok()? {
            match control {
                ControlMessageOwned::Ipv6PacketInfo(info) => received.ifindex = Some(info.ipi6_ifindex),
                ControlMessageOwned::Ipv6TClass(class) => received.ce = class & CE == CE,
                ControlMessageOwned::ScmTimestampns(at) => {
                    let (seconds, rest) = (u64::try_from(at.tv_sec()).ok(), u64::try_from(at.tv_nsec()).ok());
                    received.wall = seconds.zip(rest).map(|(seconds, rest)| seconds * 1_000_000_000 + rest);
                }
                _ => {}
            }
        }
        Some(received)
    }

    /// Returns whether it is the socket for this address and UDP port.
    pub(super) fn is_at(&self, address: Ipv6Addr, port: u16) -> bool {
        self.at == (address, port)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}
