//! Random states that `control` could plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{
    Balance, Behavior, Block, Csid, Desired, DscpMode, DtFamily, Flavors, Hop, HostPort, LocalSid, Mac, NodePolicy,
    Path, Port, PortId, Role, Route, RouteAction, Steer, TableId, Tunnel, UnknownSid,
};

use super::addresses::{
    all_neighbors, block, neighbor_v4, neighbor_v6, outer_source, own_address, prefix, remote_carrier, sid_prefix,
    source_prefix,
};

/// Number of devices of every state. Ports 0 to 2 are the devices, port 3 is a VLAN of device 0, port 4 is srv6d's own
/// veth.
const DEVICES: u16 = 3;
/// VLAN ID of port 3.
pub const VID: u16 = 100;

/// A desired state that `control` could plan.
#[derive(Clone)]
pub struct State(pub Desired);

/// Short form, because a difference is reported with the whole state; see [`crate::compare`].
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} SIDs, {} steered prefixes, {} routes",
            self.0.sids.len(),
            self.0.steers.len(),
            self.0.routes.len()
        )
    }
}

/// Makes a complete state.
pub fn state() -> impl Strategy<Value = State> {
    let ports = (vec(port(), usize::from(DEVICES)), port(), option::weighted(0.9, port()));
    let hosts = vec(sid_prefix().prop_map(|(prefix, _)| prefix), 0..2);
    let sids = (vec(block_policy(), 0..3), vec(local_sid(), 0..14), hosts);
    let ways = (vec(steer(), 0..5), vec(route(), 0..16));
    let node = (vec((table(), own_address()), 0..4), neighbors(), vec(select(vec![1280u32, 1300, 1400, 9000]), 0..3));
    (ports, tunnel(), policy(), sids, ways, node).prop_map(|(ports, tunnel, policy, sids, ways, node)| {
        let (ports, host) = all_ports(ports);
        let ((blocks, sids, host_prefixes), (steers, routes), (local_addresses, neighbors, mtus)) = (sids, ways, node);
        let paths = steers.iter().flat_map(|steer: &Steer| &steer.paths);
        let path_mtus = paths.map(|path| path.segments.clone()).zip(mtus).collect();
        let mut desired = Desired {
            ports,
            host,
            tunnel,
            policy,
            blocks,
            host_prefixes,
            sids,
            steers,
            routes,
            local_addresses,
            neighbors,
            path_mtus,
            offload: BTreeSet::new(),
            auto_offload: BTreeSet::new(),
            emulated: BTreeMap::new(),
            balance: Balance::default(),
        };
        make_unique(&mut desired);
        State(desired)
    })
}

/// Puts all ports into one list. Their names, numbers and MAC addresses follow from their positions.
fn all_ports((devices, tagged, host): (Vec<Port>, Port, Option<Port>)) -> (Vec<Port>, Option<HostPort>) {
    let mut ports = devices;
    ports.push(Port { vlan: Some(VID), ..tagged });
    let host_port = host.map(|port| {
        ports.push(Port { role: Role::Kernel, ..port });
        HostPort { port: PortId(DEVICES + 1), kernel_mac: Mac([2, 0, 0, 0, 4, 2]) }
    });
    for (index, port) in (0u16..).zip(&mut ports) {
        let number = u8::try_from(index).unwrap_or_default();
        let is_tagged = port.vlan.is_some();
        port.device = if is_tagged { 0 } else { index };
        port.mac = Mac([2, 0, 0, 0, if is_tagged { 0 } else { number }, 1]);
        port.name = if is_tagged { format!("p0.{VID}") } else { format!("p{index}") };
    }
    (ports, host_port)
}

/// Removes duplicate prefixes, which `control` would refuse, and names paths by their positions.
fn make_unique(desired: &mut Desired) {
    let mut seen = Vec::new();
    let mut is_new = |key: (TableId, IpNet)| {
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    };
    desired.sids.retain(|sid| is_new((TableId::MAIN, sid.prefix.into())));
    desired.steers.retain(|steer| is_new((steer.table, steer.prefix)));
    desired.routes.retain(|route| is_new((route.table, route.prefix)));
    let mut blocks = Vec::new();
    desired.blocks.retain(|block| {
        !blocks.contains(&block.prefix) && {
            blocks.push(block.prefix);
            true
        }
    });
    for (number, path) in desired.steers.iter_mut().flat_map(|steer| &mut steer.paths).enumerate() {
        path.name = format!("path{number}");
    }
}

