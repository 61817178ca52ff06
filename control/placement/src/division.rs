//! Divides switches between tenants that must not share a link. Every switch above the leaves that several of these
//! tenants could cross is given to one of them, in whole planes where possible, in proportion to what each tenant
//! needs.

use std::collections::{BTreeMap, HashMap};

use fastrand::Rng;

use crate::commodity::Problem;
use crate::commodity_paths::CommodityPaths;
use crate::constraints::PlaceError;
use crate::permits::Permits;
use crate::table::{LinkId, NodeId, PerNode};

/// Number of orders in which the units are handed out before the search gives up.
const ATTEMPTS: usize = 48;

/// Switches or links that are given to a tenant as a whole.
#[derive(Clone, Debug, Default)]
struct Unit {
    nodes: Vec<NodeId>,
    /// Links between two switches that both have hosts.
    links: Vec<LinkId>,
}

/// Narrows the permits so that disjoint tenants cannot share a link.
pub(crate) fn divide(problem: &Problem, permits: &Permits) -> Result<Permits, PlaceError> {
    if problem.constraints.disjoint.is_empty() {
        return Ok(permits.clone());
    }
    check_hosts(problem)?;
    let tiers = problem.fabric.tiers();
    let needs = needs(problem);
    let mut random = Rng::with_seed(problem.constraints.seed);
    for mut units in [planes(problem, &tiers), switches(problem, &tiers)] {
        units.extend(cables(problem, &tiers));
        for _ in 0..ATTEMPTS {
            let divided = hand_out(problem, permits, &units, &needs);
            if every_pair_connected(problem, &divided) {
                return Ok(divided);
            }
            random.shuffle(&mut units);
        }
    }
    Err(inseparable(problem, permits, &tiers))
}

/// Checks that no host link is used by two disjoint tenants: a host of both has only one set of links.
fn check_hosts(problem: &Problem) -> Result<(), PlaceError> {
    let mut users: BTreeMap<LinkId, Vec<usize>> = BTreeMap::new();
    for commodity in &problem.commodities {
        let Some(tenant) = commodity.tenant else { continue };
        for flow in commodity.flows.iter().filter_map(|flow| problem.demand.flows.get(*flow as usize)) {
            let (up, down) = problem.ends(flow);
            for link in [up, down].into_iter().flatten() {
                let users = users.entry(link).or_default();
                if !users.contains(&tenant) {
                    users.push(tenant);
                }
            }
        }
    }
    for (link, users) in users {
        for (position, one) in users.iter().enumerate() {
            for other in users.iter().skip(position + 1) {
                if problem.constraints.are_disjoint(Some(*one), Some(*other)) {
                    return Err(shared(problem, *one, *other, link));
                }
            }
        }
    }
    Ok(())
}

/// Returns the error that says that two disjoint tenants share a link.
pub(crate) fn shared(problem: &Problem, one: usize, other: usize, link: LinkId) -> PlaceError {
    let name = |tenant| problem.constraints.tenant_name(Some(tenant)).unwrap_or_default();
    let ends = problem.fabric.link(link);
    let [from, to] = [ends.from, ends.to].map(|node| problem.fabric.node(node).name.clone());
    PlaceError::Shared {
        one: name(one),
        other: name(other),
        link: format!("{from} -> {to}"),
        why: "it is the only link of a host of both".to_owned(),
        fix: "give them different hosts, or let them share".to_owned(),
    }
}

/// Returns the need of each tenant: the largest volume that one of its leaves sends or receives.
fn needs(problem: &Problem) -> Vec<u64> {
    let mut doors: HashMap<(usize, NodeId, bool), u64> = HashMap::new();
    for commodity in problem.commodities.iter().filter(|commodity| commodity.entry != commodity.exit) {
        if let Some(tenant) = commodity.tenant {
            *doors.entry((tenant, commodity.entry, true)).or_default() += commodity.volume();
            *doors.entry((tenant, commodity.exit, false)).or_default() += commodity.volume();
        }
    }
    let mut needs = vec![0; problem.constraints.tenants.len()];
    for ((tenant, ..), volume) in doors {
        if let Some(need) = needs.get_mut(tenant) {
            *need = volume.max(*need);
        }
    }
    needs
}

fn above_leaves(tiers: &PerNode<Option<usize>>, node: NodeId) -> bool {
    tiers[node].is_some_and(|tier| tier > 0)
}

