//! Compares placement with every possible placement, on fabrics small enough to try all of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use fastrand::Rng;
use srv6d_placement::{
    Constraints, Demand, Fabric, Flow, Link, LinkId, Node, NodeId, NodeKind, Paths, PerLink, Ratio, busiest, place,
};

/// Makes a random fabric of two tiers: some links are missing, parallel or of another capacity; hosts have one or two
/// leaves.
fn random_fabric(random: &mut Rng) -> Fabric {
    let mut fabric = Fabric::default();
    let nodes = |fabric: &mut Fabric, collection: &str, count: usize, kind: NodeKind| -> Vec<NodeId> {
        (0..count)
            .map(|number| fabric.add_node(Node::new(format!("{collection}/{collection}{number}"), kind)).unwrap())
            .collect()
    };
    let spines = nodes(&mut fabric, "spine", random.usize(2..4), NodeKind::Switch);
    let leaves = nodes(&mut fabric, "leaf", random.usize(2..4), NodeKind::Switch);
    let hosts = nodes(&mut fabric, "host", random.usize(3..6), NodeKind::Host);
    let equal = random.bool();
    for leaf in &leaves {
        for spine in &spines {
            if random.usize(0..6) > 0 {
                fabric.connect(*leaf, *spine, if equal { 1 } else { random.u64(1..4) });
            }
            if random.usize(0..8) == 0 {
                let key = format!("parallel-{leaf:?}-{spine:?}");
                for (from, to) in [(*leaf, *spine), (*spine, *leaf)] {
                    fabric.add_link(Link { key: key.clone(), from, to, capacity: 1, up: true, load: Some(0) });
                }
            }
        }
    }
    for host in &hosts {
        let first = random.usize(0..leaves.len());
        fabric.connect(*host, leaves[first], 4);
        if random.usize(0..4) == 0 {
            fabric.connect(*host, leaves[(first + 1) % leaves.len()], 4);
        }
    }
    fabric
}

fn random_demand(fabric: &Fabric, random: &mut Rng) -> Demand {
    let hosts: Vec<NodeId> = fabric.hosts().collect();
    let equal = random.bool();
    let mut flows = Vec::new();
    while flows.len() < 6 {
        let (source, destination) = (hosts[random.usize(0..hosts.len())], hosts[random.usize(0..hosts.len())]);
        if source != destination {
            let demand = if equal { 1 } else { random.u64(1..4) };
            flows.push(Flow { source, destination, demand, tenant: None });
        }
    }
    Demand { flows }
}

/// Returns all paths of at most `most` links that cross no host, found without using the library.
fn paths(fabric: &Fabric, from: NodeId, to: NodeId, most: usize) -> Vec<Vec<LinkId>> {
    let mut found = Vec::new();
    let mut stack = vec![(from, Vec::new(), vec![from])];
    while let Some((at, links, seen)) = stack.pop() {
        if at == to {
            found.push(links);
            continue;
        }
        for (id, link) in fabric.links().filter(|(_, link)| link.from == at && !seen.contains(&link.to)) {
            if links.len() < most && (link.to == to || fabric.node(link.to).kind == NodeKind::Switch) {
                let mut links = links.clone();
                links.push(id);
                stack.push((link.to, links, [seen.as_slice(), &[link.to]].concat()));
            }
        }
    }
    found
}

fn allowed(fabric: &Fabric, flow: &Flow, detour: usize) -> Vec<Vec<LinkId>> {
    let shortest = (1..10).find(|most| !paths(fabric, flow.source, flow.destination, *most).is_empty());
    shortest.map(|most| paths(fabric, flow.source, flow.destination, most + detour)).unwrap_or_default()
}

fn optimum(fabric: &Fabric, demand: &Demand, choices: &[Vec<Vec<LinkId>>]) -> Ratio {
    fn search(
        fabric: &Fabric,
        demand: &Demand,
        choices: &[Vec<Vec<LinkId>>],
        loads: &mut PerLink<u64>,
        flow: usize,
        best: &mut Option<Ratio>,
    ) {
        let so_far = busiest(fabric, loads);
        if best.is_some_and(|best| so_far >= best) {
            return;
        }
        let Some(paths) = choices.get(flow) else {
            *best = Some(so_far);
            return;
        };
        for path in paths {
            for link in path {
                loads[*link] += demand.flows[flow].demand;
            }
            search(fabric, demand, choices, loads, flow + 1, best);
            for link in path {
                loads[*link] -= demand.flows[flow].demand;
            }
        }
    }
    let mut best = None;
    search(fabric, demand, choices, &mut PerLink::new(fabric.link_count(), 0), 0, &mut best);
    best.unwrap()
}

fn assert_valid(fabric: &Fabric, demand: &Demand, found: &Paths, choices: &[Vec<Vec<LinkId>>]) {
    for (flow, choices) in choices.iter().enumerate() {
        let links = found.links(fabric, demand, flow);
        assert!(choices.contains(&links), "flow {flow} takes {links:?}, which is none of its paths");
    }
}

/// Returns how many of the random cases are placed worse than the optimum.
fn worse_than_optimum(seed: u64, cases: usize, detour: usize) -> usize {
    let mut random = Rng::with_seed(seed);
    let (mut tried, mut worse) = (0, 0);
    while tried < cases {
        let fabric = random_fabric(&mut random);
        let demand = random_demand(&fabric, &mut random);
        let choices: Vec<_> = demand.flows.iter().map(|flow| allowed(&fabric, flow, detour)).collect();
        let constraints = Constraints { detour, ..Constraints::default() };
        if choices.iter().any(Vec::is_empty) {
            assert!(place(&fabric, &demand, &constraints).is_err(), "there is no path, and nobody says so");
            continue;
        }
        tried += 1;
        let placement = place(&fabric, &demand, &constraints).unwrap();
        assert_valid(&fabric, &demand, &placement.paths, &choices);
        let best = optimum(&fabric, &demand, &choices);
        assert_eq!(placement.busiest, busiest(&fabric, &placement.paths.loads(&fabric, &demand)));
        assert!(placement.bound <= best, "bound {:?} is above the optimum {best:?}", placement.bound);
        assert!(placement.busiest >= best, "better than the best: {:?} < {best:?}", placement.busiest);
        worse += usize::from(placement.busiest > best);
    }
    worse
}

#[test]
fn small_fabrics_are_placed_as_well_as_can_be() {
    assert_eq!(worse_than_optimum(1, 400, 0), 0);
}

#[test]
fn with_detours_too() {
    assert_eq!(worse_than_optimum(2, 150, 2), 0);
}
