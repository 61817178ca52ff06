//! Builds netlink messages byte by byte.

use std::net::IpAddr;

use ipnet::IpNet;

/// Attributes of one message, encoded.
pub type Attributes = Vec<Vec<u8>>;

pub const NEW_ROUTE: u16 = 24;
pub const DEL_ROUTE: u16 = 25;
const NEW_RULE: u16 = 32;
pub const NEW_NEXT_HOP: u16 = 104;
pub const DEL_NEXT_HOP: u16 = 105;
/// Message types of SONiC's local SIDs.
pub const NEW_SID: u16 = 1000;
pub const DEL_SID: u16 = 1001;
pub const CREATE: u16 = 0x400;
pub const REPLACE: u16 = 0x500;
pub const APPEND: u16 = 0xc00;
/// Types of routes: `RTN_*`.
pub const UNICAST: u8 = 1;
pub const BLACKHOLE: u8 = 6;
const MAIN: u8 = 254;
/// Protocol number of BGP routes (`RTPROT_BGP`) as zebra writes it.
const BGP: u8 = 186;

/// Makes an attribute: length, type, value and padding.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("an attribute is short");
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, inner: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 0x8000, &inner.concat())
}

pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

fn octets(address: &str) -> Vec<u8> {
    match address.parse().expect("an address") {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn address(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &octets(text))
}

fn message(kind: u16, flags: u16, head: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [head, &attributes.concat()].concat();
    let length = u32::try_from(16 + body.len()).expect("a message is short");
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}

/// Makes a route message: `struct rtmsg`, the destination and further attributes.
pub fn route(kind: u16, flags: u16, to: &str, (table, what): (u8, u8), attributes: &[Vec<u8>]) -> Vec<u8> {
    let net: IpNet = to.parse().expect("a prefix");
    let family = if net.addr().is_ipv4() { 2 } else { 10 };
    let head = [family, net.prefix_len(), 0, 0, table, BGP, 0, what, 0, 0, 0, 0];
    message(kind, flags, &head, &[&[address(1, &net.addr().to_string()), number(6, 20)], attributes].concat())
}

fn new(to: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    route(NEW_ROUTE, CREATE, to, (MAIN, UNICAST), attributes)
}

/// Makes one leg of a multipath route: `struct rtnexthop` and attributes.
pub fn leg(device: u32, weight: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let inner = attributes.concat();
    let length = u16::try_from(8 + inner.len()).expect("a leg is short");
    [&length.to_ne_bytes()[..], &[0, weight - 1], &device.to_ne_bytes(), &inner].concat()
}

pub fn legs(legs: &[Vec<u8>]) -> Vec<u8> {
    attribute(9, &legs.concat())
}

/// Makes `encap seg6`: a mode (3 is `encap.red`) and a segment routing header.
pub fn seg6(mode: u32, segments: &[&str]) -> [Vec<u8>; 2] {
    let list: Vec<u8> = segments.iter().rev().flat_map(|segment| octets(segment)).collect();
    let count = u8::try_from(segments.len()).expect("few segments");
    let srh = [&mode.to_ne_bytes()[..], &[0, count * 2, 4, count - 1, count - 1, 0, 0, 0], &list].concat();
    [attribute(21, &5u16.to_ne_bytes()), nested(22, &[attribute(1, &srh)])]
}

/// Makes `encap seg6local`: an action and further attributes.
pub fn seg6local(action: u32, more: &[Vec<u8>]) -> [Vec<u8>; 2] {
    [attribute(21, &7u16.to_ne_bytes()), nested(22, &[&[number(1, action)], more].concat())]
}

/// Makes SONiC's encapsulation: a segment and the outer source.
pub fn zebra_encap(segment: &str, source: &str) -> [Vec<u8>; 2] {
    [attribute(21, &101u16.to_ne_bytes()), nested(22, &[address(1, segment), address(2, source)])]
}

/// Makes `flavors next-csid lblen 32 nflen 16`.
pub fn next_csid() -> Vec<u8> {
    nested(11, &[number(1, 1 << 4), attribute(2, &[32]), attribute(3, &[16])])
}

pub fn next_hop(kind: u16, id: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    message(kind, CREATE, &[0, 0, 11, 0, 0, 0, 0, 0], &[&[number(1, id)], attributes].concat())
}

pub fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    let member = |(id, weight): &(u32, u8)| [&id.to_ne_bytes()[..], &[weight - 1, 0, 0, 0]].concat();
    next_hop(NEW_NEXT_HOP, id, &[attribute(2, &members.iter().flat_map(member).collect::<Vec<u8>>())])
}

