//! Configures a node's kernel by `ip` commands: devices, addresses, settings and routes.

use crate::namespaces;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use ipnet::IpNet;

use super::error::LabError;
use super::routing::{self, PlainRoute};
use super::topology::{Behavior, Forwarder, Link, Node, Role, Sid, Steer, Topology};

/// Metric of the lab's kernel routes. srv6d's own routes for steered prefixes take precedence; the kernel's routes
/// become active when srv6d is gone.
const METRIC: u32 = 4096;
/// First index of the lab's devices. It is higher than the indexes that the kernel assigns by itself.
const FIRST_INDEX: usize = 1000;

/// Returns the settings that must be made before the first device exists: no duplicate address detection and no router
/// advertisements, so that an address can be used at once.
pub fn early_settings() -> Vec<(String, &'static str)> {
    let mut settings = Vec::new();
    for device in ["all", "default"] {
        settings.push((format!("ipv6/conf/{device}/disable_ipv6"), "0"));
        settings.push((format!("ipv6/conf/{device}/accept_dad"), "0"));
        settings.push((format!("ipv6/conf/{device}/accept_ra"), "0"));
        // A link that goes down and comes up again keeps its addresses.
        settings.push((format!("ipv6/conf/{device}/keep_addr_on_down"), "1"));
        // Replies may arrive by a different port than the one that leads back to the sender.
        settings.push((format!("ipv4/conf/{device}/rp_filter"), "0"));
    }
    settings
}

/// Returns the settings of a node whose devices exist. The kernel of a srv6d node forwards nothing, so every packet
/// that crosses the node was forwarded by srv6d.
pub fn settings(topology: &Topology, node: &Node) -> Vec<(String, &'static str)> {
    let mut settings = Vec::new();
    if node.kind == Forwarder::Linux {
        let forwarding = if node.role == Role::Host { "0" } else { "1" };
        settings.push(("ipv6/conf/all/forwarding".to_owned(), forwarding));
        settings.push(("ipv4/ip_forward".to_owned(), forwarding));
        settings.push(("ipv6/fib_multipath_hash_policy".to_owned(), "1"));
        settings.push(("ipv6/seg6_flowlabel".to_owned(), "1"));
        let ports = topology.ports(&node.name);
        let devices = ports.iter().map(|port| port.own.port.as_str());
        settings.extend(["all"].into_iter().chain(devices).map(|name| (format!("ipv6/conf/{name}/seg6_enabled"), "1")));
    }
    settings
}

/// Returns the command that makes the veth pair of a link. It is run in the namespace of the first end. `number` makes
/// addresses and indexes unique.
///
/// The two ends get different indexes. In each namespace the kernel assigns indexes from the beginning, so both ends
/// could get the same. Then the kernel would take a lost carrier for one of the many of a booting machine, and report
/// it up to a second late (`linkwatch_urgent_event`).
pub fn link(lab: &str, link: &Link, number: usize, default_mtu: u32) -> String {
    let [a, b] = &link.ends;
    let mtu = link.mtu.unwrap_or(default_mtu);
    let peer = namespaces::name(lab, &b.node);
    let (high, low) = (number / 256, number % 256);
    let index = FIRST_INDEX + 2 * number;
    format!(
        "link add {} index {index} address 02:00:00:{high:02x}:{low:02x}:01 mtu {mtu} type veth \
         peer name {} index {} address 02:00:00:{high:02x}:{low:02x}:02 mtu {mtu} netns {peer}",
        a.port,
        b.port,
        index + 1
    )
}

/// Returns the link-local address of a link's second end: its MAC address as modified EUI-64 (RFC 4291 appendix A).
pub fn link_local(number: usize) -> Ipv6Addr {
    let (high, low) = (u16::try_from(number / 256 % 256).unwrap_or(0), u16::try_from(number % 256).unwrap_or(0));
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x00ff, 0xfe00 | high, low << 8 | 2)
}

/// Returns the commands that add the addresses and bring every device up.
pub fn addresses(topology: &Topology, node: &Node) -> Vec<String> {
    let mut commands = vec!["link set lo up".to_owned()];
    commands.extend(node.addresses.iter().map(|address| format!("addr add {address} dev lo")));
    for port in topology.ports(&node.name) {
        for address in &port.own.addresses {
            let nodad = if address.addr().is_ipv6() { " nodad" } else { "" };
            commands.push(format!("addr add {address} dev {}{nodad}", port.own.port));
        }
        commands.push(format!("link set {} up", port.own.port));
    }
    commands
}

