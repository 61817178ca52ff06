//! Compares placement with every possible placement, on fabrics small enough to try all of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use fastrand::Rng;
use srv6d_placement::{
    Carried, Constraints, Demand, Fabric, Flow, Link, LinkId, Node, NodeId, NodeKind, Paths, PerLink, Ratio, busiest,
    busiest_beside, place, place_beside,
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

/// Returns the lowest ratio of the busiest link that the flows can take beside what the links carry: over all paths, and
/// over those without links of `avoided`.
fn optimum_beside(
    fabric: &Fabric,
    demand: &Demand,
    choices: &[Vec<Vec<LinkId>>],
    carried: &PerLink<u64>,
    avoided: &PerLink<u64>,
) -> [Option<Ratio>; 2] {
    let judged = fabric.judged();
    let is_free = |path: &Vec<LinkId>| path.iter().all(|link| !judged[*link] || avoided[*link] == 0);
    let free: Vec<Vec<Vec<LinkId>>> =
        choices.iter().map(|paths| paths.iter().filter(|path| is_free(path)).cloned().collect()).collect();
    let best = |choices: &[Vec<Vec<LinkId>>]| {
        let mut best: Option<Ratio> = None;
        let mut positions = vec![0; choices.len()];
        if choices.iter().any(Vec::is_empty) {
            return None;
        }
        loop {
            let mut loads = PerLink::new(fabric.link_count(), 0);
            for (flow, position) in positions.iter().enumerate() {
                choices[flow][*position].iter().for_each(|link| loads[*link] += demand.flows[flow].demand);
            }
            let busiest = busiest_beside(fabric, &loads, carried);
            best = Some(best.map_or(busiest, |best| best.min(busiest)));
            // The positions count up like the digits of a number.
            let Some(turn) = (0..positions.len()).find(|flow| positions[*flow] + 1 < choices[*flow].len()) else {
                return best;
            };
            positions[..turn].fill(0);
            positions[turn] += 1;
        }
    };
    [best(choices), best(&free)]
}

/// Jobs arrive and leave at random. Each one that arrives is as good as the best of all placements beside those that are
/// there, and shares no link when that costs nothing.
#[test]
fn jobs_that_arrive_and_leave_are_placed_as_well_as_can_be_beside_each_other() {
    let mut random = Rng::with_seed(3);
    let (mut tried, mut apart, mut shared) = (0, 0, 0);
    while tried < 250 {
        let fabric = random_fabric(&mut random);
        let mut present: Vec<(u8, PerLink<u64>)> = Vec::new();
        for _ in 0..6 {
            if random.usize(0..3) == 0 && !present.is_empty() {
                present.swap_remove(random.usize(0..present.len()));
            }
            let mut demand = random_demand(&fabric, &mut random);
            demand.flows.truncate(random.usize(1..4));
            let choices: Vec<_> = demand.flows.iter().map(|flow| allowed(&fabric, flow, 0)).collect();
            if choices.iter().any(Vec::is_empty) {
                continue;
            }
            tried += 1;
            let priority = random.u8(0..3);
            let mut carried = Carried::nothing(&fabric);
            for (of, loads) in &present {
                for (link, load) in loads.iter() {
                    carried.all[link] += load;
                    if *of >= priority {
                        carried.respected[link] += load;
                    }
                }
            }
            let placement = place_beside(&fabric, &demand, &Constraints::default(), &carried).unwrap();
            assert_valid(&fabric, &demand, &placement.paths, &choices);
            let own = placement.paths.loads(&fabric, &demand);
            let reached = busiest_beside(&fabric, &own, &carried.respected);
            let [best, best_apart] = optimum_beside(&fabric, &demand, &choices, &carried.respected, &carried.all);
            assert_eq!(Some(reached), best, "case {tried}");
            let judged = fabric.judged();
            let is_beside = own.iter().any(|(link, load)| judged[link] && *load > 0 && carried.all[link] > 0);
            if best_apart == best {
                assert!(!is_beside, "case {tried}: free links were enough");
            }
            if present.is_empty() {
                assert_eq!(placement.paths, place(&fabric, &demand, &Constraints::default()).unwrap().paths);
            }
            apart += usize::from(!present.is_empty() && !is_beside);
            shared += usize::from(is_beside);
            present.push((priority, own));
        }
    }
    assert!(apart > 20 && shared > 20, "{apart} apart, {shared} shared: both must have been tried");
}
