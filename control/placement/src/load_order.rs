//! Paths that Jalapeno's load book gives the same flows: one `GET .../shortest_path/load` per flow, in their order.
//!
//! Every answer is the path of the least load, where an edge without a `load` weighs 1 and one with 0 weighs nothing.
//! Of equal paths it is the one with the fewest hops, and of those the first by the ids along the path. Then the load
//! of each of its edges grows by 10, whatever the demand of the flow is. Paths may be longer than the shortest,
//! capacities and tenants are ignored, and of parallel edges only the first one in the file is ever used.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::commodity::{Problem, Route};
use crate::constraints::{Constraints, MOST_DEMAND, PlaceError};
use crate::demand::Demand;
use crate::fabric::Fabric;
use crate::placement::Paths;
use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// Load that one allocation adds to each of its edges.
const STEP: u64 = 10;

/// Returns the paths of the flows as Jalapeno allocates them.
///
/// # Errors
/// [`PlaceError`]: for example a host without links, or no path.
pub fn load_order(fabric: &Fabric, demand: &Demand) -> Result<Paths, PlaceError> {
    let nobody = Constraints::default();
    // The load book ignores tenants.
    let demand_of_all =
        Demand { flows: demand.flows.iter().map(|flow| crate::Flow { tenant: None, ..*flow }).collect() };
    let problem = Problem::new(fabric, &demand_of_all, &nobody)?;
    let mut commodity_of = vec![0; demand.flows.len()];
    for (index, commodity) in problem.commodities.iter().enumerate() {
        for flow in &commodity.flows {
            if let Some(place) = commodity_of.get_mut(*flow as usize) {
                *place = index;
            }
        }
    }
    let mut book = Book::new(&problem);
    let mut paths = Paths::new(demand.flows.len());
    let mut numbers: HashMap<Route, u32> = HashMap::new();
    for (flow, commodity) in commodity_of.into_iter().enumerate() {
        let Some(commodity) = problem.commodities.get(commodity) else { continue };
        let no_path = || PlaceError::NoPath {
            from: fabric.node(commodity.entry).name.clone(),
            to: fabric.node(commodity.exit).name.clone(),
            tenant: None,
            fix: "repair a link, or leave out the hosts behind one of the two",
        };
        let route = book.allocate(commodity.entry, commodity.exit).ok_or_else(no_path)?;
        let number = match numbers.get(&route) {
            Some(number) => *number,
            None => paths.add_route(route.clone()),
        };
        numbers.entry(route).or_insert(number);
        paths.set(flow, number);
    }
    Ok(paths)
}

/// Cost and number of hops to the exit.
type Distance = (u64, usize);

const FAR: Distance = (u64::MAX, usize::MAX);

/// Booked loads, and the graph as Jalapeno sees it. The only edge of a host is left out: it is on all paths of that
/// host and on no others, so it changes no choice.
struct Book {
    weights: PerLink<u64>,
    loads: PerLink<u64>,
    out: PerNode<Vec<(LinkId, NodeId)>>,
    into: PerNode<Vec<(LinkId, NodeId)>>,
    distances: PerNode<Distance>,
    touched: Vec<NodeId>,
    /// Lower bound of the weights of the links into a node. It stays valid because weights only grow.
    least_into: PerNode<u64>,
    /// For each neighbour of the current entry, the link from the entry to it.
    from_entry: PerNode<Option<LinkId>>,
    queue: BinaryHeap<Reverse<(Distance, NodeId)>>,
}

