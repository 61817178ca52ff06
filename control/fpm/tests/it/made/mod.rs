//! Builds messages byte by byte, according to the layouts of netlink.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::{IpAddr, Ipv6Addr};

use srv6d_fpm::{Decoded, Event, FrameReader, Message, decode, messages};

pub const NEW_ROUTE: u16 = 24;
pub const DEL_ROUTE: u16 = 25;
pub const NEW_NEXT_HOP: u16 = 104;
pub const DEL_NEXT_HOP: u16 = 105;
pub const NEW_SID: u16 = 1000;
pub const DEL_SID: u16 = 1001;

/// Makes an attribute: length, type, value and padding. The padding is not zero, as in messages from FRR.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0xa5);
    bytes
}

pub fn nested(kind: u16, inner: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | 0x8000, &inner.concat())
}

pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

pub fn address(kind: u16, address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(v4) => attribute(kind, &v4.octets()),
        IpAddr::V6(v6) => attribute(kind, &v6.octets()),
    }
}

pub fn message(kind: u16, header: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [header, &attributes.concat()].concat();
    let length = u32::try_from(16 + body.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&0x0501_u16.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&body);
    bytes
}

pub struct RouteHeader {
    pub length: u8,
    pub table: u8,
    pub protocol: u8,
    pub kind: u8,
}

/// Makes a route message: `struct rtmsg`, the destination and further attributes.
pub fn route(kind: u16, prefix: &str, header: &RouteHeader, attributes: &[Vec<u8>]) -> Vec<u8> {
    let (network, length) = prefix.split_once('/').unwrap();
    let family = if network.contains(':') { 10 } else { 2 };
    let RouteHeader { table, protocol, kind: route_type, .. } = *header;
    let bytes = [family, length.parse().unwrap(), 0, 0, table, protocol, 0, route_type, 0, 0, 0, 0];
    message(kind, &bytes, &[&[address(1, network)], attributes].concat())
}

/// Makes the announcement of a unicast route as zebra's static daemon sends it.
pub fn announce(prefix: &str, table: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    route(NEW_ROUTE, prefix, &RouteHeader { length: 0, table, protocol: 196, kind: 1 }, attributes)
}

pub fn withdraw(prefix: &str, table: u8) -> Vec<u8> {
    route(DEL_ROUTE, prefix, &RouteHeader { length: 0, table, protocol: 196, kind: 0 }, &[])
}

pub fn next_hop(kind: u16, id: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    message(kind, &[0, 0, 11, 0, 0, 0, 0, 0], &[&[number(1, id)], attributes].concat())
}

pub fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    let entry = |(id, weight): &(u32, u8)| [&id.to_ne_bytes()[..], &[weight - 1, 0, 0, 0]].concat();
    next_hop(NEW_NEXT_HOP, id, &[attribute(2, &members.iter().flat_map(entry).collect::<Vec<u8>>())])
}

/// Makes a message of SONiC with a local SID: prefix, then the lengths of block, node, function and argument.
pub fn sid(kind: u16, prefix: &str, lengths: [u8; 4], attributes: &[Vec<u8>]) -> Vec<u8> {
    let (address, length) = prefix.split_once('/').unwrap();
    let sid: Ipv6Addr = address.parse().unwrap();
    let parts: Vec<Vec<u8>> = (1..).zip(lengths).map(|(part, bits)| attribute(part, &[bits])).collect();
    let header = [10, length.parse().unwrap(), 0, 0, 0, 196, 0, 1, 0, 0, 0, 0];
    message(kind, &header, &[&[attribute(1, &sid.octets()), nested(2, &parts)], attributes].concat())
}

/// Makes the attributes of SONiC's encapsulation to a SID (type 101).
pub fn steer(sid: &str, source: &str) -> Vec<Vec<u8>> {
    vec![attribute(21, &101_u16.to_ne_bytes()), nested(22, &[address(1, sid), address(2, source)])]
}

pub fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for message in messages {
        payload.extend_from_slice(message);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    let length = u16::try_from(4 + payload.len()).unwrap();
    [&[1, 1][..], &length.to_be_bytes(), &payload].concat()
}

/// Returns the bytes of a recorded message.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Decodes the only message of a buffer.
pub fn decoded(message: &[u8]) -> Decoded {
    let all: Vec<Message<'_>> = messages(message).map(Result::unwrap).collect();
    let [only] = all.as_slice() else { panic!("{} messages", all.len()) };
    decode(*only).unwrap()
}

/// Decodes all messages of a stream.
pub fn events(stream: &[u8]) -> Vec<Event> {
    let mut frames = FrameReader::default();
    frames.push(stream);
    let mut events = Vec::new();
    while let Some(payload) = frames.next_frame().unwrap() {
        events.extend(messages(payload).map(|message| decode(message.unwrap()).unwrap().event));
    }
    assert_eq!(frames.waiting(), 0);
    events
}
