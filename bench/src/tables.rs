//! Tables of a given size.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use srv6d_dataplane::Snapshot;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Amendment, Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, Path, Port, PortId,
    Route, RouteAction, RouteChange, Steer, TableId, Tunnel, UnknownSid,
};
use srv6d_srv6::{BuildError, Slots, Tables, Tally};

/// MAC address of every port in the benches.
pub const PORT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// MAC address of every neighbour.
pub const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xcafe, 0, 0, 0, 0, 1);
const NEXT_HOP: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2));
/// Only prefixes with numbers below this may be steered. Each steered prefix has a path of its own, and a realistic
/// node has thousands of them, not half a million.
pub(crate) const STEERED_BELOW: u32 = 20_000;

/// Returns prefix number `n`. One in four is IPv4, the others IPv6, with a mix of lengths as in operators' tables. IPv6
/// prefixes come in allocations of sixteen: a /32, several /48 inside it, several /64 inside one /48, and a /128 inside
/// one /64.
pub fn prefix(n: u32) -> IpNet {
    if n % 4 == 3 { v4_prefix(n / 4).into() } else { v6_prefix(n - n / 4).into() }
}

fn v6_prefix(n: u32) -> Ipv6Net {
    let allocation = (n / 16).wrapping_mul(0x9e37_79b1);
    let (first, second) = (0x2a00 | (allocation >> 28) as u16, (allocation >> 12) as u16);
    let (len, third, fourth) = match n % 16 {
        0 => (32, 0, 0),
        site @ 1..=8 => (48, site as u16, 0),
        lan @ 9..=14 => (64, 3, lan as u16),
        _ => (128, 3, 9),
    };
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, fourth, 0, 0, 0, u16::from(len == 128)), len)
}

fn v4_prefix(n: u32) -> Ipv4Net {
    let len = match n % 16 {
        0 => 32,
        1 => 16,
        2..=4 => 22,
        _ => 24,
    };
    // The addresses 128.0.0.0 to 191.255.255.255 contain no special range except 169.254/16.
    let bits = 0x8000_0000 + (n.wrapping_mul(0x9e37_79b1) >> 2);
    let bits = if bits >> 16 == 0xa9fe { bits ^ 0x0001_0000 } else { bits };
    Ipv4Net::new_assert(Ipv4Addr::from_bits(bits), len).trunc()
}

/// Returns whether prefix number `n` is steered over a path. All others are plain routes.
pub fn is_steered(n: u32) -> bool {
    n < STEERED_BELOW && (n / 4).is_multiple_of(2)
}

/// The properties in which the nodes of the cases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of segments of every path.
    pub segments: u16,
    /// Whether only sources in `domain_sources` may use the SIDs.
    pub has_domain: bool,
    /// Whether the node has another port, which is a VLAN.
    pub has_tagged_port: bool,
}

impl Node {
    /// A node with paths of one segment.
    pub const PLAIN: Self = Self { segments: 1, has_domain: false, has_tagged_port: false };
    /// A node with paths of three segments.
    pub const LISTS: Self = Self { segments: 3, ..Self::PLAIN };
    /// A node with `domain_sources` as in a fabric: the block, the loopback addresses, and the addresses of the hosts.
    pub const DOMAIN: Self = Self { has_domain: true, ..Self::PLAIN };
    /// A node with one more port, which is tagged.
    pub const TAGGED: Self = Self { has_tagged_port: true, ..Self::PLAIN };
    /// All nodes.
    pub const ALL: [Self; 4] = [Self::PLAIN, Self::LISTS, Self::DOMAIN, Self::TAGGED];
}

fn hop() -> Hop {
    Hop { port: PortId(1), via: Some(NEXT_HOP), weight: 1 }
}

/// Returns one of 64 segment lists, because in a fabric many prefixes share a path.
fn segments(prefix: u32, count: u16) -> SegmentList {
    let egress = 0x200 + (prefix % 64) as u16;
    let carrier = |n: u16| Ipv6Addr::new(0xfcbb, 0xbbbb, 0x100 + n, egress, 0xfe06, 0, 0, 0);
    SegmentList::new((0..count).map(carrier).collect(), &[]).unwrap_or_else(|why| unreachable!("{why}"))
}

