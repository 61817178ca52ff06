//! Asking the kernel for neighbours: ND and ARP stay its own, and what somebody wrote by hand stays as it is.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};

use futures_util::stream::StreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use socket2::{Domain, Protocol, Socket, Type};

use super::{KernelError, netlink};

/// Asks the kernel to resolve a neighbour, or to check one that is in use, as `ip neigh ... use` does. The answer
/// arrives as a change.
///
/// # Errors
/// No such device, or no privilege.
pub(super) async fn resolve(handle: &Handle, ifindex: u32, address: IpAddr) -> Result<(), KernelError> {
    // NTF_USE makes an ordinary entry of a permanent one (since Linux 5.16), which is then probed and may fail.
    if state(handle, ifindex, address).await.is_some_and(is_fixed) {
        return Ok(());
    }
    handle
        .neighbours()
        .add(ifindex, address)
        .state(NeighbourState::None)
        .flags(NeighbourFlags::Use)
        .replace()
        .execute()
        .await
        .map_err(netlink(format!("ask for the MAC address of {address}")))
}

/// Asks whoever is on a link to say something: an echo request to all nodes. Who answers has to ask for our address first,
/// and so tells the kernel its own.
///
/// # Errors
/// No raw sockets, or the link is down.
pub fn ask_all_nodes(ifindex: u32) -> std::io::Result<()> {
    // Type 128 and code 0; the kernel writes the checksum.
    const ECHO_REQUEST: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 0];
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_multicast_if_v6(ifindex)?;
    let all_nodes = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0, 0, ifindex);
    socket.send_to(&ECHO_REQUEST, &all_nodes.into()).map(drop)
}

/// Nothing is ever asked for these.
const fn is_fixed(state: NeighbourState) -> bool {
    matches!(state, NeighbourState::Permanent | NeighbourState::Noarp)
}

/// How the kernel's entry for one neighbour stands; `None`: there is no entry.
async fn state(handle: &Handle, ifindex: u32, address: IpAddr) -> Option<NeighbourState> {
    let mut asked = NeighbourMessage::default();
    asked.header.ifindex = ifindex;
    (asked.header.family, asked.attributes) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(v4))]),
        IpAddr::V6(v6) => (AddressFamily::Inet6, vec![NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6))]),
    };
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNeighbour(asked));
    request.header.flags = NLM_F_REQUEST;
    let mut answers = std::pin::pin!(handle.clone().request(request).ok()?);
    match answers.next().await?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) => Some(entry.header.state),
        _ => None,
    }
}
