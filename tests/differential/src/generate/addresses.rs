//! Pools of addresses and prefixes that random states and frames are made of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use proptest::prelude::*;
use proptest::sample::select;

/// The locator block of the uSIDs, `fcbb:bbbb::/32`.
const BLOCK: [u16; 2] = [0xfcbb, 0xbbbb];
/// uSIDs of carriers: some are SIDs of this node, some of other nodes, some of no node, and 0 ends a carrier.
const USIDS: [u16; 13] =
    [0x0001, 0x0001, 0x0001, 0x0001, 0x0002, 0x0003, 0xfe24, 0x00d6, 0x00d4, 0xfed6, 0x0800, 0x0000, 0x0007];

fn parsed<T: std::str::FromStr>(texts: &[&str]) -> Vec<T> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Makes a carrier in the block: uSIDs, then zeros.
pub(crate) fn carrier() -> impl Strategy<Value = Ipv6Addr> + Clone {
    prop::collection::vec(select(USIDS.to_vec()), 1..=6).prop_map(|usids| {
        let mut groups = [0u16; 8];
        for (slot, group) in groups.iter_mut().zip(BLOCK.into_iter().chain(usids)) {
            *slot = group;
        }
        groups.into()
    })
}

/// Makes a carrier whose first uSID belongs to another node.
pub(crate) fn remote_carrier() -> impl Strategy<Value = Ipv6Addr> + Clone {
    let remote = parsed(&[
        "fcbb:bbbb:2:3::",
        "fcbb:bbbb:9::",
        "fcbb:bbbb:2:3:4:5:6:7",
        "2001:db8:5::9",
        "2001:db8:1::2",
        "fcbb:bbbb:800::5",
    ]);
    select(remote)
}

/// Makes the destination of an IPv6 packet.
pub(crate) fn destination_v6() -> impl Strategy<Value = Ipv6Addr> + Clone {
    let hosts = parsed(&[
        "2001:db8:b::9",
        "2001:db8:b:1::9",
        "2001:db8:b:1:8000::9",
        "2001:db8:a::1",
        "2001:db8:1::1",
        "2001:db8:1::2",
        "2001:db8:1::3",
        "2001:db8:2::7",
        "2001:db8:cafe::1",
        "2001:db8:5::",
        "2001:db8:5::1",
        "fcbb:bbbb:1::1",
        "fcbb:bbbb:800::5",
        "fcbb:bbbb:800::6",
        "fd00:1:2::",
        "fd00:1:0:2::",
        "fcbb:bbbb:cccc:1:2::",
    ]);
    let special = parsed(&["fe80::2", "ff02::1", "ff0e::5", "::1", "::", "febf::1", "::2"]);
    let own = sid_prefix().prop_map(|(prefix, _)| prefix.network());
    prop_oneof![12 => carrier(), 8 => own, 12 => select(hosts), 1 => select(special), 1 => any::<u128>().prop_map(Into::into)]
}

/// Makes the source of an IPv6 packet.
pub(crate) fn source_v6() -> impl Strategy<Value = Ipv6Addr> + Clone {
    let hosts = parsed(&[
        "2001:db8:a::1",
        "2001:db8:a::1",
        "2001:db8:b::9",
        "2001:db8:1::2",
        "2001:db8:1::1",
        "2001:db8:cafe::1",
        "2001:db8:cafe::2",
        "fcbb:bbbb:800::5",
        "fcbb:bbbb:2::",
    ]);
    let special = parsed(&["fe80::2", "ff02::1", "::1", "::", "::2"]);
    prop_oneof![40 => select(hosts), 1 => select(special)]
}

/// Makes the destination of an IPv4 packet.
pub(crate) fn destination_v4() -> impl Strategy<Value = Ipv4Addr> + Clone {
    let hosts = parsed(&["198.51.100.9", "198.51.100.200", "10.0.1.1", "10.0.1.2", "10.0.1.9", "192.0.2.5"]);
    let special =
        parsed(&["224.0.0.5", "255.255.255.255", "169.254.0.9", "127.0.0.1", "0.0.0.0", "0.1.2.3", "240.0.0.1"]);
    prop_oneof![24 => select(hosts), 2 => select(special), 1 => any::<u32>().prop_map(Into::into)]
}

/// Makes the source of an IPv4 packet.
pub(crate) fn source_v4() -> impl Strategy<Value = Ipv4Addr> + Clone {
    let hosts = parsed(&["192.0.2.5", "192.0.2.5", "198.51.100.9", "10.0.1.2", "10.0.1.1"]);
    let special = parsed(&["224.0.0.5", "255.255.255.255", "127.0.0.1", "0.0.0.0", "0.1.2.3", "169.254.0.9"]);
    prop_oneof![40 => select(hosts), 1 => select(special)]
}

