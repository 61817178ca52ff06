//! Builds messages of rtnetlink as the kernel writes them, for tests.
#![allow(dead_code, reason = "each test needs some of it")]

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

pub const NEW_ROUTE: u16 = 24;
pub const DEL_ROUTE: u16 = 25;
pub const NEW_RULE: u16 = 32;
pub const NEW_NEXT_HOP: u16 = 104;
pub const DEL_NEXT_HOP: u16 = 105;
/// Flags of messages: `NLM_F_REPLACE`, `NLM_F_APPEND`, `NLM_F_DUMP_INTR`.
pub const REPLACE: u16 = 0x100;
pub const APPEND: u16 = 0x800;
pub const INTERRUPTED: u16 = 0x10;

/// Types of routes: `RTN_*`.
pub const UNICAST: u8 = 1;
pub const LOCAL: u8 = 2;
pub const BLACKHOLE: u8 = 6;
pub const UNREACHABLE: u8 = 7;
pub const THROW: u8 = 9;

/// Types of encapsulation: `LWTUNNEL_ENCAP_*`.
pub const MPLS: u16 = 1;
pub const SEG6: u16 = 5;
pub const SEG6_LOCAL: u16 = 7;

pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub const fn family(prefix: &IpNet) -> u8 {
    match prefix {
        IpNet::V4(_) => 2,
        IpNet::V6(_) => 10,
    }
}

/// Makes the attributes of `encap seg6`: `RTA_ENCAP_TYPE` and `RTA_ENCAP` (or `NHA_*`), as the first argument says.
pub fn seg6((type_kind, kind): (u16, u16), mode: u32, segments: &[Ipv6Addr]) -> Vec<u8> {
    let last = u8::try_from(segments.len() - 1).unwrap();
    let mut srh = mode.to_ne_bytes().to_vec();
    srh.extend([0, 2 * (last + 1), 4, last, last, 0, 0, 0]);
    srh.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    let mut bytes = attribute(type_kind, &SEG6.to_ne_bytes());
    bytes.extend(attribute(kind, &attribute(1, &srh)));
    bytes
}

/// Makes the route attributes of `encap seg6local`, with these inner attributes.
pub fn seg6_local(attributes: &[Vec<u8>]) -> Vec<u8> {
    [attribute(21, &SEG6_LOCAL.to_ne_bytes()), attribute(22, &attributes.concat())].concat()
}

/// Makes one leg of a multipath route.
pub fn leg(flags: u8, weight: u8, device: u32, attributes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + attributes.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([flags, weight - 1]);
    bytes.extend(device.to_ne_bytes());
    bytes.extend(attributes);
    bytes
}

/// Contents of a route message.
#[derive(Clone, Debug)]
pub struct Route {
    pub table: u32,
    pub prefix: IpNet,
    pub metric: u32,
    pub protocol: u8,
    pub kind: u8,
    pub tos: u8,
    /// Further attributes, encoded.
    pub rest: Vec<u8>,
}

impl Route {
    pub fn to(prefix: &str) -> Self {
        let prefix = prefix.parse().unwrap();
        Self { table: 254, prefix, metric: 1024, protocol: 4, kind: UNICAST, tos: 0, rest: Vec::new() }
    }

    pub fn with(mut self, attributes: &[u8]) -> Self {
        self.rest.extend(attributes);
        self
    }

    /// Adds `via ADDRESS dev DEVICE`.
    pub fn via(self, address: &str, device: u32) -> Self {
        let address: IpAddr = address.parse().unwrap();
        self.with(&attribute(5, &octets(address))).with(&number(4, device))
    }

    pub fn legs(self, legs: &[Vec<u8>]) -> Self {
        self.with(&attribute(9, &legs.concat()))
    }

    pub fn object(self, id: u32) -> Self {
        self.with(&number(30, id))
    }

    pub fn body(&self) -> Vec<u8> {
        let short = u8::try_from(self.table).unwrap_or(0);
        let mut body = vec![
            family(&self.prefix),
            self.prefix.prefix_len(),
            0,
            self.tos,
            short,
            self.protocol,
            0,
            self.kind,
            0,
            0,
            0,
            0,
        ];
        body.extend(number(15, self.table));
        body.extend(attribute(1, &octets(self.prefix.network())));
        body.extend(number(6, self.metric));
        body.extend(&self.rest);
        body
    }

    pub fn added(&self, flags: u16) -> Vec<u8> {
        message(NEW_ROUTE, flags, &self.body())
    }

    pub fn deleted(&self) -> Vec<u8> {
        message(DEL_ROUTE, 0, &self.body())
    }
}

/// Makes a message of a next-hop object: `struct nhmsg` and attributes.
pub fn next_hop(kind: u16, id: u32, attributes: &[u8]) -> Vec<u8> {
    let body = [vec![10, 0, 0, 0, 0, 0, 0, 0], number(1, id), attributes.to_vec()].concat();
    message(kind, 0, &body)
}

/// Makes the attribute with the members of a group and their weights.
pub fn group(members: &[(u32, u16)]) -> Vec<u8> {
    let member = |&(id, weight): &(u32, u16)| {
        let [low, high] = (weight - 1).to_le_bytes();
        [id.to_ne_bytes(), [low, high, 0, 0]].concat()
    };
    attribute(2, &members.iter().flat_map(member).collect::<Vec<u8>>())
}

/// Makes a message of `ip rule`: family, table, action, and attributes.
pub fn rule(family: u8, table: u8, action: u8, attributes: &[u8]) -> Vec<u8> {
    let head = vec![family, 0, 0, 0, table, 0, 0, action, 0, 0, 0, 0];
    message(NEW_RULE, 0, &[head, attributes.to_vec()].concat())
}