/// Returns the state of a node with `prefixes` prefixes: some are steered over `list` segments, the others are plain
/// routes. The node also has SIDs, and a route to another node of its block.
pub fn desired(prefixes: u32, list: u16) -> Desired {
    let (steered, plain): (Vec<u32>, Vec<u32>) = (0..prefixes).partition(|&n| is_steered(n));
    let mut steers: Vec<_> = steered.into_iter().map(|n| steer(prefix(n), n, list)).collect();
    steers.push(steer(Ipv4Net::new_assert(Ipv4Addr::new(44, 2, 0, 0), 16).into(), prefixes, list));
    // Among a million numbers, some give the same prefix; a desired state may contain each prefix only once.
    let mut known = HashSet::new();
    let plain = plain.into_iter().map(prefix).filter(|&prefix| known.insert(prefix));
    let mut routes: Vec<_> = plain.map(route).collect();
    routes.push(route(Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0xbbbb, 2, 0, 0, 0, 0, 0), 48).into()));
    routes.push(route(Ipv6Net::new_assert(Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 0), 16).into()));
    routes.push(route(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8).into()));
    let block = Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0xbbbb, 0, 0, 0, 0, 0, 0), 32);
    Desired {
        ports: vec![Port::fabric("p0", 0, PORT_MAC, 9000), Port::fabric("p1", 1, PORT_MAC, 9000)],
        tunnel: Tunnel { source: Some(SOURCE), ..Tunnel::default() },
        blocks: vec![Block { prefix: block, unknown: Some(UnknownSid::Drop) }],
        sids: sids(),
        steers,
        routes,
        neighbors: [((PortId(1), NEXT_HOP), PEER)].into(),
        ..Desired::default()
    }
}

/// Returns a uN, a uDT6 and a uDT4.
fn sids() -> Vec<LocalSid> {
    let sid = |groups: [u16; 4], len: u8, behavior: Behavior| LocalSid {
        prefix: Ipv6Net::new_assert(Ipv6Addr::new(groups[0], groups[1], groups[2], groups[3], 0, 0, 0, 0), len),
        behavior,
        flavors: Flavors::default(),
    };
    let dt = |family| Behavior::EndDt { family, table: TableId::MAIN, dscp: DscpMode::Pipe(0) };
    let csid = Some(Csid { lblen: 32, nflen: 16 });
    vec![
        sid([0xfcbb, 0xbbbb, 1, 0], 48, Behavior::End { csid, dscp: DscpMode::Pipe(0) }),
        sid([0xfcbb, 0xbbbb, 1, 0xfe06], 64, dt(DtFamily::V6)),
        sid([0xfcbb, 0xbbbb, 1, 0xfe04], 64, dt(DtFamily::V4)),
    ]
}

fn steer(prefix: IpNet, n: u32, list: u16) -> Steer {
    let path = Path {
        name: format!("path-{n}"),
        segments: segments(n, list),
        full_srh: false,
        weight: 1,
        source: None,
        via: vec![hop()],
    };
    Steer { table: TableId::MAIN, prefix, paths: vec![path] }
}

fn route(prefix: IpNet) -> Route {
    Route { table: TableId::MAIN, prefix, action: RouteAction::Via(vec![hop()]) }
}

/// Returns a change that adds a plain route with the common next hop, or deletes it.
pub fn route_change(prefix: IpNet, is_there: bool) -> Amendment {
    let action = is_there.then(|| RouteAction::Via(vec![hop()]));
    vec![RouteChange { table: TableId::MAIN, prefix, action }].into()
}

/// Builds a snapshot of [`desired`] for one worker, with the domain and the tagged port that this node has.
///
/// # Errors
/// [`BuildError`]: the state cannot be built into tables.
pub fn snapshot(prefixes: u32, node: Node) -> Result<Snapshot, BuildError> {
    let mut slots = Slots::default();
    let mut desired = desired(prefixes, node.segments);
    if node.has_domain {
        desired.policy.domain_sources = domain();
    }
    if node.has_tagged_port {
        desired.ports.push(Port { vlan: Some(VID), ..Port::fabric(TAGGED_PORT, 1, PORT_MAC, 9000) });
        slots.vlans.slot(TAGGED_PORT.to_owned());
    }
    let tables = Tables::build(&desired, &mut slots)?;
    let tally = Arc::new(Tally::new(&slots));
    let vlans = slots.vlans.find(&TAGGED_PORT.to_owned()).map(|slot| vec![Vec::new(), vec![(VID, slot)]]);
    let mut snapshot = Snapshot::direct(tables, tally, 2);
    snapshot.wiring.vlans = vlans.unwrap_or_default();
    Ok(snapshot)
}

/// The VLAN of the tagged port, which is one of the device that packets leave through.
const VID: u16 = 100;
const TAGGED_PORT: &str = "p1.100";

fn domain() -> Vec<Ipv6Net> {
    let subnet =
        |second: u16, third: u16, len| Ipv6Net::new_assert(Ipv6Addr::new(0x2001, second, third, 0, 0, 0, 0, 0), len);
    let block = Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0xbbbb, 0, 0, 0, 0, 0, 0), 32);
    vec![block, subnet(0xdb8, 0xcafe, 48), subnet(0xdb8, 0, 48)]
}
