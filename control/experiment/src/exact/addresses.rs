//! Addresses, SIDs and names of the nodes of the exact mode.

use std::net::Ipv6Addr;

use srv6d_srv6::desired::Mac;

/// Prefix of all SIDs.
pub(super) const BLOCK: &str = "fcbb::/32";
/// Address of the neighbour at the other end of each link.
pub(super) const PEER: &str = "fe80::1";
/// Name of srv6d's veth in a host.
pub(super) const VETH: &str = "srv6d0";

/// First uSIDs of leaves, spines and hosts.
const LEAVES: u32 = 0x1000;
const SPINES: u32 = 0x2000;
const HOSTS: u32 = 0x4000;

/// Returns the uSID of a leaf.
pub(super) const fn leaf(number: u32) -> u32 {
    LEAVES + number
}

/// Returns the uSID of a spine.
pub(super) const fn spine(number: u32) -> u32 {
    SPINES + number
}

/// Returns the uSID of a host.
pub(super) const fn host(number: u32) -> u32 {
    HOSTS + number
}

/// Returns the address of the applications of a host.
pub(super) fn application(host: u32) -> Ipv6Addr {
    Ipv6Addr::from((0x2001_0db8_u128 << 96) | (u128::from(host) << 64) | 2)
}

/// Returns the Ethernet address of a port of the fabric.
pub(super) fn mac(port: u32) -> Mac {
    of_kind(0, port)
}

/// Returns the Ethernet address of the end of a host's veth that srv6d has.
pub(super) fn packet_mac(host: u32) -> Mac {
    of_kind(1, host)
}

/// Returns the Ethernet address of the end of a host's veth that the kernel has.
pub(super) fn kernel_mac(host: u32) -> Mac {
    of_kind(2, host)
}

fn of_kind(kind: u8, number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([2, kind, a, b, c, d])
}

/// Returns the name of a port. The random numbers of the port are made from it, so the seed is part of it.
pub(super) fn name(port: u32, seed: u64) -> String {
    format!("p{port}s{seed}")
}