/// Returns the commands for the routes of the node's kernel: plain routes, `encap seg6` for steered prefixes, and the
/// SIDs of a plain kernel node.
///
/// A srv6d node has plain and steering routes as well: for packets that its kernel itself sends, and for the time when
/// srv6d is down. The commands can be run again, because the kernel drops routes when their link goes down.
///
/// # Errors
/// No route leads to the first segment of a steered prefix.
pub fn routes(topology: &Topology, node: &Node) -> Result<Vec<String>, LabError> {
    let plain = routing::routes(topology, &node.name);
    let mut commands = Vec::new();
    if let Some(source) = topology.source(node) {
        commands.push(format!("sr tunsrc set {source}"));
    }
    for route in &plain {
        if !node.steer.iter().any(|steer| steer.prefix == route.prefix) {
            commands.push(plain_route(route));
        }
    }
    // A router's srv6d follows its kernel's routes, so it would find its own steered prefixes there again.
    let steers: &[Steer] = if topology.speaks_bgp(node) && node.kind == Forwarder::Srv6d { &[] } else { &node.steer };
    for steer in steers {
        commands.push(steer_route(topology, node, &plain, steer)?);
    }
    if node.kind == Forwarder::Linux {
        // A packet to an unknown SID must not follow a default route out of the domain. A host's route into the block
        // takes precedence.
        commands.push(format!("route replace blackhole {} metric {}", topology.block, METRIC + 1));
        let device = topology.ports(&node.name).first().map_or("lo", |port| port.own.port.as_str()).to_owned();
        commands.extend(node.sids.iter().map(|sid| local_sid(sid, &device)));
    }
    Ok(commands)
}

fn plain_route(route: &PlainRoute) -> String {
    let hops: Vec<String> = route.hops.iter().map(|(via, port)| format!("nexthop via {via} dev {port}")).collect();
    format!("route replace {} metric {METRIC} {}", route.prefix, hops.join(" "))
}

/// Returns the part of a command that identifies the route of a steered prefix.
pub fn key_of(steer: &Steer) -> String {
    format!("{} metric {METRIC}", steer.prefix)
}

/// Returns the `ip route` command that encapsulates packets to a prefix. `replace` changes an existing route.
pub fn steer_route(topology: &Topology, node: &Node, plain: &[PlainRoute], steer: &Steer) -> Result<String, LabError> {
    let mut text = format!("route replace {}", key_of(steer));
    for path in &steer.paths {
        let first = path.segments.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let hop = routing::longest_match(plain, first).and_then(|route| route.hops.first());
        // The kernel takes several next hops of IPv6 only with their addresses.
        let needs_gateway = steer.paths.len() > 1 && matches!(steer.prefix, IpNet::V6(_));
        let gateway = hop.filter(|_| needs_gateway).map(|(via, _)| format!("via {via} ")).unwrap_or_default();
        let hop = hop.map(|(_, port)| port.clone());
        // The routes that BGP will find are not known yet. Any port can be named, because the carrier is looked up once
        // more.
        let any = || topology.ports(&node.name).first().map(|port| port.own.port.clone());
        let Some(port) = hop.or_else(|| any().filter(|_| topology.speaks_bgp(node))) else {
            return Err(LabError::Invalid(format!(
                "error: [[node]] {}: path {:?}: no link leads to its first segment {first}\n\
                 fix: begin with the uSID of a node that {} can reach",
                node.name, path.name, node.name
            )));
        };
        let segments: Vec<String> = path.segments.iter().map(ToString::to_string).collect();
        let encap = format!("encap seg6 mode encap.red segs {} {gateway}dev {port}", segments.join(","));
        if steer.paths.len() == 1 {
            let _ = write!(text, " {encap}"); // writing into a String cannot fail
        } else {
            let _ = write!(text, " nexthop {encap} weight {}", path.weight);
        }
    }
    Ok(text)
}

/// Returns the command for a SID. `seg6local` needs some device, although the SID belongs to the whole node.
fn local_sid(sid: &Sid, device: &str) -> String {
    let nflen = sid.prefix.prefix_len().saturating_sub(32);
    let csid = format!("flavors next-csid lblen 32 nflen {nflen}");
    let action = match (sid.behavior, &sid.via, &sid.port) {
        (Behavior::Ua, Some(via), Some(port)) => format!("End.X nh6 {via} oif {port} {csid}"),
        (Behavior::Udt6, ..) => "End.DT6 table 254".to_owned(),
        // The check of the topology refuses uDT4 and uDT46 on a plain kernel node.
        _ => format!("End {csid}"),
    };
    format!("route replace {} encap seg6local action {action} count dev {device}", sid.prefix)
}