fn port() -> impl Strategy<Value = Port> {
    let role = prop_oneof![8 => Just(Role::Fabric), 1 => Just(Role::Edge), 1 => Just(Role::Host)];
    let mtu = prop_oneof![20 => Just(1500u32), 2 => Just(1280), 1 => Just(1320), 3 => Just(9000), 1 => Just(600)];
    let sources = (option::weighted(0.2, outer_source()), any::<bool>());
    let allowed =
        (vec(source_prefix().prop_map(Into::into), 0..2), vec(sid_prefix().prop_map(|(prefix, _)| prefix), 0..2));
    let allowed = option::weighted(0.15, allowed);
    let flags = (prop::bool::weighted(0.07), table(), role, prop::bool::weighted(0.1));
    (mtu, sources, allowed, flags).prop_map(|(mtu, sources, allowed, (down, table, role, fill_checksum))| {
        let (source, has_address) = sources;
        let (allowed_sources, allowed_carriers) = allowed.unwrap_or_default();
        Port {
            name: String::new(),
            device: 0,
            vlan: None,
            mac: Mac::default(),
            mtu,
            up: !down,
            table,
            role,
            source,
            icmp_source_v6: has_address.then(|| "2001:db8:1::1".parse().ok()).flatten(),
            icmp_source_v4: has_address.then(|| "10.0.1.1".parse().ok()).flatten(),
            allowed_sources,
            allowed_carriers,
            fill_checksum,
        }
    })
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    let source = "2001:db8:cafe::1".parse().ok();
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), any::<bool>());
    (select(vec![64u8, 64, 1, 255]), dscp(), flags).prop_map(move |(hop_limit, dscp, flags)| {
        let (ecn_compat, hash_qp, decrement_local) = flags;
        Tunnel { source, hop_limit, dscp, ecn_compat, hash_qp, decrement_local }
    })
}

fn dscp() -> impl Strategy<Value = DscpMode> {
    prop_oneof![Just(DscpMode::Uniform), (0u8..64).prop_map(DscpMode::Pipe)]
}

fn policy() -> impl Strategy<Value = NodePolicy> {
    let domain = option::weighted(0.1, vec(source_prefix(), 1..3));
    let unreachable = prop::bool::weighted(0.3);
    let rate = prop_oneof![9 => Just(100u32), 1 => Just(0)];
    (rate, unreachable, any::<[bool; 4]>(), domain, any::<u64>()).prop_map(
        |(icmp_per_second, icmp_unreachable, flags, domain, hash_seed)| {
            let [srh_lenient, ua_last_forward, dt_argument_accept, vrf_sids] = flags;
            NodePolicy {
                icmp_per_second,
                icmp_unreachable,
                srh_lenient,
                ua_last_forward,
                dt_argument_accept,
                vrf_sids,
                domain_sources: domain.unwrap_or_default(),
                least_path_mtu: 1280,
                hash_seed,
            }
        },
    )
}

fn block_policy() -> impl Strategy<Value = Block> {
    let unknown = select(vec![Some(UnknownSid::Drop), Some(UnknownSid::Icmp), Some(UnknownSid::Punt), None]);
    (block(), unknown).prop_map(|(prefix, unknown)| Block { prefix, unknown })
}

fn table() -> impl Strategy<Value = TableId> {
    prop_oneof![5 => Just(TableId::MAIN), 1 => Just(TableId(100))]
}

fn hop(via: impl Strategy<Value = IpAddr>) -> impl Strategy<Value = Hop> {
    (0..=DEVICES, via, 1u16..4).prop_map(|(port, via, weight)| Hop { port: PortId(port), via: Some(via), weight })
}