impl Book {
    fn new(problem: &Problem) -> Self {
        let fabric = problem.fabric;
        let mut out = PerNode::new(fabric.node_count(), Vec::new());
        let mut into = PerNode::new(fabric.node_count(), Vec::new());
        let (mut weights, mut loads) = (PerLink::new(fabric.link_count(), 1), PerLink::new(fabric.link_count(), 0));
        let mut seen = HashSet::new();
        for (id, link) in fabric.links() {
            // The limit keeps sums along a path from overflowing.
            let booked = link.load.map(|load| u64::try_from(load).unwrap_or(0).min(MOST_DEMAND));
            weights[id] = booked.unwrap_or(1);
            loads[id] = booked.unwrap_or(0);
            if problem.judged[id] && fabric.works(id) && seen.insert((link.from, link.to)) {
                out[link.from].push((id, link.to));
                into[link.to].push((id, link.from));
            }
        }
        // Ties are broken by the ids of the nodes.
        for (node, _) in fabric.nodes() {
            out[node].sort_by(|(_, one), (_, other)| fabric.node(*one).id.cmp(&fabric.node(*other).id));
        }
        let distances = PerNode::new(fabric.node_count(), FAR);
        let (touched, queue) = (Vec::new(), BinaryHeap::new());
        let least_into = PerNode::new(fabric.node_count(), 0);
        let from_entry = PerNode::new(fabric.node_count(), None);
        Self { weights, loads, out, into, distances, touched, least_into, from_entry, queue }
    }

    fn allocate(&mut self, entry: NodeId, exit: NodeId) -> Option<Route> {
        self.measure(entry, exit);
        let mut route = Route::new();
        let mut at = entry;
        while at != exit {
            let (cost, hops) = self.distances[at];
            let on_the_way = |(link, to): &&(LinkId, NodeId)| {
                let (rest, left) = self.distances[*to];
                rest != u64::MAX && self.weights[*link] + rest == cost && left + 1 == hops
            };
            let (link, to) = self.out[at].iter().find(on_the_way)?;
            route.push(*link);
            at = *to;
        }
        for link in &route {
            self.loads[*link] += STEP;
            self.weights[*link] = self.loads[*link];
        }
        Some(route)
    }

    /// Runs Dijkstra's algorithm from the exit until the entry is reached. A node is skipped if its distance to the
    /// exit, plus the lightest link that leaves the entry, exceeds the distance of the entry: it is on no best path.
    /// With balanced loads, that avoids visiting all links into the spines.
    fn measure(&mut self, entry: NodeId, exit: NodeId) {
        for node in self.touched.drain(..) {
            self.distances[node] = FAR;
        }
        for (link, to) in &self.out[entry] {
            self.from_entry[*to] = Some(*link);
        }
        let lightest = self.out[entry].iter().map(|(link, _)| self.weights[*link]).min().unwrap_or(0);
        self.queue.clear();
        self.reach(exit, (0, 0));
        while let Some(Reverse((distance, node))) = self.queue.pop() {
            if node == entry {
                break;
            }
            if distance > self.distances[node] {
                continue;
            }
            if let Some(link) = self.from_entry[node] {
                self.reach(entry, (distance.0 + self.weights[link], distance.1 + 1));
            }
            if distance.0 + self.least_into[node] + lightest <= self.distances[entry].0 {
                self.look_back(node, distance, entry, lightest);
            }
        }
        for (_, to) in &self.out[entry] {
            self.from_entry[*to] = None;
        }
    }

    /// Updates the distances of the nodes that have a link into this node.
    fn look_back(&mut self, node: NodeId, distance: Distance, entry: NodeId, lightest: u64) {
        let mut least = u64::MAX;
        for position in 0..self.into[node].len() {
            let Some((link, from)) = self.into[node].get(position).copied() else { break };
            let weight = self.weights[link];
            least = least.min(weight);
            let cost = distance.0 + weight;
            if from != entry && cost + lightest <= self.distances[entry].0 {
                self.reach(from, (cost, distance.1 + 1));
            }
        }
        self.least_into[node] = if least == u64::MAX { 0 } else { least };
    }

    fn reach(&mut self, node: NodeId, distance: Distance) {
        if distance < self.distances[node] {
            if self.distances[node] == FAR {
                self.touched.push(node);
            }
            self.distances[node] = distance;
            self.queue.push(Reverse((distance, node)));
        }
    }
}
