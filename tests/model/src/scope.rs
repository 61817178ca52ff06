//! Addresses that belong to no single node: RFC 4291 section 2, RFC 1122 section 3.2.1.3, RFC 3927.

use std::net::IpAddr;

/// Returns whether the address is invalid as a source.
pub(crate) fn is_nobody(address: IpAddr) -> bool {
    let is_reserved = matches!(address, IpAddr::V4(address) if address.octets()[0] >= 240);
    is_reserved || is_for_many(address) || is_nowhere(address)
}

/// Returns whether the address is multicast or broadcast.
pub(crate) fn is_for_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => address.is_multicast(),
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
    }
}

/// Returns whether the address is valid on one link only.
pub(crate) fn is_on_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(address) => address.is_link_local(),
    }
}

/// Returns whether the address is valid only inside a node: unspecified, loopback or IPv4-mapped.
pub(crate) fn is_nowhere(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => {
            address.is_unspecified() || address.is_loopback() || address.segments()[..6] == [0, 0, 0, 0, 0, 0xffff]
        }
        IpAddr::V4(address) => matches!(address.octets(), [0 | 127, ..]),
    }
}

/// Returns whether a forwarded packet may have the address as its destination.
pub(crate) fn is_routable(address: IpAddr) -> bool {
    !is_for_many(address) && !is_on_link(address) && !is_nowhere(address)
}