/// Returns routes and next-hop objects as both the kernel and stock FRR write them.
fn of_both() -> Vec<Vec<u8>> {
    let via = |gateway: &str, device| vec![address(5, gateway), number(4, device)];
    // RTA_VIA: a family, then an address of that family.
    let over_v6 = [&10u16.to_ne_bytes()[..], &octets("fe80::3")].concat();
    vec![
        next_hop(NEW_NEXT_HOP, 11, &[address(6, "2001:db8:1::2"), number(5, 2)]),
        next_hop(NEW_NEXT_HOP, 12, &[address(6, "fe80::3"), number(5, 3)]),
        next_hop(NEW_NEXT_HOP, 13, &[attribute(4, &[])]),
        group(20, &[(11, 1), (12, 3)]),
        new("2001:db8:a::/48", &[number(30, 20)]),
        new("10.9.0.0/16", &[number(30, 12)]),
        new("2001:db8:dead::/48", &[number(30, 13)]),
        new("2001:db8:b::/48", &via("2001:db8:1::2", 2)),
        new("2001:db8:b:8::/64", &via("fe80::3", 3)),
        new("::/0", &via("fe80::3", 3)),
        new(
            "2001:db8:e::/48",
            &[legs(&[leg(2, 1, &[address(5, "2001:db8:1::2")]), leg(3, 2, &[address(5, "fe80::3")])])],
        ),
        new("10.8.0.0/16", &[attribute(18, &over_v6), number(4, 3)]),
        route(NEW_ROUTE, CREATE, "10.7.0.0/16", (MAIN, BLACKHOLE), &[]),
        route(NEW_ROUTE, CREATE, "10.6.0.0/16", (100, UNICAST), &via("10.0.1.2", 2)),
        new("2001:db8:9::/64", &[&seg6(3, &["fcbb:bbbb:2:d046::"])[..], &[number(4, 2)]].concat()),
        new("2001:db8:8::/64", &[&seg6(1, &["fcbb:bbbb:2::", "fcbb:bbbb:3:d046::"])[..], &[number(4, 2)]].concat()),
        new("fcbb:bbbb:1::/48", &[&seg6local(1, &[next_csid()])[..], &[number(4, 2)]].concat()),
        new(
            "fcbb:bbbb:1:e001::/64",
            &[&seg6local(2, &[address(5, "fe80::3"), number(7, 3)])[..], &[number(4, 2)]].concat(),
        ),
        new("fcbb:bbbb:1:d006::/64", &[&seg6local(7, &[number(3, 254)])[..], &[number(4, 2)]].concat()),
        new("fcbb:bbbb:1:d046::/64", &[&seg6local(16, &[number(9, 100)])[..], &[number(4, 2)]].concat()),
        route(DEL_ROUTE, 0, "2001:db8:b:8::/64", (MAIN, UNICAST), &via("fe80::3", 3)),
    ]
}

/// Makes a rule for IPv6 that leads to a table.
pub fn rule(priority: u32, table: u32) -> Vec<u8> {
    message(NEW_RULE, 0, &[10, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[number(6, priority), number(15, table)])
}

/// Returns messages of the kernel.
pub fn of_the_kernel() -> Vec<Vec<u8>> {
    let mut messages = of_both();
    messages.extend([
        // Found by a fuzzer: bits behind the prefix length must not make another prefix.
        new("2001:db8:e::a/48", &[address(5, "fe80::3"), number(4, 3)]),
        rule(0, 255),
        rule(32766, 254),
        route(NEW_ROUTE, REPLACE, "2001:db8:b::/48", (MAIN, UNICAST), &[address(5, "fe80::3"), number(4, 3)]),
        route(NEW_ROUTE, APPEND, "2001:db8:e::/48", (MAIN, UNICAST), &[address(5, "fe80::4"), number(4, 3)]),
        route(DEL_ROUTE, 0, "2001:db8:e::/48", (MAIN, UNICAST), &[address(5, "2001:db8:1::2"), number(4, 2)]),
        next_hop(NEW_NEXT_HOP, 12, &[address(6, "fe80::5"), number(5, 3)]),
        // NLMSG_DONE.
        message(3, 0, &[0; 4], &[]),
    ]);
    messages
}

/// Returns messages of zebra in both dialects.
pub fn of_zebra() -> Vec<Vec<u8>> {
    let mut messages = of_both();
    let encap = zebra_encap("fcbb:bbbb:2:d046::", "fcbb:bbbb:1::1");
    messages.extend([
        route(NEW_ROUTE, CREATE, "10.5.0.0/16", (0, UNICAST), &encap),
        sid(NEW_SID, "fcbb:bbbb:1:fe24::/64", [32, 16, 16, 0], &[number(3, 15), attribute(12, b"eth2\0")]),
        sid(NEW_SID, "fcbb:bbbb:1:fe46::/64", [32, 16, 16, 0], &[number(3, 12), attribute(4, b"Vrf-red\0")]),
        sid(DEL_SID, "fcbb:bbbb:1:fe24::/64", [32, 16, 16, 0], &[]),
        next_hop(DEL_NEXT_HOP, 11, &[]),
    ]);
    messages
}

/// Makes a message of SONiC with a local SID: prefix, then the lengths of block, node, function and argument.
pub fn sid(kind: u16, prefix: &str, lengths: [u8; 4], attributes: &[Vec<u8>]) -> Vec<u8> {
    let net: IpNet = prefix.parse().expect("a prefix");
    let parts: Vec<Vec<u8>> = (1..).zip(lengths).map(|(part, bits)| attribute(part, &[bits])).collect();
    let head = [10, net.prefix_len(), 0, 0, 0, 196, 0, 1, 0, 0, 0, 0];
    let own = [address(1, &net.addr().to_string()), nested(2, &parts)];
    message(kind, CREATE, &head, &[&own, attributes].concat())
}

/// Makes an FPM frame: version, type, length and the messages.
pub fn frame(messages: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + messages.len()).expect("a frame is short");
    [&[1, 1][..], &length.to_be_bytes(), messages].concat()
}
