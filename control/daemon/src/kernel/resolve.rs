//! Asks the kernel to resolve neighbours. ND and ARP stay the kernel's task, and entries written by hand stay as they
//! are.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{self, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

/// A netlink socket for requests about neighbours whose answers are not awaited: events show what the kernel does.
/// Refusals are discarded, such as that of a request to forget a neighbour that the kernel has forgotten by itself.
/// There may be thousands of these requests a second, so they do not share a socket with requests whose answers are
/// awaited.
#[derive(Debug)]
pub(super) struct NeighborSocket(OwnedFd);

impl NeighborSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// A netlink socket cannot be opened.
    pub(super) fn open() -> std::io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(socket::AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self(fd))
    }

    /// Asks the kernel to resolve a neighbour, or to check one that is in use, as `ip neigh ... use` does. It must not
    /// be called for an entry that was written by hand: since Linux 5.16 `NTF_USE` turns a permanent entry into an
    /// ordinary one, which is then probed and may fail.
    pub(super) fn resolve(&self, ifindex: u32, address: IpAddr) {
        let mut entry = neighbor(ifindex, address);
        entry.header.state = NeighbourState::None;
        entry.header.flags = NeighbourFlags::Use;
        let request = RouteNetlinkMessage::NewNeighbour(entry);
        self.send(request, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE, address);
    }

    /// Makes the kernel forget a neighbour.
    pub(super) fn give_up(&self, ifindex: u32, address: IpAddr) {
        self.send(RouteNetlinkMessage::DelNeighbour(neighbor(ifindex, address)), NLM_F_REQUEST, address);
    }

    fn send(&self, request: RouteNetlinkMessage, flags: u16, address: IpAddr) {
        let mut request = NetlinkMessage::from(request);
        request.header.flags = flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        if let Err(why) = send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()) {
            debug!("cannot ask the kernel about the neighbour {address}: {why}");
        }
        let mut refusal = [0; 256];
        while recv(self.0.as_raw_fd(), &mut refusal, MsgFlags::empty()).is_ok() {}
    }
}

fn neighbor(ifindex: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = ifindex;
    (message.header.family, message.attributes) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(v4))]),
        IpAddr::V6(v6) => (AddressFamily::Inet6, vec![NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6))]),
    };
    message
}

/// Makes the nodes on a link reveal themselves, by an echo request to all nodes. A node that answers has to ask for our
/// address first, and thereby tells the kernel its own.
///
/// # Errors
/// Raw sockets are not available, or the link is down.
pub fn ask_all_nodes(ifindex: u32) -> std::io::Result<()> {
    // The type is 128 and the code 0; the kernel writes the checksum.
    const ECHO_REQUEST: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 0];
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_multicast_if_v6(ifindex)?;
    let all_nodes = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, ifindex);
    socket.send_to(&ECHO_REQUEST, &all_nodes.into()).map(drop)
}
