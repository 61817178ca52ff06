//! What the benches share: tables of a given size, and packets that go through them.
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, clippy::indexing_slicing)] // numbers and frames of our own making

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use srv6d_dataplane::Snapshot;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{
    Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, Path, Port, PortId, Role, Route,
    RouteAction, Steer, TableId, Tunnel, UnknownSid,
};
use srv6d_srv6::{BuildError, Slots, Tables, Tally};
use srv6d_wire::checksum;

/// Address of every port of the benches.
pub const PORT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xcafe, 0, 0, 0, 0, 1);
const NEXT_HOP: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2));
/// Flows that each bench goes round through.
pub const FLOWS: usize = 1024;

/// Prefix number `n` of the size under test: a realistic mix of /48, /64, /128 and /32, far apart from each other.
fn prefix(n: u32) -> Ipv6Net {
    let spread = n.wrapping_mul(0x9e37_79b1);
    let [high, low] = [(spread >> 16) as u16, (spread & 0xffff) as u16];
    let (len, first) = match n % 16 {
        0 => (32, 0x2a00),
        1..=8 => (48, 0x2a01),
        9..=14 => (64, 0x2a02),
        _ => (128, 0x2a03),
    };
    Ipv6Net::new_assert(Ipv6Addr::new(first, high, low, 1, 0, 0, 0, 1), len).trunc()
}

fn hop() -> Hop {
    Hop { port: PortId(1), via: Some(NEXT_HOP), weight: 1 }
}

fn port(name: &str, index: u16) -> Port {
    Port {
        name: name.to_owned(),
        device: index,
        vlan: None,
        mac: PORT_MAC,
        mtu: 9000,
        up: true,
        table: TableId::MAIN,
        role: Role::Fabric,
        source: None,
        icmp_source_v6: None,
        icmp_source_v4: None,
        allowed_sources: vec![],
        allowed_carriers: vec![],
        fill_checksum: false,
    }
}

fn segments(count: u16) -> SegmentList {
    let carrier = |n: u16| Ipv6Addr::new(0xfcbb, 0xbbbb, 0x100 + n, 0x200, 0xfe06, 0, 0, 0);
    SegmentList::new((0..count).map(carrier).collect(), &[]).unwrap_or_else(|why| unreachable!("{why}"))
}

/// A node with `prefixes` prefixes, half of them steered over `list` segments and half plain; a uN, a uDT6 and
/// a uDT4; and routes to other nodes of its block.
pub fn desired(prefixes: u32, list: u16) -> Desired {
    let sid = |text: [u16; 4], len: u8, behavior: Behavior| LocalSid {
        prefix: Ipv6Net::new_assert(Ipv6Addr::new(text[0], text[1], text[2], text[3], 0, 0, 0, 0), len),
        behavior,
        flavors: Flavors::default(),
    };
    let dt = |family| Behavior::EndDt { family, table: TableId::MAIN, dscp: DscpMode::Pipe(0) };
    let csid = Some(Csid { lblen: 32, nflen: 16 });
    let steer = |prefix: IpNet, name: String| Steer {
        table: TableId::MAIN,
        prefix,
        paths: vec![Path {
            name,
            segments: segments(list),
            full_srh: false,
            weight: 1,
            source: None,
            via: vec![hop()],
        }],
    };
    let route = |prefix: IpNet| Route { table: TableId::MAIN, prefix, action: RouteAction::Via(vec![hop()]) };
    let mut desired = Desired {
        ports: vec![port("p0", 0), port("p1", 1)],
        tunnel: Tunnel { source: Some(SOURCE), ..Tunnel::default() },
        blocks: vec![Block {
            prefix: Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0xbbbb, 0, 0, 0, 0, 0, 0), 32),
            unknown: UnknownSid::Drop,
        }],
        sids: vec![
            sid([0xfcbb, 0xbbbb, 1, 0], 48, Behavior::End { csid, dscp: DscpMode::Pipe(0) }),
            sid([0xfcbb, 0xbbbb, 1, 0xfe06], 64, dt(DtFamily::V6)),
            sid([0xfcbb, 0xbbbb, 1, 0xfe04], 64, dt(DtFamily::V4)),
        ],
        neighbors: [((PortId(1), NEXT_HOP), PEER)].into(),
        ..Desired::default()
    };
    for n in 0..prefixes {
        // Steered prefixes cost a path each; a realistic node has thousands of them, not half a million.
        if n % 2 == 0 && n < 20_000 {
            desired.steers.push(steer(prefix(n).into(), format!("path-{n}")));
        } else {
            desired.routes.push(route(prefix(n).into()));
        }
    }
    desired.steers.push(steer(Ipv4Net::new_assert(Ipv4Addr::new(44, 2, 0, 0), 16).into(), "path-v4".to_owned()));
    let locator = Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0xbbbb, 2, 0, 0, 0, 0, 0), 48);
    desired.routes.push(route(locator.into()));
    desired.routes.push(route(Ipv6Net::new_assert(Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 0), 16).into()));
    desired.routes.push(route(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8).into()));
    desired
}