/// Makes next hops: either one port without a neighbour, so that each destination is its own neighbour, or one to three
/// neighbours.
fn hops(is_v6: bool, on_link: u32) -> impl Strategy<Value = Vec<Hop>> {
    let via = if is_v6 { neighbor_v6().boxed() } else { prop_oneof![neighbor_v4(), neighbor_v6()].boxed() };
    let alone = (0..=DEVICES).prop_map(|port| vec![Hop { port: PortId(port), via: None, weight: 1 }]);
    prop_oneof![on_link => alone, 4 => vec(hop(via), 1..4)]
}

fn local_sid() -> impl Strategy<Value = LocalSid> {
    let flavors = any::<[bool; 3]>().prop_map(|[psp, usp, usd]| Flavors { psp, usp, usd });
    // Lengths that do not match the prefix cause a warning only, so they are used as well.
    let odd = prop_oneof![8 => Just(0u8), 1 => Just(8), 1 => Just(16)];
    (sid_prefix(), any::<bool>(), odd, flavors).prop_flat_map(|((prefix, lblen), is_classic, odd, flavors)| {
        let nflen = (prefix.prefix_len() - lblen + odd).min(128 - lblen);
        let csid = (!is_classic).then_some(Csid { lblen, nflen });
        behavior(csid).prop_map(move |behavior| LocalSid { prefix, behavior, flavors })
    })
}

fn behavior(csid: Option<Csid>) -> impl Strategy<Value = Behavior> {
    let family = || select(vec![DtFamily::V6, DtFamily::V4, DtFamily::V46]);
    let cross = prop_oneof![
        hops(true, 2).prop_map(|via| Behavior::EndDx { family: DtFamily::V6, via }),
        vec(hop(neighbor_v4()), 1..3).prop_map(|via| Behavior::EndDx { family: DtFamily::V4, via }),
    ];
    prop_oneof![
        4 => dscp().prop_map(move |dscp| Behavior::End { csid, dscp }),
        2 => (vec(hop(neighbor_v6()), 1..4), vec(hop(neighbor_v6()), 0..2))
            .prop_map(move |(via, backup)| Behavior::EndX { csid, via, backup }),
        3 => (family(), table(), dscp()).prop_map(|(family, table, dscp)| Behavior::EndDt { family, table, dscp }),
        1 => cross,
    ]
}

fn steer() -> impl Strategy<Value = Steer> {
    (table(), prefix(), prop_oneof![vec(path(), 1), vec(path(), 2..4)]).prop_map(|(table, prefix, paths)| Steer {
        table,
        prefix,
        paths,
    })
}

fn path() -> impl Strategy<Value = Path> {
    let segments = prop_oneof![2 => vec(remote_carrier(), 1), 1 => vec(remote_carrier(), 2..=8)]
        .prop_filter_map("a segment list", |segments| SegmentList::new(segments, &[]).ok());
    let via = option::weighted(0.5, hops(true, 1)).prop_map(Option::unwrap_or_default);
    let rest = (prop::bool::weighted(0.3), 1u16..4, option::weighted(0.2, outer_source()), via);
    (segments, rest).prop_map(|(segments, (full_srh, weight, source, via))| Path {
        name: String::new(),
        segments,
        full_srh,
        weight,
        source,
        via,
    })
}

fn route() -> impl Strategy<Value = Route> {
    (table(), prefix()).prop_flat_map(|(table, prefix)| {
        let is_v6 = prefix.addr().is_ipv6();
        let action = prop_oneof![
            10 => hops(is_v6, 3).prop_map(RouteAction::Via),
            1 => Just(RouteAction::Blackhole),
            1 => Just(RouteAction::Unreachable),
            1 => Just(RouteAction::Kernel),
        ];
        action.prop_map(move |action| Route { table, prefix, action })
    })
}

/// Makes the table of neighbours, with most of those that are possible.
fn neighbors() -> impl Strategy<Value = BTreeMap<(PortId, IpAddr), Mac>> {
    let all: Vec<(PortId, IpAddr)> = (0..=DEVICES)
        .flat_map(|port| all_neighbors().into_iter().map(move |address| (PortId(port), address)))
        .collect();
    vec(prop::bool::weighted(0.85), all.len()).prop_map(move |known| {
        let numbered = (0u8..).zip(&all).zip(known);
        numbered.filter(|(_, known)| *known).map(|((last, key), _)| (*key, Mac([2, 0, 0, 0, 0xee, last]))).collect()
    })
}
