//! Checks whether BGP has brought every node the routes that the topology calls for, down to the forwarding tables.

use srv6d_netns as netns;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use srv6d_api::state::{Health, RouteStatus};
use srv6d_api::{Request, Response, Topic};

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::routing;
use super::topology::{Forwarder, Node, Topology};

/// If no route improves for this long, the fabric will not converge. Failed connections are tried again every few
/// seconds.
const QUIET: Duration = Duration::from_mins(1);
/// Number of `main` in `/etc/iproute2/rt_tables`.
const MAIN: u32 = 254;

/// Ports of the routes that are in force in one node, by prefix.
type RoutePorts = HashMap<IpNet, BTreeSet<String>>;

/// Waits, as long as there is progress, until every router has exactly the routes that BGP should bring in `topology`.
/// This may be a part of the lab's own topology. Calls `say` with each router's name when it has them.
///
/// # Errors
/// There is no progress; the error names the first wrong route. Or the user pressed Ctrl-C.
pub fn wait(lab: &Lab, topology: &Topology, interrupt: &Interrupt, mut say: impl FnMut(&str)) -> Result<(), LabError> {
    let mut waiting: Vec<&Node> = topology.routers().collect();
    let mut first_wrong = String::new();
    let done = interrupt.wait_until_nothing_is_left(QUIET, || {
        let (mut still, mut left) = (Vec::new(), 0);
        for node in waiting.drain(..) {
            match wrong(lab, topology, node) {
                None => say(&node.name),
                Some(wrong) => {
                    left += wrong.ports;
                    first_wrong = wrong.first;
                    still.push(node);
                }
            }
        }
        waiting = still;
        Ok(left)
    })?;
    if done {
        return Ok(());
    }
    let seconds = QUIET.as_secs();
    Err(LabError::Failed(format!("BGP has not converged, and made no progress for {seconds} s: {first_wrong}")))
}

/// The routes of a node that are not as they should be.
struct Wrong {
    /// Number of missing or superfluous ports of all routes.
    ports: usize,
    /// Description of the first of these routes.
    first: String,
}

/// Compares a node's routes to all prefixes of the whole lab with the expected ones. A node that does not answer, which
/// may be temporary on a loaded machine, counts as having none.
fn wrong(lab: &Lab, topology: &Topology, node: &Node) -> Option<Wrong> {
    let wanted: RoutePorts = routing::learned(topology, &node.name).into_iter().collect();
    let routes = match routes(lab, node) {
        Ok(routes) => routes,
        Err(why) => {
            let ports = 1 + wanted.values().map(BTreeSet::len).sum::<usize>();
            return Some(Wrong { ports, first: why.to_string() });
        }
    };
    let nowhere = BTreeSet::new();
    let mut wrong: Option<Wrong> = None;
    for (prefix, _) in routing::learned(&lab.topology, &node.name) {
        let ports = |routes: &RoutePorts| routes.get(&prefix).unwrap_or(&nowhere).clone();
        let (now, wanted) = (ports(&routes), ports(&wanted));
        let ports = now.symmetric_difference(&wanted).count();
        if ports > 0 {
            let (name, now, wanted) = (&node.name, list(&now), list(&wanted));
            let say = || format!("on {name} {prefix} is to leave by {wanted}, and leaves by {now}");
            wrong.get_or_insert_with(|| Wrong { ports: 0, first: say() }).ports += ports;
        }
    }
    wrong
}

fn list(ports: &BTreeSet<String>) -> String {
    match ports.len() {
        0 => "nowhere".to_owned(),
        _ => ports.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
    }
}

fn routes(lab: &Lab, node: &Node) -> Result<RoutePorts, LabError> {
    match node.kind {
        Forwarder::Srv6d => match lab.ask(&node.name, &Request::Show { topic: Topic::Routes })? {
            Response::Routes(rows) => Ok(rows.iter().filter_map(usable_ports).collect()),
            other => Err(LabError::Failed(format!("srv6d of {} did not show its routes: {other:?}", node.name))),
        },
        Forwarder::Linux => kernel_routes(&lab.netns(&node.name)),
    }
}

/// Returns prefix and ports of a route. Next hops count only if packets can be sent to them.
fn usable_ports(row: &RouteStatus) -> Option<(IpNet, BTreeSet<String>)> {
    let usable = row.next_hops.iter().filter(|hop| hop.state == Health::Up).map(|hop| hop.port.clone());
    (row.table == MAIN).then_some((row.prefix.parse().ok()?, usable.collect()))
}

/// The fields of `ip -j route` that are used.
#[derive(Debug, Deserialize)]
struct KernelRoute {
    dst: String,
    #[serde(default)]
    dev: Option<String>,
    #[serde(default)]
    nexthops: Vec<KernelHop>,
}

#[derive(Debug, Deserialize)]
struct KernelHop {
    dev: String,
    #[serde(default)]
    flags: Vec<String>,
}

fn kernel_routes(netns: &str) -> Result<RoutePorts, LabError> {
    let mut routes = BTreeMap::new();
    for family in ["-4", "-6"] {
        let text = netns::run(netns::tool("ip").args(["-n", netns, "-j", family, "route", "show", "proto", "bgp"]))?;
        let rows: Vec<KernelRoute> = serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text })
            .map_err(|why| LabError::Failed(format!("`ip -j route` in {netns}: {why}")))?;
        for row in rows {
            let alive = row.nexthops.iter().filter(|hop| !hop.flags.iter().any(|flag| flag == "dead"));
            let ports = alive.map(|hop| hop.dev.clone()).chain(row.dev).collect();
            routes.insert(row.dst, ports);
        }
    }
    // A prefix of full length is shown without its length.
    let whole = |text: &str| text.parse().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
    Ok(routes.into_iter().filter_map(|(to, ports)| Some((whole(&to).ok()?, ports))).collect())
}