/// A snapshot of [`desired`] for one worker.
///
/// # Errors
/// [`BuildError`].
pub fn snapshot(prefixes: u32, list: u16) -> Result<Snapshot, BuildError> {
    let mut slots = Slots::default();
    let tables = Tables::build(&desired(prefixes, list), &mut slots)?;
    let tally = Arc::new(Tally::new(&slots));
    Ok(Snapshot::direct(tables, tally, 2))
}

/// The packet classes of the benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// uN: shift and forward.
    Shift,
    /// H.Encaps.Red of an IPv6 packet.
    EncapV6,
    /// H.Encaps.Red of an IPv4 packet.
    EncapV4,
    /// uDT6.
    Decap,
    /// Plain IPv6 forwarding.
    Transit,
}

/// Flow number `flow` of a class, 128 bytes without FCS, towards one of `prefixes` prefixes.
pub fn frame(class: Class, prefixes: u32, flow: usize) -> Vec<u8> {
    const LEN: usize = 128;
    let number = u32::try_from(flow).unwrap_or(0).wrapping_mul(2_654_435_761);
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend(PORT_MAC.0);
    bytes.extend(PEER.0);
    let steered = |wanted: u32| prefix((number % prefixes.clamp(1, wanted)) & !1).network();
    let plain = |wanted: u32| prefix((number % prefixes.clamp(2, wanted)) | 1).network();
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, (number >> 16) as u16, (number & 0xffff) as u16);
    let carrier = |usids: [u16; 2]| Ipv6Addr::new(0xfcbb, 0xbbbb, usids[0], usids[1], 0x333, 0x444, 0, 0);
    match class {
        Class::Shift => ipv6(&mut bytes, source, carrier([1, 2]), 41, LEN),
        Class::EncapV6 => ipv6(&mut bytes, source, steered(20_000), 17, LEN),
        Class::Transit => ipv6(&mut bytes, source, plain(u32::MAX), 17, LEN),
        Class::Decap => {
            let sid = Ipv6Addr::new(0xfcbb, 0xbbbb, 1, 0xfe06, 0, 0, 0, 0);
            ipv6(&mut bytes, source, sid, 41, LEN);
            bytes.truncate(14 + 40);
            let mut inner = vec![0; 14];
            ipv6(&mut inner, source, Ipv6Addr::new(0x3000, 0, 0, 0, 0, 0, 0, 7), 17, LEN - 40);
            bytes.extend(inner.iter().skip(14));
        }
        Class::EncapV4 => {
            bytes.extend([0x08, 0x00]);
            let total = (LEN - 14) as u16;
            bytes.extend([0x45, 0]);
            bytes.extend(total.to_be_bytes());
            bytes.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, (number >> 8) as u8, number as u8, 44, 2, 2, 2]);
            let [high, low] = checksum::of(&bytes[14..34]).to_be_bytes();
            (bytes[24], bytes[25]) = (high, low);
            bytes.resize(LEN, 0x41);
        }
    }
    bytes
}

fn ipv6(bytes: &mut Vec<u8>, source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, len: usize) {
    bytes.truncate(12);
    bytes.resize(12, 0);
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    bytes.extend(((len - 54) as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend([0xc3, 0x50, 0x12, 0xb7]);
    bytes.resize(len, 0x41);
}
