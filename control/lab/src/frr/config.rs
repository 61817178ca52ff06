//! Generates `zebra.conf` and `bgpd.conf` of one node from the topology.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::routing;
use crate::topology::{Forwarder, Node, NodePort, Role, Topology, Via};

/// AS number of the first router. Each router is an autonomous system of its own, numbered in the order of the file
/// (RFC 6996: private use). So the number of systems on a path is the number of links, and BGP's shortest paths are
/// those that the lab computes for static routing.
const FIRST_AS: u32 = 4_200_000_001;

/// Returns a node's AS number, or `None` for a node without a router.
pub fn as_number(topology: &Topology, node: &str) -> Option<u32> {
    let place = topology.routers().position(|router| router.name == node)?;
    Some(FIRST_AS + u32::try_from(place).ok()?)
}

// Writing into a String cannot fail, so the result is ignored by `let _`.

/// Returns the text of `zebra.conf`. `directory` is the directory of its log.
pub fn zebra_conf(topology: &Topology, node: &Node, directory: &Path) -> String {
    let mut text = head(node, directory, "zebra");
    text.push_str(NEXT_HOP_GROUPS);
    if topology.speaks_fpm(node) {
        text.push_str("fpm address 127.0.0.1\n");
    }
    for port in sessions(topology, node) {
        // A neighbour is discovered by its router advertisement (RFC 4861). With the usual ten seconds between two
        // advertisements, a restarted bgpd would have to wait that long.
        let port = &port.own.port;
        let _ = writeln!(text, "interface {port}\n no ipv6 nd suppress-ra\n ipv6 nd ra-interval 1\nexit");
    }
    if node.kind == Forwarder::Srv6d {
        // srv6d forwards the packets that cross the node.
        text.push_str("no ip forwarding\nno ipv6 forwarding\n");
    }
    text
}

/// Time for which zebra keeps unused next-hop groups, in seconds. When a link goes down, the kernel removes its next
/// hop from every group, and zebra 8.4 does not notice. If the link returns while zebra still keeps the unused group,
/// three minutes by default, routes use the group as the kernel left it, with one next hop missing. With a value of one
/// second the group is forgotten before a session can be up again.
const NEXT_HOP_GROUPS: &str = "zebra nexthop-group keep 1\n";

/// Returns the text of `bgpd.conf`.
pub fn bgpd_conf(topology: &Topology, node: &Node, directory: &Path) -> String {
    let mut text = head(node, directory, "bgpd");
    announced_interfaces(&mut text, topology, node);
    let number = as_number(topology, &node.name).unwrap_or(FIRST_AS);
    let _ = writeln!(text, "router bgp {number}\n bgp router-id {}", router_id(topology, node));
    text.push_str(SESSIONS);
    let _ = writeln!(text, " neighbor FABRIC timers delayopen {}", delay_of_sessions(topology));
    if node.role == Role::Leaf {
        text.push_str(RESTARTS);
    }
    for port in sessions(topology, node) {
        let _ = writeln!(text, " neighbor {} interface peer-group FABRIC", port.own.port);
        let _ = writeln!(text, " neighbor {} description {} {}", port.own.port, port.peer.node, port.peer.port);
        if waits(topology, &port) {
            let _ = writeln!(text, " neighbor {} passive", port.own.port);
        }
    }
    for family in ["ipv4", "ipv6"] {
        let _ = writeln!(text, " address-family {family} unicast\n  redistribute connected route-map ANNOUNCED");
        if family == "ipv6" {
            for locator in routing::locators(node) {
                let _ = writeln!(text, "  network {locator}");
            }
        }
        text.push_str("  neighbor FABRIC activate\n  maximum-paths 64\n exit-address-family\n");
    }
    text
}

/// Session settings for a lab. A neighbour that becomes silent is noticed after three seconds, one that closes its
/// session or loses its link at once. A locator is announced although there is no kernel route for it, because its SIDs
/// are srv6d's.
///
/// While a session is delayed, FRR continues to count towards its next attempt, which is due after the sum of both
/// times. bgpd 8.4 ends if it reaches that point (an assertion in `bgp_connect_timer`). So `connect` is longer than the
/// second after which a lost first segment is sent again.
const SESSIONS: &str = "\
 no bgp default ipv4-unicast
 no bgp network import-check
 bgp bestpath as-path multipath-relax
 timers bgp 1 3
 coalesce-time 50
 neighbor FABRIC peer-group
 neighbor FABRIC remote-as external
 neighbor FABRIC timers connect 2
 neighbor FABRIC advertisement-interval 0
 neighbor FABRIC capability extended-nexthop
";

