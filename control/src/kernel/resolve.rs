//! Asking the kernel for neighbours: ND and ARP stay its own, and what somebody wrote by hand stays as it is.

use std::net::IpAddr;

use futures_util::stream::StreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

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