/// Makes the prefix of a route or of steered traffic.
pub(crate) fn prefix() -> impl Strategy<Value = IpNet> + Clone {
    select(parsed(&[
        "2001:db8:b::/48",
        "2001:db8:b:1::/64",
        "2001:db8:b:1:8000::/65",
        "2001:db8:a::/48",
        "2001:db8:1::/64",
        "2001:db8:1::2/127",
        "2001:db8:5::/48",
        "::/0",
        "::/0",
        "::/0",
        "fcbb:bbbb:2::/48",
        "fcbb:bbbb:9::/48",
        "fcbb:bbbb:1::/48",
        "fcbb:bbbb:800::/64",
        "fcbb:bbbb::/32",
        "198.51.100.0/24",
        "198.51.100.128/25",
        "192.0.2.0/24",
        "10.0.1.0/24",
        "0.0.0.0/0",
        "0.0.0.0/0",
    ]))
}

/// Makes the prefix of a SID, and the length of its block.
pub(crate) fn sid_prefix() -> impl Strategy<Value = (Ipv6Net, u8)> + Clone {
    let in_32 = parsed::<Ipv6Net>(&[
        "fcbb:bbbb:1::/48",
        "fcbb:bbbb:1::/48",
        "fcbb:bbbb:1::/48",
        "fcbb:bbbb:2::/48",
        "fcbb:bbbb:fe24::/48",
        "fcbb:bbbb:1:fe24::/64",
        "fcbb:bbbb:1:d6::/64",
        "fcbb:bbbb:d4::/48",
        "fcbb:bbbb:d6::/48",
        "fcbb:bbbb:fed6::/48",
        "fcbb:bbbb:1:1::/64",
        "fcbb:bbbb:100::/40",
        "2001:db8:5::/48",
        "2001:db8:5::1/128",
        "2001:db8:5::/64",
        "fcbb:bbbb:7:7:7:7:7:7/128",
    ]);
    let in_16 = parsed::<Ipv6Net>(&["fd00:1::/32", "fd00:1:0:2::/64", "fd00:1:2::/48"]);
    let in_48 = parsed::<Ipv6Net>(&["fcbb:bbbb:cccc:1::/64"]);
    let of = |prefixes: Vec<Ipv6Net>, lblen: u8| prefixes.into_iter().map(move |prefix| (prefix, lblen));
    select(of(in_32, 32).chain(of(in_16, 16)).chain(of(in_48, 48)).collect::<Vec<_>>())
}

/// Makes a locator block.
pub(crate) fn block() -> impl Strategy<Value = Ipv6Net> + Clone {
    select(parsed(&["fcbb:bbbb::/32", "fcbb:bbbb::/32", "fd00::/16", "fcbb:bbbb:cccc::/48"]))
}

/// Makes the address of an IPv6 neighbour.
pub(crate) fn neighbor_v6() -> impl Strategy<Value = IpAddr> + Clone {
    select(all_neighbors().into_iter().filter(IpAddr::is_ipv6).collect::<Vec<_>>())
}

/// Makes the address of an IPv4 neighbour.
pub(crate) fn neighbor_v4() -> impl Strategy<Value = IpAddr> + Clone {
    select(all_neighbors().into_iter().filter(IpAddr::is_ipv4).collect::<Vec<_>>())
}

/// Returns all addresses that neighbours may have, on any link.
pub(crate) fn all_neighbors() -> Vec<IpAddr> {
    parsed(&[
        "2001:db8:1::2",
        "2001:db8:1::3",
        "2001:db8:b:1:8000::9",
        "fe80::2",
        "fcbb:bbbb:800::5",
        "2001:db8:5::9",
        "10.0.1.2",
        "10.0.1.9",
        "198.51.100.200",
    ])
}

/// Makes a prefix of permitted sources.
pub(crate) fn source_prefix() -> impl Strategy<Value = Ipv6Net> + Clone {
    select(parsed(&["2001:db8:a::/48", "2001:db8::/32", "2001:db8:a::1/128", "fcbb:bbbb::/32"]))
}

/// Makes an address of the node itself. Some of these are SIDs, too.
pub(crate) fn own_address() -> impl Strategy<Value = IpAddr> + Clone {
    select(parsed(&[
        "2001:db8:1::1",
        "10.0.1.1",
        "2001:db8:cafe::1",
        "fcbb:bbbb:1::",
        "fcbb:bbbb:1::1",
        "fcbb:bbbb:fed6::",
        "fcbb:bbbb:fe24::",
        "2001:db8:5::",
    ]))
}

/// Makes the source of an outer header.
pub(crate) fn outer_source() -> impl Strategy<Value = Ipv6Addr> + Clone {
    select(parsed(&["2001:db8:cafe::1", "2001:db8:cafe::2", "2001:db8:a::1"]))
}