/// Returns the connected parts of the fabric without its leaves: single spines with two tiers, planes with three.
fn planes(problem: &Problem, tiers: &PerNode<Option<usize>>) -> Vec<Unit> {
    let fabric = problem.fabric;
    let mut seen = PerNode::new(fabric.node_count(), false);
    let mut units = Vec::new();
    for (start, _) in fabric.nodes().filter(|(node, _)| above_leaves(tiers, *node)) {
        let mut unit = Unit::default();
        let mut stack = vec![start];
        while let Some(node) = stack.pop() {
            if !seen[node] {
                seen[node] = true;
                unit.nodes.push(node);
                stack.extend(
                    fabric.out(node).map(|link| fabric.link(link).to).filter(|next| above_leaves(tiers, *next)),
                );
            }
        }
        if !unit.nodes.is_empty() {
            units.push(unit);
        }
    }
    units
}

fn switches(problem: &Problem, tiers: &PerNode<Option<usize>>) -> Vec<Unit> {
    let nodes = problem.fabric.nodes().map(|(node, _)| node).filter(|node| above_leaves(tiers, *node));
    nodes.map(|node| Unit { nodes: vec![node], links: Vec::new() }).collect()
}

/// Returns one unit for each pair of switches with hosts that have a link: the links of both directions.
fn cables(problem: &Problem, tiers: &PerNode<Option<usize>>) -> Vec<Unit> {
    let mut cables: BTreeMap<(NodeId, NodeId), Unit> = BTreeMap::new();
    for (id, link) in problem.fabric.links() {
        if tiers[link.from] == Some(0) && tiers[link.to] == Some(0) {
            let ends = (link.from.min(link.to), link.from.max(link.to));
            cables.entry(ends).or_default().links.push(id);
        }
    }
    cables.into_values().collect()
}

/// Gives each unit to the tenant that has the fewest units in proportion to its need, and then to all others that may
/// share with its owners.
fn hand_out(problem: &Problem, permits: &Permits, units: &[Unit], needs: &[u64]) -> Permits {
    let constraints = problem.constraints;
    let mut divided = permits.clone();
    let mut won = vec![0_u64; needs.len()];
    for unit in units {
        let wants = |tenant: &usize| {
            let permit = permits.of(Some(*tenant));
            unit.nodes.iter().any(|node| permit.crosses(*node)) || unit.links.iter().any(|link| permit.uses(*link))
        };
        let mut tenants: Vec<usize> = (0..needs.len()).filter(wants).collect();
        // Orders by need / won without dividing; of equal tenants the first one wins.
        let hunger = |tenant: usize| (needs.get(tenant).copied().unwrap_or(0), won.get(tenant).copied().unwrap_or(0));
        tenants.sort_by(|one, other| {
            let ((need, has), (other_need, other_has)) = (hunger(*one), hunger(*other));
            (u128::from(other_need) * u128::from(has))
                .cmp(&(u128::from(need) * u128::from(other_has)))
                .then(has.cmp(&other_has))
        });
        let mut owners: Vec<usize> = Vec::new();
        for tenant in tenants {
            if owners.iter().any(|owner| constraints.are_disjoint(Some(*owner), Some(tenant))) {
                let Some(permit) = divided.of_mut(tenant) else { continue };
                unit.nodes.iter().for_each(|node| permit.forbid_node(*node));
                unit.links.iter().for_each(|link| permit.forbid_link(*link));
            } else {
                owners.push(tenant);
                if let Some(won) = won.get_mut(tenant) {
                    *won += 1;
                }
            }
        }
    }
    divided
}

fn every_pair_connected(problem: &Problem, permits: &Permits) -> bool {
    let paths = CommodityPaths::new(problem, permits);
    (0..problem.commodities.len()).all(|commodity| paths.hops(commodity).is_some())
}

fn inseparable(problem: &Problem, permits: &Permits, tiers: &PerNode<Option<usize>>) -> PlaceError {
    let constraints = problem.constraints;
    let both = |(one, other): &(usize, usize)| -> Vec<String> {
        let (one, other) = (permits.of(Some(*one)), permits.of(Some(*other)));
        let nodes = problem.fabric.nodes().filter(|(node, _)| above_leaves(tiers, *node));
        let contested = nodes.filter(|(node, _)| one.crosses(*node) && other.crosses(*node));
        contested.map(|(_, node)| node.name.clone()).collect()
    };
    // The pair of tenants that contests the most switches is the likeliest reason.
    let pair = constraints.disjoint.iter().max_by_key(|pair| both(pair).len()).copied().unwrap_or_default();
    let name = |tenant| constraints.tenant_name(Some(tenant)).unwrap_or_default();
    let contested = both(&pair);
    let contested = if contested.is_empty() { "the links".to_owned() } else { contested.join(", ") };
    PlaceError::Inseparable { one: name(pair.0), other: name(pair.1), contested }
}
