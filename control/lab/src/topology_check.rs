//! Checks that the tables of a topology fit together.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

use super::controller;
use super::error::LabError;
use super::topology::{Behavior, End, Forwarder, Link, Node, Role, Routing, Topology, Via};

/// Longest name of a lab or node. `srv6d-` + lab + `-` + node must be a file name that is still readable in `ip netns`.
const LONGEST_NAME: usize = 24;
/// Longest name of an interface: `IFNAMSIZ` without its final zero byte.
const LONGEST_PORT: usize = 15;
/// The smallest MTU that IPv6 allows (RFC 8200 section 5), and the largest with which AF_XDP was tested.
const MTU: std::ops::RangeInclusive<u32> = 1280..=9500;

/// All mistakes of the file, with line and fix.
struct Mistakes<'a> {
    text: &'a str,
    filename: &'a str,
    found: String,
    count: usize,
}

impl Mistakes<'_> {
    fn add(&mut self, offset: usize, entry: &str, what: &str, fix: &str) {
        let line = self.text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1);
        let separator = if self.count == 0 { "" } else { "\n\n" };
        let _ = write!(self.found, "{separator}error: {}:{line}: {entry}: {what}\nfix: {fix}", self.filename);
        self.count += 1;
    }
}

pub(super) fn check(topology: &Topology, text: &str, filename: &str) -> Result<(), LabError> {
    let mut mistakes = Mistakes { text, filename, found: String::new(), count: 0 };
    if !is_name(&topology.name) {
        mistakes.add(0, "name", &format!("{:?} cannot be a lab's name", topology.name), NAME_FIX);
    }
    if !MTU.contains(&topology.mtu) {
        mistakes.add(0, "mtu", &format!("{} is not an MTU of a lab", topology.mtu), "write a number from 1280 to 9500");
    }
    if topology.via == Via::Fpm && topology.routing == Routing::Static {
        let fix = "write routing = \"bgp\" too, or choose it with --routing bgp";
        mistakes.add(0, "via", "without BGP there is no zebra that could announce anything over FPM", fix);
    }
    if topology.glb && topology.routing == Routing::Bgp {
        let what = "with BGP nobody says which nodes are behind the next hops of a route";
        mistakes.add(0, "glb", what, "write routing = \"static\", or choose it with --routing static");
    }
    if let Some(controller) = topology.controller.as_ref().filter(|controller| controller.prefix.prefix_len() != 48) {
        let what = format!("{} is not a /48", controller.prefix);
        mistakes.add(
            0,
            "[controller] prefix",
            &what,
            "write a /48 that nothing else uses: every host gets a /64 of it",
        );
    }
    if topology.controller.is_some() && topology.node(controller::NODE).is_some() {
        let fix = format!("give the node another name than {:?}", controller::NODE);
        mistakes.add(0, "[controller]", "a node has the controller's name", &fix);
    }
    nodes(topology, &mut mistakes);
    links(topology, &mut mistakes);
    addresses(topology, &mut mistakes);
    if mistakes.count == 0 { Ok(()) } else { Err(LabError::Invalid(mistakes.found)) }
}

/// The fix for an invalid name.
pub(super) const NAME_FIX: &str = "use 1 to 24 lower-case letters, digits and hyphens, beginning with a letter";

/// Refuses a text that cannot be the name of a lab. The name is a part of paths and of names of namespaces.
pub(super) fn lab_name(name: &str) -> Result<(), LabError> {
    if is_name(name) {
        return Ok(());
    }
    Err(LabError::Invalid(format!("{name:?} cannot be a lab's name\nfix: {NAME_FIX}")))
}

/// Whether a text can be the name of a lab or a node.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= LONGEST_NAME && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(fits)
}

fn nodes(topology: &Topology, mistakes: &mut Mistakes<'_>) {
    let mut seen = HashMap::new();
    let mut sids = HashMap::new();
    for spanned in &topology.nodes {
        let (node, at) = (spanned.get_ref(), spanned.span().start);
        let entry = format!("[[node]] {}", node.name);
        if !is_name(&node.name) {
            mistakes.add(at, "[[node]] name", &format!("{:?} cannot be a node's name", node.name), NAME_FIX);
        }
        if seen.insert(&node.name, at).is_some() {
            mistakes.add(at, &entry, "there are two nodes of this name", "give one of them another name");
        }
        for sid in &node.sids {
            if let Some(other) = sids.insert(sid.prefix, &node.name) {
                let what = format!("SID {} belongs to {other} already", sid.prefix);
                mistakes.add(at, &entry, &what, "give each node SIDs of its own");
            }
        }
        node_sids(topology, node, at, mistakes);
        node_steers(node, at, mistakes);
    }
}

