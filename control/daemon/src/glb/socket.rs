//! The UDP socket of one port.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use socket2::{Domain, Protocol, Type};
use srv6d_heartbeat::TTL;

/// Largest datagram that is read whole. A longer one is no heartbeat, and neither is its beginning.
pub(super) const MOST_BYTES: usize = 1500;
/// DSCP CS6 of routing protocols (RFC 4594), as a traffic class.
const NETWORK_CONTROL: u32 = 0xc0;

/// Sends and receives on one network device only.
#[derive(Debug)]
pub(super) struct Socket {
    udp: socket2::Socket,
    to: SocketAddrV6,
    receives: bool,
}

impl Socket {
    /// Opens the socket. It needs the privilege to bind to a device (`CAP_NET_RAW` before Linux 5.7).
    ///
    /// # Errors
    /// The device is gone or has no IPv6, or another process uses the UDP port.
    pub(super) fn open(device: &str, ifindex: u32, (group, port): (Ipv6Addr, u16), receives: bool) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_only_v6(true)?;
        socket.bind_device(Some(device.as_bytes()))?;
        socket.set_multicast_if_v6(ifindex)?;
        socket.set_multicast_hops_v6(TTL.into())?;
        socket.set_multicast_loop_v6(false)?;
        socket.set_tclass_v6(NETWORK_CONTROL)?;
        if receives {
            socket.set_recv_hoplimit_v6(true)?;
            socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into())?;
            socket.join_multicast_v6(&group, ifindex)?;
        }
        Ok(Self { udp: socket, to: SocketAddrV6::new(group, port, 0, ifindex), receives })
    }

    /// Sends a heartbeat.
    ///
    /// # Errors
    /// The link is down or has no link-local address yet, or its queue is full.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.udp.send_to(bytes, &self.to.into()).map(drop)
    }

    /// Reads one datagram into `bytes`. Returns its length and its hop limit, or `None` if there is none.
    pub(super) fn receive(&self, bytes: &mut [u8; MOST_BYTES]) -> Option<(usize, u8)> {
        let mut control = nix::cmsg_space!(libc::c_int);
        let mut parts = [IoSliceMut::new(bytes)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = match recvmsg::<()>(self.udp.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(received) => received,
            // The kernel reports an error of an earlier packet now.
            Err(why) if why != Errno::EAGAIN => return Some((0, 0)),
            Err(_) => return None,
        };
        let hop_limit = received.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::Ipv6HopLimit(limit) => u8::try_from(limit).ok(),
            _ => None,
        });
        Some((received.bytes, hop_limit.unwrap_or(0)))
    }

    /// Returns whether it is the socket for this group and UDP port.
    pub(super) fn is_for(&self, (group, port): (Ipv6Addr, u16), receives: bool) -> bool {
        (*self.to.ip(), self.to.port(), self.receives) == (group, port, receives)
    }

    /// Returns whether heartbeats may arrive at the socket.
    pub(super) const fn receives(&self) -> bool {
        self.receives
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}
