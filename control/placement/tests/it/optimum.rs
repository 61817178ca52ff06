//! Compares placement with every possible placement, on fabrics small enough to try all of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test stops at the first surprise")]

use fastrand::Rng;
use srv6d_placement::{
    Carried, Constraints, Demand, Fabric, Flow, Link, LinkId, Node, NodeId, NodeKind, Paths, PerLink, Ratio, busiest,
    busiest_beside, place, place_again, place_beside, place_phases,
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
        let onward = |(id, link): &(LinkId, &Link)| link.from == at && fabric.works(*id) && !seen.contains(&link.to);
        for (id, link) in fabric.links().filter(onward) {
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

/// Links of a path.
type Links = Vec<LinkId>;

/// Returns the lowest ratio of the busiest link, and the fewest flows that have to take another path than before for it.
fn fewest(
    fabric: &Fabric,
    demand: &Demand,
    choices: &[Vec<Vec<LinkId>>],
    before: &[Option<Vec<LinkId>>],
) -> (Ratio, usize) {
    fn search(
        (fabric, demand): (&Fabric, &Demand),
        (choices, before): (&[Vec<Links>], &[Option<Links>]),
        loads: &mut PerLink<u64>,
        (flow, moves): (usize, usize),
        best: &mut Option<(Ratio, usize)>,
    ) {
        let so_far = (busiest(fabric, loads), moves);
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
            let moves = moves + usize::from(before[flow].as_ref() != Some(path));
            search((fabric, demand), (choices, before), loads, (flow + 1, moves), best);
            for link in path {
                loads[*link] -= demand.flows[flow].demand;
            }
        }
    }
    let mut best = None;
    let nothing = &mut PerLink::new(fabric.link_count(), 0);
    search((fabric, demand), (choices, before), nothing, (0, 0), &mut best);
    best.unwrap()
}

/// Changes one or two links: they go down, come up or have another capacity.
fn change(fabric: &mut Fabric, random: &mut Rng) {
    let judged = fabric.judged();
    for _ in 0..random.usize(1..3) {
        let some: Vec<(LinkId, NodeId, NodeId)> =
            fabric.links().filter(|(id, _)| judged[*id]).map(|(id, link)| (id, link.from, link.to)).collect();
        let Some((id, from, to)) = some.get(random.usize(0..some.len().max(1))).copied() else { return };
        let back = some.iter().filter(|(_, other, behind)| (*other, *behind) == (to, from)).map(|(id, ..)| *id).next();
        let capacity = random.u64(1..4);
        let goes = random.bool();
        for link in [Some(id), back].into_iter().flatten() {
            if goes {
                fabric.link_mut(link).up = !fabric.link(link).up;
            } else {
                fabric.link_mut(link).capacity = capacity;
            }
        }
    }
}

#[test]
fn after_a_change_the_fewest_flows_move() {
    let mut random = Rng::with_seed(11);
    let (mut tried, mut moved, mut more, mut busier, mut chains) = (0, 0, 0, 0, 0);
    while tried < 800 {
        let fabric = random_fabric(&mut random);
        let mut demand = random_demand(&fabric, &mut random);
        demand.flows.extend(random_demand(&fabric, &mut random).flows.into_iter().take(random.usize(0..4)));
        let constraints = Constraints { detour: random.usize(0..2), ..Constraints::default() };
        let Ok(first) = place(&fabric, &demand, &constraints) else { continue };
        let before: Vec<_> =
            (0..demand.flows.len()).map(|flow| Some(first.paths.links(&fabric, &demand, flow))).collect();
        let mut changed = fabric.clone();
        change(&mut changed, &mut random);
        let choices: Vec<_> = demand.flows.iter().map(|flow| allowed(&changed, flow, constraints.detour)).collect();
        let nothing = Carried::nothing(&changed);
        if choices.iter().any(Vec::is_empty) {
            assert!(place_again(&changed, &demand, &constraints, &nothing, &before).is_err(), "there is no path");
            continue;
        }
        tried += 1;
        let again = place_again(&changed, &demand, &constraints, &nothing, &before).unwrap();
        assert_valid(&changed, &demand, &again.placement.paths, &choices);
        assert_eq!(busiest(&changed, &again.placement.paths.loads(&changed, &demand)), again.placement.busiest);
        let other: Vec<usize> = (0..before.len())
            .filter(|flow| before[*flow].as_ref() != Some(&again.placement.paths.links(&changed, &demand, *flow)))
            .collect();
        assert_eq!(again.moved, other, "case {tried}");
        let gone = (0..before.len()).filter(|flow| !choices[*flow].contains(before[*flow].as_ref().unwrap()));
        assert_eq!(again.lost, gone.count(), "case {tried}");
        let (best, fewest) = fewest(&changed, &demand, &choices, &before);
        moved += fewest;
        chains += usize::from(fewest > again.lost);
        busier += usize::from(again.placement.busiest > best);
        more += usize::from(again.placement.busiest == best && again.moved.len() > fewest);
    }
    assert!(moved > 100 && chains > 15, "{moved} moves, {chains} chains: the cases are too easy");
    assert_eq!((busier, more), (0, 0), "cases with a busier link, and with more moves than needed");
}

#[test]
fn without_a_change_nothing_moves() {
    let mut random = Rng::with_seed(12);
    for _ in 0..50 {
        let fabric = random_fabric(&mut random);
        let demand = random_demand(&fabric, &mut random);
        let constraints = Constraints::default();
        let Ok(first) = place(&fabric, &demand, &constraints) else { continue };
        let before: Vec<_> =
            (0..demand.flows.len()).map(|flow| Some(first.paths.links(&fabric, &demand, flow))).collect();
        let again = place_again(&fabric, &demand, &constraints, &Carried::nothing(&fabric), &before).unwrap();
        assert_eq!((again.moved.len(), again.lost), (0, 0));
        assert_eq!(again.before, first.busiest);
    }
}

#[test]
fn on_a_large_fabric_a_lost_link_moves_few_flows() {
    let mut fabric = srv6d_placement::Clos::two_tier(16, 8, 8).build();
    let hosts: Vec<NodeId> = fabric.hosts().collect();
    let demand = Demand::of_pattern(srv6d_placement::Pattern::AllToAll, &[hosts], 1, 1);
    let constraints = Constraints::default();
    let first = place(&fabric, &demand, &constraints).unwrap();
    let before: Vec<_> = (0..demand.flows.len()).map(|flow| Some(first.paths.links(&fabric, &demand, flow))).collect();
    let judged = fabric.judged();
    let (lost, ends) = fabric.links().find(|(id, _)| judged[*id]).map(|(id, link)| (id, (link.from, link.to))).unwrap();
    let back = fabric.links().find(|(_, link)| (link.to, link.from) == ends).unwrap().0;
    for link in [lost, back] {
        fabric.link_mut(link).up = false;
    }
    let fresh = place(&fabric, &demand, &constraints).unwrap();
    let again = place_again(&fabric, &demand, &constraints, &Carried::nothing(&fabric), &before).unwrap();
    assert!(again.placement.busiest <= fresh.busiest, "{:?} {:?}", again.placement.busiest, fresh.busiest);
    assert!(again.lost > 0 && again.moved.len() < 2 * again.lost, "{} moved, {} lost", again.moved.len(), again.lost);
}

/// Returns the ratios of all phases, the highest first, of the best paths that pairs can have.
fn best_phases(fabric: &Fabric, phases: &[Demand], pairs: &[(NodeId, NodeId)]) -> Vec<Ratio> {
    let choices: Vec<Vec<Vec<LinkId>>> = pairs
        .iter()
        .map(|(source, destination)| {
            allowed(fabric, &Flow { source: *source, destination: *destination, demand: 1, tenant: None }, 0)
        })
        .collect();
    let of = |demand: &Demand, pair: (NodeId, NodeId)| {
        demand.flows.iter().find(|flow| (flow.source, flow.destination) == pair).map_or(0, |flow| flow.demand)
    };
    let mut chosen = vec![0; pairs.len()];
    let mut best: Option<Vec<Ratio>> = None;
    loop {
        let ratios = phases.iter().map(|demand| {
            let mut loads = PerLink::new(fabric.link_count(), 0);
            for ((pair, choices), chosen) in pairs.iter().zip(&choices).zip(&chosen) {
                choices[*chosen].iter().for_each(|link| loads[*link] += of(demand, *pair));
            }
            busiest(fabric, &loads)
        });
        let mut ratios: Vec<Ratio> = ratios.collect();
        ratios.sort_unstable_by(|one, other| other.cmp(one));
        if best.as_ref().is_none_or(|best| ratios < *best) {
            best = Some(ratios);
        }
        let Some(next) = (0..chosen.len()).find(|pair| chosen[*pair] + 1 < choices[*pair].len()) else {
            return best.unwrap();
        };
        chosen[next] += 1;
        chosen[..next].fill(0);
    }
}

#[test]
fn pairs_of_several_phases_have_one_path_that_is_good_in_each() {
    let mut random = Rng::with_seed(13);
    let (mut tried, mut worse, mut shared) = (0, 0, 0);
    while tried < 150 {
        let fabric = random_fabric(&mut random);
        let phases: Vec<Demand> = (0..2)
            .map(|_| {
                let mut demand = random_demand(&fabric, &mut random);
                let mut seen = std::collections::HashSet::new();
                demand.flows.retain(|flow| seen.insert((flow.source, flow.destination)));
                demand.flows.truncate(4);
                demand
            })
            .collect();
        let nothing = Carried::nothing(&fabric);
        let Ok(found) = place_phases(&fabric, &phases, &Constraints::default(), &nothing, None) else { continue };
        tried += 1;
        shared += usize::from(found.pairs.len() < phases.iter().map(|demand| demand.flows.len()).sum::<usize>());
        for ((source, destination), links) in found.pairs.iter().zip(&found.links) {
            let flow = Flow { source: *source, destination: *destination, demand: 1, tenant: None };
            assert!(allowed(&fabric, &flow, 0).contains(links), "case {tried}");
        }
        let mut ratios: Vec<Ratio> = found.phases.iter().map(|phase| phase.busiest).collect();
        assert!(found.phases.iter().all(|phase| phase.busiest >= phase.bound), "case {tried}");
        ratios.sort_unstable_by(|one, other| other.cmp(one));
        let best = best_phases(&fabric, &phases, &found.pairs);
        assert!(ratios >= best, "case {tried}");
        worse += usize::from(ratios > best);
        // Placed again where nothing has changed, nothing moves.
        let known = found.pairs.iter().copied().zip(found.links.iter().cloned()).collect();
        let again = place_phases(&fabric, &phases, &Constraints::default(), &nothing, Some(&known)).unwrap();
        let score = |phased: &srv6d_placement::Phased| phased.phases.iter().map(|phase| phase.busiest).max();
        assert!(score(&again) <= score(&found), "case {tried}");
        assert_eq!(again.changed.unwrap().lost, 0);
    }
    assert!(shared > 50, "{shared} cases with a pair in both phases");
    assert_eq!(worse, 0, "cases that are worse than the optimum");
}

#[test]
fn a_ring_and_an_all_to_all_each_reach_their_bound() {
    let fabric = srv6d_placement::Clos::two_tier(4, 4, 4).build();
    let hosts: Vec<NodeId> = fabric.hosts().collect();
    let of = |pattern| Demand::of_pattern(pattern, std::slice::from_ref(&hosts), 1, 1);
    let phases = [of(srv6d_placement::Pattern::AllToAll), of(srv6d_placement::Pattern::Ring)];
    let nothing = Carried::nothing(&fabric);
    let found = place_phases(&fabric, &phases, &Constraints::default(), &nothing, None).unwrap();
    assert_eq!(found.pairs.len(), 16 * 15);
    for phase in &found.phases {
        assert_eq!(phase.busiest, phase.bound);
    }
}
