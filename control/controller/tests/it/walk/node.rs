//! Nodes of a random fabric, with the tables and the forwarding code of the packet path.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use srv6d_controller::sid::Family;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, LocalSid, Mac, Path, Port, PortId, Role, Route,
    RouteAction, Steer, TableId, Tunnel, UnknownSid,
};
use srv6d_srv6::{Slots, SlowState, Tables, Tally, Verdict, forward_one};
use srv6d_wire::Packet;

use super::fabric::{self, Fabric, Function, Style};

/// Ports of the sending host.
pub const UPLINK: u16 = 0;
pub const APPLICATION: u16 = 1;
pub const APPLICATION_MAC: [u8; 6] = [2, 0, 0, 0xff, 0, 1];
const ROOM: usize = 4096;
/// Table of the hosts. A node that removes the header without the function looks up another table and finds nothing.
const TENANT: TableId = TableId(7);

pub struct Node {
    tables: Tables,
    tally: Tally,
}

/// Returns the address of a node's port.
fn mac(node: usize, port: u16) -> Mac {
    Mac([2, 0, 0, u8::try_from(node).unwrap(), 0, u8::try_from(port).unwrap()])
}

/// Returns the link-local address of a node.
fn address(node: usize) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1 + u16::try_from(node).unwrap()).into()
}

/// Returns the link-local address of the host behind a node.
fn host() -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, 0).into()
}

fn port(name: String, index: u16, mac: Mac, role: Role) -> Port {
    Port { role, ..Port::fabric(name, index, mac, 9000) }
}

fn hop(port: u16, via: IpAddr) -> Hop {
    Hop { port: PortId(port), via: Some(via), weight: 1 }
}

/// Returns the prefix of the test's F3216 block and these uSIDs.
fn prefix(usids: &[u16]) -> Ipv6Net {
    let mut groups = [0xfcbb, 0, 0, 0, 0, 0, 0, 0];
    groups[2..2 + usids.len()].copy_from_slice(usids);
    Ipv6Net::new(groups.into(), u8::try_from(32 + 16 * usids.len()).unwrap()).unwrap()
}

impl Node {
    fn new(desired: &Desired) -> Self {
        let mut slots = Slots::default();
        let tables = Tables::build(desired, &mut slots).unwrap();
        Self { tables, tally: Tally::new(&slots) }
    }

    /// Builds a node of the fabric. Only the last node of the path has a route to the host.
    pub fn of(fabric: &Fabric, node: usize) -> Self {
        let neighbors = fabric.neighbors(node);
        let host_port = fabric.host_port(node);
        let ports = (0..=host_port).map(|index| port(format!("p{index}"), index, mac(node, index), Role::Fabric));
        let link = |(index, other): (usize, &usize)| {
            let index = u16::try_from(index).unwrap();
            let (_, back) = fabric.other_end(node, index);
            ((PortId(index), address(*other)), mac(*other, back))
        };
        let mut known: BTreeMap<_, _> = neighbors.iter().enumerate().map(link).collect();
        known.insert((PortId(host_port), host()), Mac([2, 0, 0, 0xfe, 0, 0]));
        let mut routes = if fabric.style == Style::Planes { Vec::new() } else { routes_to_nodes(fabric, node) };
        if node == fabric.last() {
            let to_host = |prefix: &str| Route {
                table: TENANT,
                prefix: prefix.parse().unwrap(),
                action: RouteAction::Via(vec![hop(host_port, host())]),
            };
            routes.extend(["2001:db8:d::/64", "198.51.100.0/24"].map(to_host));
        }
        Self::new(&Desired {
            ports: ports.collect(),
            blocks: vec![Block { prefix: prefix(&[]), unknown: Some(UnknownSid::Drop) }],
            sids: sids(fabric, node),
            routes,
            neighbors: known,
            ..Desired::default()
        })
    }

