//! Plans `[glb]`: who sends and receives heartbeats, on which ports, and which links behind neighbours groups look at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use srv6d_config::{
    self as config, BalanceMode, Findings, GlbRole, LinkGroup, NodeId, Optional, ShortTime, Spanned, WeightMetric,
};
use srv6d_srv6::desired::{BalancePolicy, Balancing, FarPorts, GroupPolicy, PolicyMode, PortId, Profile};

use super::node::or;

/// Multicast group of heartbeats.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x114);
/// UDP port of heartbeats.
const UDP_PORT: u16 = 47149;
const PERIOD: Duration = Duration::from_millis(20);
const MIN_GAP: Duration = Duration::from_millis(1);
/// Shortest period, because heartbeats give it in whole milliseconds.
const LEAST_PERIOD: Duration = Duration::from_millis(1);
const LEAST_MIN_GAP: Duration = Duration::from_micros(100);
/// Largest number of ports in one heartbeat.
const MOST_ENTRIES: usize = 64;

/// `[glb]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glb {
    /// The role of the node.
    pub role: GlbRole,
    /// The node's BGP identifier.
    pub node: NodeId,
    /// Multicast group of heartbeats.
    pub group: Ipv6Addr,
    /// UDP port of heartbeats.
    pub udp_port: u16,
    /// Longest time between two heartbeats.
    pub period: Duration,
    /// Shortest time between two heartbeats, which is also the interval of looking at the ports.
    pub min_gap: Duration,
    /// Number of the key and the file with its secret.
    pub key: Option<(u32, PathBuf)>,
    /// Ports of whole devices on which heartbeats may arrive, each with the node that may send them. A port without a
    /// node refuses all heartbeats.
    pub ports: Vec<(PortId, Option<NodeId>)>,
}

/// Returns the settings of heartbeats. `None`: nothing is sent or received.
pub(super) fn plan(config: &config::Config, settings: &mut Balancing, found: &mut Findings) -> Option<Glb> {
    check_policies(config, found);
    let Some(table) = &config.glb else {
        warn_without_glb(config, found);
        return None;
    };
    let (period, min_gap) = (time(&table.period, PERIOD), time(&table.min_gap, MIN_GAP));
    check_times(table, period, min_gap, found);
    let ports = ports(config, table, found);
    let named = ports.iter().filter_map(|(port, node)| Some((*port, node.as_ref()?.0)));
    settings.neighbors = named.collect();
    Some(Glb {
        role: *table.role.get_ref(),
        node: *table.node_id.get_ref(),
        group: or(&table.group, LinkGroup(GROUP)).0,
        udp_port: or(&table.udp_port, UDP_PORT),
        period,
        min_gap,
        key: table.key.as_ref().map(|file| (or(&table.key_id, 1), file.get_ref().clone())),
        ports,
    })
}

#[expect(clippy::ref_option, reason = "as it is written in a table")]
fn time(written: &Optional<ShortTime>, default: Duration) -> Duration {
    written.as_ref().map_or(default, |time| time.get_ref().0)
}

fn check_times(table: &config::Glb, period: Duration, min_gap: Duration, found: &mut Findings) {
    let role = || table.role.span();
    let span = |key: &Optional<ShortTime>| key.as_ref().map_or_else(role, Spanned::span);
    if period < LEAST_PERIOD {
        found.error(span(&table.period), "[glb] period", "is below 1 ms", "write period = \"1ms\" or more");
    }
    if min_gap < LEAST_MIN_GAP {
        found.error(span(&table.min_gap), "[glb] min_gap", "is below 100 us", "write min_gap = \"100us\" or more");
    }
    if min_gap > period {
        let what = format!("is longer than the period of {} ms", period.as_millis());
        found.error(span(&table.min_gap), "[glb] min_gap", what, "write a shorter min_gap, or a longer period");
    }
    if let (Some(key_id), None) = (&table.key_id, &table.key) {
        found.error(
            key_id.span(),
            "[glb] key_id",
            "there is no key",
            "add `key = \"/etc/srv6d/glb.key\"`, or remove it",
        );
    }
}

/// Returns the ports of whole devices, with the nodes at their other ends.
fn ports(config: &config::Config, table: &config::Glb, found: &mut Findings) -> Vec<(PortId, Option<NodeId>)> {
    let mut ports = Vec::new();
    let mut known: BTreeMap<NodeId, &str> = BTreeMap::new();
    for (id, port) in (0..).map(PortId).zip(config.ports.iter().map(Spanned::get_ref)) {
        let neighbor = port.neighbor_id.as_ref();
        if port.vlan.is_none() {
            ports.push((id, neighbor.map(|node| *node.get_ref())));
        }
        let Some(neighbor) = neighbor else { continue };
        let (span, node) = (neighbor.span(), *neighbor.get_ref());
        if port.vlan.is_some() {
            let fix = "write `neighbor_id` at the port of the whole device";
            found.error(span, "[[port]] neighbor_id", "heartbeats have no VLAN tag", fix);
        } else if node == *table.node_id.get_ref() {
            let fix = "write the `node_id` of the node at the other end of the link";
            found.error(span, "[[port]] neighbor_id", format!("{} is this node itself", node.0), fix);
        } else if let Some(first) = known.get(&node) {
            let what = format!("{} is behind {first}, too: of several links, the better one counts", node.0);
            let fix = "use one link for each pair of nodes, e.g. a bond, or accept that";
            found.warning(span, "[[port]] neighbor_id", what, fix);
        } else {
            known.insert(node, port.name.get_ref());
        }
    }
    check_number(table, known.len(), found);
    ports
}