fn node_sids(topology: &Topology, node: &Node, at: usize, mistakes: &mut Mistakes<'_>) {
    let entry = format!("[[node]] {}", node.name);
    for sid in &node.sids {
        let name = format!("SID {} ({})", sid.prefix, sid.behavior.keyword());
        if !topology.block.contains(&sid.prefix) || sid.prefix.prefix_len() <= topology.block.prefix_len() {
            let what = format!("{name} is not inside of the block {}", topology.block);
            mistakes.add(at, &entry, &what, "choose a longer prefix of the block, e.g. a /48 for a uN");
        }
        if sid.prefix.addr() != sid.prefix.network() {
            let what = format!("{name} has bits behind its prefix length");
            mistakes.add(at, &entry, &what, &format!("write {}", sid.prefix.trunc()));
        }
        let hop_known = topology.ports(&node.name).iter().any(|port| Some(&port.own.port) == sid.port.as_ref());
        if sid.behavior == Behavior::Ua && (sid.via.is_none() || !hop_known) {
            let fix = "write via = \"ADDRESS\" and port = \"NAME\" of one of the node's links";
            mistakes.add(at, &entry, &format!("{name} has no next hop"), fix);
        }
        if sid.behavior != Behavior::Ua && (sid.via.is_some() || sid.port.is_some()) {
            mistakes.add(at, &entry, &format!("{name} has a next hop"), "only a uA has one: delete via and port");
        }
        if node.kind == Forwarder::Linux && matches!(sid.behavior, Behavior::Udt4 | Behavior::Udt46) {
            let what =
                format!("{name}: the kernel's End.DT4 and End.DT46 need a VRF device, which the lab does not make");
            mistakes.add(at, &entry, &what, "write kind = \"srv6d\" for this node, or leave the SID out");
        }
    }
}

fn node_steers(node: &Node, at: usize, mistakes: &mut Mistakes<'_>) {
    let entry = format!("[[node]] {}", node.name);
    let mut names = HashSet::new();
    for steer in &node.steer {
        if steer.paths.is_empty() {
            let fix = "write paths = [{ name = \"NAME\", segments = [\"CARRIER\"] }]";
            mistakes.add(at, &entry, &format!("steered prefix {} has no path", steer.prefix), fix);
        }
        for path in &steer.paths {
            if !names.insert(&path.name) {
                let what = format!("two paths are called {:?}", path.name);
                mistakes.add(at, &entry, &what, "give each path of a node a name of its own: its counters use it");
            }
            if path.segments.is_empty() || path.weight == 0 {
                let what = format!("path {:?} has no segment, or weight 0", path.name);
                mistakes.add(at, &entry, &what, "write segments = [\"CARRIER\"], and a weight of 1 or more");
            }
            if !is_name(&path.name) {
                mistakes.add(at, &entry, &format!("{:?} cannot be a path's name", path.name), NAME_FIX);
            }
        }
    }
}

fn links(topology: &Topology, mistakes: &mut Mistakes<'_>) {
    let mut ports = HashMap::new();
    for spanned in &topology.links {
        let (link, at) = (spanned.get_ref(), spanned.span().start);
        for end in &link.ends {
            let name = format!("{} {}", end.node, end.port);
            if topology.node(&end.node).is_none() {
                let fix = format!("known nodes: {}", node_names(topology));
                mistakes.add(at, "[[link]]", &format!("there is no node {:?}", end.node), &fix);
            }
            if !is_port(&end.port) {
                let what = format!("{:?} cannot be the name of a port", end.port);
                mistakes.add(at, "[[link]]", &what, "use names such as eth1, at most 15 letters and digits");
            }
            if ports.insert(name.clone(), at).is_some() {
                mistakes.add(at, "[[link]]", &format!("{name} has two links"), "use each port once");
            }
        }
        link_as_a_whole(topology, link, at, mistakes);
    }
}