/// Returns the number of seconds before a session comes up. Two let zebra forget the next-hop groups of a lost link.
/// zebra connects to a forwarding plane three seconds after it has started: a session that is up earlier would attract
/// traffic to a srv6d that has no routes yet.
fn delay_of_sessions(topology: &Topology) -> u8 {
    match topology.via {
        Via::Kernel => 2,
        Via::Fpm => 4,
    }
}

/// Settings for graceful restart (RFC 4724) of leaves. A leaf is the only way to its hosts: while its FRR restarts, its
/// neighbours keep its routes, and its own routes stay in the kernel. Spines do not use it: there are several, so it is
/// better to react to the loss of a spine's session.
const RESTARTS: &str = "\
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart restart-time 15
 bgp graceful-restart stalepath-time 30
 bgp graceful-restart select-defer-time 5
";

/// Whether the other end of a link opens the session and this end waits for it. If both ends opened it, their links
/// would come up together and their delays would end together. Then FRR 8.4 at either end closes the connection that
/// the other end keeps, and both begin again at the same time, sometimes for longer than a test waits (RFC 4271 section
/// 6.8).
fn waits(topology: &Topology, port: &NodePort<'_>) -> bool {
    as_number(topology, &port.own.node) > as_number(topology, &port.peer.node)
}

/// Returns the ports at whose other end is another router.
fn sessions<'t>(topology: &'t Topology, node: &Node) -> impl Iterator<Item = NodePort<'t>> {
    let speaks = |name: &str| topology.node(name).is_some_and(|peer| topology.speaks_bgp(peer));
    topology.ports(&node.name).into_iter().filter(move |port| speaks(&port.peer.node))
}

fn head(node: &Node, directory: &Path, daemon: &str) -> String {
    let log = directory.join(format!("{daemon}.log"));
    format!(
        "! {} of a lab; generated by srv6d.\nfrr defaults datacenter\nhostname {}\nlog file {}\n\
         log timestamp precision 3\n",
        node.name,
        node.name,
        log.display()
    )
}

/// Writes the announced interfaces: those with loopback addresses and the subnets of hosts. Links between routers are
/// not announced.
fn announced_interfaces(text: &mut String, topology: &Topology, node: &Node) {
    let ports = topology.ports(&node.name);
    let is_host = |name: &str| topology.node(name).is_some_and(|peer| peer.role == Role::Host);
    let hosts = ports.iter().filter(|port| is_host(&port.peer.node)).map(|port| port.own.port.as_str());
    for (interface, number) in std::iter::once("lo").chain(hosts).zip(1u32..) {
        let _ = writeln!(text, "route-map ANNOUNCED permit {}\n match interface {interface}\nexit", number * 10);
    }
}

/// Returns an IPv4 loopback address of the node or, if there is none, a number that is unique in the lab.
fn router_id(topology: &Topology, node: &Node) -> Ipv4Addr {
    let loopback = node.addresses.iter().find_map(|net| match net.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let place = topology.routers().zip(1u32..).find(|(router, _)| router.name == node.name);
    loopback.unwrap_or_else(|| Ipv4Addr::from(place.map_or(1, |(_, number)| number)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::topology::FABRIC_BGP;

    #[test]
    fn a_leaf_speaks_to_its_spines_and_announces_its_own() {
        let topology = Topology::parse(FABRIC_BGP, "fabric").unwrap();
        let leaf = topology.node("leaf01").unwrap();
        let text = bgpd_conf(&topology, leaf, Path::new("/run/x"));
        assert_eq!(text.matches(" interface peer-group FABRIC").count(), 3, "{text}");
        assert!(!text.contains("neighbor eth4"), "the host speaks no BGP: {text}");
        assert!(text.contains("match interface eth4") && text.contains("network fcbb:0:1005::/48"), "{text}");
        assert!(text.contains("router bgp 4200000002\n bgp router-id 10.255.5.1\n"), "{text}");
        assert!(!text.contains(" route "), "nothing static: {text}");
    }

    #[test]
    fn one_end_of_a_link_opens_the_session() {
        let topology = Topology::parse(FABRIC_BGP, "fabric").unwrap();
        let waiting = |node: &str| {
            let text = bgpd_conf(&topology, topology.node(node).unwrap(), Path::new("/run/x"));
            text.matches(" passive\n").count()
        };
        assert_eq!(["leaf00", "leaf01", "leaf02"].map(waiting), [0; 3]);
        assert_eq!(["spine00", "spine01", "spine02"].map(waiting), [3; 3]);
    }

    #[test]
    fn a_router_without_ipv4_has_an_identifier() {
        let text = FABRIC_BGP.replace(", \"10.255.4.1/32\"", "");
        let topology = Topology::parse(&text, "fabric").unwrap();
        let leaf = topology.node("leaf00").unwrap();
        assert_eq!(router_id(&topology, leaf).to_string(), "0.0.0.1");
    }
}