fn check_number(table: &config::Glb, neighbors: usize, found: &mut Findings) {
    let role = *table.role.get_ref();
    let most = if role.sends() { MOST_ENTRIES } else { FarPorts::MOST_NEIGHBORS };
    if neighbors > most {
        let what = format!("there are {neighbors} neighbours, and role {:?} has room for {most}", role.keyword());
        found.error(table.role.span(), "[glb]", what, "remove `neighbor_id` from some ports");
    }
    if neighbors == 0 {
        let fix = "add `neighbor_id` to the ports at whose other ends nodes with [glb] are";
        found.warning(table.role.span(), "[glb]", "no port has a `neighbor_id`: no heartbeat is sent or accepted", fix);
    }
}

fn warn_without_glb(config: &config::Config, found: &mut Findings) {
    for neighbor in config.ports.iter().filter_map(|port| port.get_ref().neighbor_id.as_ref()) {
        let fix = "add [glb] with `role` and `node_id`, or remove it";
        found.warning(neighbor.span(), "[[port]] neighbor_id", "is not used without [glb]", fix);
    }
}

/// Checks that a node with a policy of mode "global" receives heartbeats.
fn check_policies(config: &config::Config, found: &mut Findings) {
    let balances = || config.balances.iter().map(Spanned::get_ref);
    for metric in balances().filter_map(|policy| policy.metric.as_ref()) {
        if *metric.get_ref() == WeightMetric::Available && config.glb.is_none() {
            let fix = "add [glb] with role = \"load-balancer-only\" and `node_id`, or write metric = \"capacity\"";
            found.error(metric.span(), "[[balance]] metric", "nobody measures loads without [glb]", fix);
        }
    }
    for policy in balances().filter(|policy| *policy.mode.get_ref() == BalanceMode::Global) {
        match config.glb.as_ref().map(|glb| *glb.role.get_ref()) {
            None => {
                let fix = "add [glb] with role = \"load-balancer-only\" and `node_id`, or write mode = \"adaptive\"";
                found.error(policy.mode.span(), "[[balance]] mode", "\"global\" needs heartbeats of neighbours", fix);
            }
            Some(role) if !role.receives() => {
                let what = format!("\"global\" chooses by heartbeats, and role {:?} receives none", role.keyword());
                let fix = "write role = \"both\" in [glb], or mode = \"adaptive\"";
                found.error(policy.mode.span(), "[[balance]] mode", what, fix);
            }
            Some(_) => {}
        }
    }
}

/// Returns the policy that looks at the links between the next hops of an entry and the nodes that it names. `None`: the
/// policy is not of mode "global", and stays as it is.
pub(super) fn with_profile(
    policy: GroupPolicy,
    via_nodes: &[Spanned<NodeId>],
    entry: &str,
    settings: &mut Balancing,
    found: &mut Findings,
) -> Option<GroupPolicy> {
    let first = via_nodes.first()?;
    let place = usize::from(policy.number()).checked_sub(1)?;
    let (known, name) = (*settings.policies.get(place)?, settings.names.get(place)?.clone());
    let PolicyMode::Global(adaptive, _) = known.mode else { return None };
    let nodes: BTreeSet<Ipv4Addr> = via_nodes.iter().map(|node| node.get_ref().0).collect();
    let profile = profile(nodes, first, entry, settings, found);
    let looking = BalancePolicy { mode: PolicyMode::Global(adaptive, profile), ..known };
    let same = settings.policies.iter().zip(&settings.names).position(|(one, of)| *one == looking && *of == name);
    let place = same.unwrap_or_else(|| {
        settings.policies.push(looking);
        settings.names.push(name);
        settings.policies.len() - 1
    });
    Some(GroupPolicy::Stateful(u16::try_from(place + 1).unwrap_or(u16::MAX)))
}

/// Warns of nodes that no policy looks at.
pub(super) fn warn_unused(via_nodes: &[Spanned<NodeId>], entry: &str, found: &mut Findings) {
    let Some(first) = via_nodes.first() else { return };
    let fix = "write as `balance` a [[balance]] with mode = \"global\", or remove `via_nodes`";
    found.warning(
        first.span(),
        &format!("{entry} via_nodes"),
        "is used by policies of mode \"global\" only, and with [glb] by those of mode \"weighted\"",
        fix,
    );
}

/// Returns the number of the profile with these nodes.
fn profile(
    nodes: BTreeSet<Ipv4Addr>,
    first: &Spanned<NodeId>,
    entry: &str,
    settings: &mut Balancing,
    found: &mut Findings,
) -> Option<Profile> {
    let profiles = &mut settings.profiles;
    let place = profiles.iter().position(|known| *known == nodes).unwrap_or_else(|| {
        profiles.push(nodes);
        profiles.len() - 1
    });
    if place == FarPorts::MOST_PROFILES {
        let most = FarPorts::MOST_PROFILES;
        let what = format!("these nodes make profile {}, and there is room for {most} different ones", place + 1);
        let fix =
            "name the same nodes at several entries, or leave out `via_nodes` where only the own link shall decide";
        found.error(first.span(), &format!("{entry} via_nodes"), what, fix);
    }
    Profile::try_from(place).ok().filter(|profile| usize::from(*profile) < FarPorts::MOST_PROFILES)
}
