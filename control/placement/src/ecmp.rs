//! Paths that hashing gives the same flows: every switch has equal-cost next hops and picks one by a hash of the
//! 5-tuple.
//!
//! Each switch hashes with its own salt, as fabrics do that avoid polarisation; this is the favourable case for ECMP.
//! Weights are equal whatever the capacities, tenants are ignored, and paths are the shortest ones.

use std::collections::HashMap;

use srv6d_random::SplitMix64;

use crate::commodity::Problem;
use crate::commodity_paths::{CommodityPaths, PathsToExit};
use crate::constraints::{Constraints, PlaceError};
use crate::demand::Demand;
use crate::fabric::Fabric;
use crate::permits::Permits;
use crate::placement::Paths;
use crate::table::{Id, LinkId, NodeId};

/// UDP destination port of `RoCEv2`.
const ROCE: u16 = 4791;
/// Lowest UDP source port; source ports are drawn from here to 65535.
const FIRST_PORT: u16 = 49_152;

/// Returns the paths of the flows when switches hash with salts that derive from `seed`.
///
/// # Errors
/// [`PlaceError`]: for example a host without links, or no path.
pub fn hash(fabric: &Fabric, demand: &Demand, seed: u64) -> Result<Paths, PlaceError> {
    let nobody = Constraints::default();
    // Hashing ignores tenants.
    let demand_of_all =
        Demand { flows: demand.flows.iter().map(|flow| crate::Flow { tenant: None, ..*flow }).collect() };
    let problem = Problem::new(fabric, &demand_of_all, &nobody)?;
    let permits = Permits::new(&problem);
    let possible = CommodityPaths::new(&problem, &permits);
    possible.check_paths()?;
    let mut paths = Paths::new(demand.flows.len());
    let mut numbers: HashMap<Vec<LinkId>, u32> = HashMap::new();
    for (index, commodity) in problem.commodities.iter().enumerate() {
        let to_exit = possible.to_exit(index);
        for position in &commodity.flows {
            let Some(flow) = demand.flows.get(*position as usize) else { continue };
            let tuple = Tuple::new(flow.source, flow.destination, *position, seed);
            let route = follow_hash(&possible, to_exit, commodity.entry, tuple);
            let number = match numbers.get(&route) {
                Some(number) => *number,
                None => paths.add_route(route.clone()),
            };
            numbers.entry(route).or_insert(number);
            paths.set(*position as usize, number);
        }
    }
    Ok(paths)
}

fn follow_hash(possible: &CommodityPaths, to_exit: &PathsToExit, entry: NodeId, tuple: Tuple) -> Vec<LinkId> {
    let mut route = Vec::new();
    let mut at = entry;
    while at != to_exit.exit {
        let choices = possible.onward(to_exit, at, 0).count();
        let chosen = tuple.hash(at).checked_rem(choices as u64).unwrap_or(0);
        #[allow(clippy::cast_possible_truncation, reason = "less than the number of links of a switch")]
        let Some(step) = possible.onward(to_exit, at, 0).nth(chosen as usize) else { break };
        route.push(step.link);
        at = step.to;
    }
    route
}

/// Hash of the 5-tuple (host ids stand for addresses) and the seed.
#[derive(Clone, Copy)]
struct Tuple(u64);

impl Tuple {
    fn new(source: NodeId, destination: NodeId, flow: u32, seed: u64) -> Self {
        const UDP: u64 = 17;
        // A source port is drawn once per flow, as queue pairs do.
        let port = u64::from(FIRST_PORT) + mix(mix(seed) ^ u64::from(flow)) % u64::from(u16::MAX - FIRST_PORT + 1);
        let addresses = (source.position() as u64) << 32 | destination.position() as u64;
        let ports = port << 24 | u64::from(ROCE) << 8 | UDP;
        Self(mix(mix(mix(seed) ^ addresses) ^ ports))
    }

    fn hash(self, switch: NodeId) -> u64 {
        mix(self.0 ^ mix(switch.position() as u64 + 1))
    }
}

/// Returns a number of which every bit is affected by every bit of the value.
const fn mix(value: u64) -> u64 {
    SplitMix64::new(value).draw()
}