fn link_as_a_whole(topology: &Topology, link: &Link, at: usize, mistakes: &mut Mistakes<'_>) {
    let [a, b] = &link.ends;
    if a.node == b.node {
        mistakes.add(at, "[[link]]", &format!("both ends are in {}", a.node), "connect two different nodes");
    }
    if link.mtu.is_some_and(|mtu| !MTU.contains(&mtu)) {
        mistakes.add(at, "[[link]] mtu", "is out of range", "write a number from 1280 to 9500");
    }
    let v6 = |end: &End| -> Vec<IpNet> {
        end.addresses.iter().filter(|net| net.addr().is_ipv6()).map(IpNet::trunc).collect()
    };
    emulated(topology, link, at, mistakes);
    // BGP unnumbered uses link-local addresses.
    let needs_none = topology.is_unnumbered(link) && a.addresses.is_empty() && b.addresses.is_empty();
    if !needs_none && !v6(a).iter().any(|prefix| v6(b).contains(prefix)) {
        let what = format!("{} {} and {} {} share no IPv6 prefix", a.node, a.port, b.node, b.port);
        let fix = "give both ends an address of one prefix, e.g. 2001:db8:0:1::1/64 and 2001:db8:0:1::2/64; only leaves \
                   and spines with routing = \"bgp\" need none";
        mistakes.add(at, "[[link]]", &what, fix);
    }
}

fn emulated(topology: &Topology, link: &Link, at: usize, mistakes: &mut Mistakes<'_>) {
    let Some(emulate) = &link.emulate else { return };
    for error in emulate.check().err().into_iter().flat_map(|errors| errors.0) {
        let key = error.entry.rsplit(' ').next().filter(|key| *key != "emulate").unwrap_or_default();
        mistakes.add(at, format!("[[link]] emulate {key}").trim_end(), &error.what, &error.fix);
    }
    let is_kernel = |end: &&End| topology.node(&end.node).is_some_and(|node| node.kind == Forwarder::Linux);
    for end in link.ends.iter().filter(is_kernel) {
        let what = format!("the kernel of {} forwards, and only a srv6d emulates its ports", end.node);
        let fix = format!(
            "write kind = \"srv6d\" for this node; or leave `emulate` out, run `srv6d lab impair NODE:PORT` for the other \
             end, and `tc qdisc add dev {} root netem` in {}, whose kernel does obey it",
            end.port, end.node
        );
        mistakes.add(at, "[[link]] emulate", &what, &fix);
    }
}

fn addresses(topology: &Topology, mistakes: &mut Mistakes<'_>) {
    let mut owners: HashMap<IpAddr, &str> = HashMap::new();
    for spanned in &topology.nodes {
        let node = spanned.get_ref();
        for address in &node.addresses {
            claim(address, &node.name, spanned.span().start, &mut owners, mistakes);
        }
    }
    for spanned in &topology.links {
        for end in &spanned.get_ref().ends {
            for address in &end.addresses {
                claim(address, &end.node, spanned.span().start, &mut owners, mistakes);
            }
        }
    }
}

fn claim<'a>(
    address: &IpNet,
    node: &'a str,
    at: usize,
    owners: &mut HashMap<IpAddr, &'a str>,
    mistakes: &mut Mistakes<'_>,
) {
    if let Some(owner) = owners.insert(address.addr(), node) {
        let what = format!("address {} of {node} belongs to {owner} already", address.addr());
        mistakes.add(at, "addresses", &what, "give every port and loopback an address of its own");
    }
}

fn is_port(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    // lo exists in every namespace, srv6d0 is the device that srv6d makes, and the last one leads to the lab's controller.
    let is_taken = ["lo", "srv6d0", controller::PORT].contains(&name);
    !name.is_empty() && name.len() <= LONGEST_PORT && name.chars().all(fits) && !is_taken
}

fn node_names(topology: &Topology) -> String {
    let mut names: Vec<(Role, &str)> = topology.nodes().map(|node| (node.role, node.name.as_str())).collect();
    names.sort_unstable();
    names.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        assert!(lab_name("lab-1").is_ok());
        for name in ["../../x", "", "a/b", "-a", "a b"] {
            assert!(lab_name(name).is_err(), "{name}");
        }
    }
}
