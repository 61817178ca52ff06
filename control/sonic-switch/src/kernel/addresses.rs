//! Addresses and permanent neighbours. They are marked as srv6d's (`proto 200`), so that those of a user stay
//! untouched.

use std::net::IpAddr;

use futures_util::stream::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno::{EADDRNOTAVAIL, EEXIST, ENODEV, ENOENT};
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressProtocol};
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use rtnetlink::packet_route::route::RouteProtocol;
use srv6d_addresses::Mac;

use srv6d_daemon::kernel::{KernelError, ROUTE_PROTOCOL, errno, netlink};

/// Adds an address. It is no error if it exists already, whoever added it.
///
/// # Errors
/// The kernel refuses.
pub async fn add(handle: &Handle, index: u32, address: IpNet) -> Result<(), KernelError> {
    let mut request = handle.address().add(index, address.addr(), address.prefix_len());
    // Linux before 5.18 does not know the attribute and adds the address without it.
    request.message_mut().attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(ROUTE_PROTOCOL)));
    match request.execute().await {
        Err(why) if errno(&why) == Some(EEXIST as i32) => Ok(()),
        result => result.map_err(netlink(format!("add the address {address}"))),
    }
}

/// Returns the addresses that srv6d has added, in this process or an earlier one: index of the interface, and address.
///
/// # Errors
/// The kernel refuses the dump.
pub async fn own(handle: &Handle) -> Result<Vec<(u32, IpNet)>, KernelError> {
    let own = AddressAttribute::Protocol(AddressProtocol::Other(ROUTE_PROTOCOL));
    let messages: Vec<AddressMessage> =
        handle.address().get().execute().try_collect().await.map_err(netlink("list the addresses"))?;
    let found = messages.iter().filter(|message| message.attributes.contains(&own));
    Ok(found.filter_map(|message| Some((message.header.index, address(message)?))).collect())
}

fn address(message: &AddressMessage) -> Option<IpNet> {
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    IpNet::new(find(true).or_else(|| find(false))?, message.header.prefix_len).ok()
}

/// Removes an address. It is no error if it is gone already.
///
/// # Errors
/// The kernel refuses.
pub async fn remove(handle: &Handle, index: u32, address: IpNet) -> Result<(), KernelError> {
    // The message that would add the address also identifies it completely.
    let message = handle.address().add(index, address.addr(), address.prefix_len()).message_mut().clone();
    match handle.address().del(message).execute().await {
        Err(why) if [EADDRNOTAVAIL, ENODEV].iter().any(|gone| errno(&why) == Some(*gone as i32)) => Ok(()),
        result => result.map_err(netlink(format!("remove the address {address}"))),
    }
}

/// Makes a neighbour permanent.
///
/// # Errors
/// The kernel refuses.
pub async fn add_neighbor(handle: &Handle, index: u32, address: IpAddr, mac: Mac) -> Result<(), KernelError> {
    let mut request = handle.neighbours().add(index, address).state(NeighbourState::Permanent);
    request = request.link_layer_address(&mac.0).replace();
    let own = NeighbourAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL));
    request.message_mut().attributes.push(own);
    request.execute().await.map_err(netlink(format!("add the neighbour {address}")))
}

/// Returns the neighbours that srv6d has made permanent: index of the interface, and address.
///
/// # Errors
/// The kernel refuses the dump.
pub async fn own_neighbors(handle: &Handle) -> Result<Vec<(u32, IpAddr)>, KernelError> {
    let own = NeighbourAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL));
    let mut found = Vec::new();
    for version in [AddressFamily::Inet, AddressFamily::Inet6] {
        let dump = handle.neighbours().get().set_address_family(version).execute();
        let messages: Vec<NeighbourMessage> = dump.try_collect().await.map_err(netlink("list the neighbours"))?;
        let own = messages.iter().filter(|message| message.attributes.contains(&own));
        found.extend(own.filter_map(|message| Some((message.header.ifindex, destination(message)?))));
    }
    Ok(found)
}

fn destination(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })
}

/// Removes a neighbour. It is no error if it is gone already.
///
/// # Errors
/// The kernel refuses.
pub async fn remove_neighbor(handle: &Handle, index: u32, address: IpAddr) -> Result<(), KernelError> {
    let message = handle.neighbours().add(index, address).message_mut().clone();
    match handle.neighbours().del(message).execute().await {
        Err(why) if [ENOENT, ENODEV].iter().any(|gone| errno(&why) == Some(*gone as i32)) => Ok(()),
        result => result.map_err(netlink(format!("remove the neighbour {address}"))),
    }
}