    /// Builds the host that encapsulates.
    pub fn source(fabric: &Fabric, family: Family, segments: &[Ipv6Addr], full_srh: bool) -> Self {
        let first = fabric.walk[0];
        let destination = match family {
            Family::V6 => IpNet::new(fabric::destination_v6().into(), 64).unwrap().trunc(),
            Family::V4 => IpNet::new(fabric::DESTINATION_V4.into(), 24).unwrap().trunc(),
        };
        let path = Path {
            name: "hosts/y".to_owned(),
            segments: SegmentList::new(segments.to_vec(), &[prefix(&[])]).unwrap(),
            full_srh,
            weight: 1,
            source: None,
            via: vec![hop(UPLINK, address(first))],
        };
        Self::new(&Desired {
            ports: vec![
                port("up".to_owned(), UPLINK, Mac([2, 0, 0, 0xff, 0, 0]), Role::Fabric),
                port("app".to_owned(), APPLICATION, Mac(APPLICATION_MAC), Role::Edge),
            ],
            tunnel: Tunnel { source: Some("2001:db8:a::ff".parse().unwrap()), ..Tunnel::default() },
            steers: vec![Steer { table: TableId::MAIN, prefix: destination, paths: vec![path] }],
            neighbors: BTreeMap::from([((PortId(UPLINK), address(first)), mac(first, fabric.host_port(first)))]),
            ..Desired::default()
        })
    }

    /// Forwards a frame, and returns the frame that leaves and its device. Any other verdict fails the test.
    pub fn forward(&self, frame: &[u8], device: u16) -> (Vec<u8>, u16) {
        let mut room = vec![0; ROOM];
        let front = 256;
        room[front..front + frame.len()].copy_from_slice(frame);
        let mut packet = Packet::new(&mut room, front + frame.len(), 0);
        packet.pull_front(front);
        let verdict = forward_one(&self.tables, &self.tally, &mut SlowState::default(), 0, device, &mut packet);
        match verdict {
            Verdict::Tx(device) => (packet.bytes().to_vec(), device),
            other => panic!("{other:?}: {:02x?}", packet.bytes()),
        }
    }
}

fn sids(fabric: &Fabric, node: usize) -> Vec<LocalSid> {
    let flavors = Flavors { psp: true, usp: false, usd: true };
    let usid = fabric.usids[node];
    let csid = |nflen| Some(Csid { lblen: 32, nflen });
    let dt = |usids: &[u16], family| {
        let behavior = Behavior::EndDt { family, table: TENANT, dscp: DscpMode::Pipe(0) };
        LocalSid { prefix: prefix(usids), behavior, flavors: Flavors::default() }
    };
    let mut sids = Vec::new();
    if fabric.style != Style::Planes {
        let behavior = Behavior::End { csid: csid(16), dscp: DscpMode::Pipe(0) };
        sids.push(LocalSid { prefix: prefix(&[usid]), behavior, flavors });
    }
    for (port, other) in (0..).zip(fabric.neighbors(node)) {
        let (usids, nflen) = match fabric.style {
            Style::Planes => (vec![fabric::adjacency(port)], 16),
            _ => (vec![usid, fabric::adjacency(port)], 32),
        };
        let behavior = Behavior::EndX { csid: csid(nflen), via: vec![hop(port, address(other))], backup: Vec::new() };
        sids.push(LocalSid { prefix: prefix(&usids), behavior, flavors });
    }
    // Only the last node has the function, so that no other node can remove the header.
    if node == fabric.last() {
        match fabric.function {
            Function::Own => {
                sids.push(dt(&[usid, 0xfe04], DtFamily::V4));
                sids.push(dt(&[usid, 0xfe06], DtFamily::V6));
            }
            Function::Both => sids.push(dt(&[usid, 0xfe46], DtFamily::V46)),
            Function::Alone => sids.push(dt(&[0xd000], DtFamily::V46)),
            Function::Host | Function::Configured => sids.push(dt(&[usid, fabric::FUNCTION], DtFamily::V46)),
        }
    }
    sids
}

/// Returns routes to the uN of every other node over the fewest links.
fn routes_to_nodes(fabric: &Fabric, node: usize) -> Vec<Route> {
    let mut first_port = BTreeMap::new();
    let mut queue: VecDeque<(usize, u16)> = VecDeque::new();
    for (port, other) in (0..).zip(fabric.neighbors(node)) {
        first_port.insert(other, port);
        queue.push_back((other, port));
    }
    while let Some((here, port)) = queue.pop_front() {
        for next in fabric.neighbors(here) {
            if next != node && !first_port.contains_key(&next) {
                first_port.insert(next, port);
                queue.push_back((next, port));
            }
        }
    }
    let neighbors = fabric.neighbors(node);
    let route = |(to, port): (usize, u16)| Route {
        table: TableId::MAIN,
        prefix: prefix(&[fabric.usids[to]]).into(),
        action: RouteAction::Via(vec![hop(port, address(neighbors[usize::from(port)]))]),
    };
    first_port.into_iter().map(route).collect()
}
