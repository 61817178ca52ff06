//! Placement on symmetric fabrics, where every leaf sees the same: two and three tiers of equal links. There, colouring
//! reaches the lower bound.
//!
//! ```text
//!          core 0  core 1            core 2  core 3
//!           │   ╲  ╱   │              │   ╲  ╱   │
//!           │    ╳     │              │    ╳     │
//!           │   ╱  ╲   │              │   ╱  ╲   │
//!          spine 0   spine 2         spine 1   spine 3        spine number 0, and spine number 1
//!           pod 0     pod 1           pod 0     pod 1         every leaf of a pod has a link to both its spines
//! ```
//!
//! First every flow gets a spine number, the same at both its ends: a colour. Then, for each spine number, flows
//! between pods get a core in the same way as flows between leaves get a spine in a fabric of two tiers. Colours should
//! be even at each leaf and, for traffic that crosses its border, at each pod. Where some flows stay inside pods and
//! others leave them, only one of the two can be guaranteed ([`Even`]); even leaves suffice unless pods have fewer
//! links to the cores than leaves have to spines.

use std::collections::{BTreeMap, HashMap};

use crate::colour::{Cell, colour};
use crate::commodity::{Route, Spread};
use crate::commodity_paths::CommodityPaths;
use crate::fabric::NodeKind;
use crate::part::Part;
use crate::table::{LinkId, NodeId, PerNode};

/// Links of a leaf in the order of spine numbers, each with its spine.
type Uplinks = Vec<(NodeId, LinkId)>;

/// A part of a problem whose links are symmetric.
struct Symmetric<'m, 'p> {
    paths: &'m CommodityPaths<'p>,
    part: &'m Part,
    even: Even,
    ups: HashMap<NodeId, Uplinks>,
    downs: HashMap<NodeId, Uplinks>,
    /// Spine number of each colour; parallel links to one spine are several colours.
    spine_of: Vec<usize>,
}

/// The level at which an even distribution of spine numbers is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Even {
    /// At each pod and leaf for traffic that crosses the border of the pod; separately, at each leaf for traffic inside
    /// it.
    Pods,
    /// At each leaf, for all its traffic together.
    Leaves,
}

/// Returns the spreads of the part's commodities, in their order, or `None` if the part is not symmetric.
pub(crate) fn place(paths: &CommodityPaths, part: &Part, even: Even) -> Option<Vec<Spread>> {
    let symmetric = Symmetric::recognise(paths, part, even)?;
    let mut spreads = vec![Spread::new(); part.commodities.len()];
    // Flows are placed in classes of equal demand, one class after the other.
    let mut classes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (position, commodity) in part.commodities.iter().enumerate() {
        classes.entry(paths.commodity(*commodity).demand).or_default().push(position);
    }
    for positions in classes.values() {
        symmetric.place_class(positions, &mut spreads)?;
    }
    Some(spreads)
}

impl<'m, 'p> Symmetric<'m, 'p> {
    fn recognise(paths: &'m CommodityPaths<'p>, part: &'m Part, even: Even) -> Option<Self> {
        if paths.detour > 0 {
            return None;
        }
        let planes = planes(paths);
        let mut symmetric =
            Self { paths, part, even, ups: HashMap::new(), downs: HashMap::new(), spine_of: Vec::new() };
        for commodity in &part.commodities {
            let (entry, exit) = (paths.commodity(*commodity).entry, paths.commodity(*commodity).exit);
            let [ups, downs] = symmetric.doors(*commodity, &planes)?;
            if symmetric.ups.entry(entry).or_insert_with(|| ups.clone()) != &ups
                || symmetric.downs.entry(exit).or_insert_with(|| downs.clone()) != &downs
            {
                return None;
            }
        }
        let capacity =
            |links: &Uplinks| links.iter().map(|(_, link)| paths.problem.fabric.link(*link).capacity).collect();
        let sides = || symmetric.ups.values().chain(symmetric.downs.values());
        let capacities: Vec<Vec<u64>> = sides().map(capacity).collect();
        let first = capacities.first()?.first()?;
        if capacities.iter().flatten().any(|other| other != first) {
            return None;
        }
        let spines: Vec<Vec<usize>> = sides().map(spine_numbers).collect();
        let spine_of = spines.first()?.clone();
        if spines.iter().any(|other| *other != spine_of) {
            return None;
        }
        symmetric.spine_of = spine_of;
        Some(symmetric)
    }

    /// Returns the links by which a commodity's flows may leave the entry, and those by which they may reach the exit.
    fn doors(&self, commodity: usize, planes: &PerNode<Option<usize>>) -> Option<[Uplinks; 2]> {
        let paths = self.paths;
        let fabric = paths.problem.fabric;
        let (entry, to_exit) = (paths.commodity(commodity).entry, paths.to_exit(commodity));
        if !matches!(paths.hops(commodity), Some(2 | 4)) || fabric.node(entry).kind == NodeKind::Host {
            return None;
        }
        let sort = |mut links: Uplinks| {
            links.sort_by_key(|(spine, link)| (planes[*spine], *spine, *link));
            links
        };
        let ups = paths.onward(to_exit, entry, 0).map(|step| (step.to, step.link)).collect();
        let links = paths.links(commodity);
        let into = links.into_iter().filter(|link| fabric.link(*link).to == to_exit.exit);
        let downs = into.map(|link| (fabric.link(link).from, link)).collect();
        Some([sort(ups), sort(downs)])
    }

    fn place_class(&self, positions: &[usize], spreads: &mut [Spread]) -> Option<()> {
        let mut numbers = Numbers::default();
        let mut cells = Vec::new();
        for position in positions {
            let (commodity, ups, downs) = self.ends(*position)?;
            let pods = [ups, downs].map(|links| links.iter().map(|(spine, _)| *spine).collect::<Vec<_>>());
            // Levels must nest: either the flows of a leaf inside its pod and those across the border count as two
            // senders, or the pod is counted with everything that its leaves send.
            let inside = self.even == Even::Pods && pods[0] == pods[1];
            let [sender, receiver] = [commodity.entry, commodity.exit].map(|leaf| numbers.leaf(leaf, inside));
            let [from, to] = pods.map(|pod| numbers.pod(pod, inside));
            cells.push(Cell {
                sender: [sender, from],
                receiver: [receiver, to],
                count: commodity.count(),
                colours: Vec::new(),
            });
        }
        colour(&mut cells, self.spine_of.len());
        // Flows between pods still need a core; they are collected by spine number.
        let mut unfinished: BTreeMap<usize, Vec<Unfinished>> = BTreeMap::new();
        for (position, cell) in positions.iter().zip(&cells) {
            let (_, ups, downs) = self.ends(*position)?;
            for (((up, down), count), spine) in ups.iter().zip(downs).zip(&cell.colours).zip(&self.spine_of) {
                if *count == 0 {
                    continue;
                }
                let spread = spreads.get_mut(*position)?;
                if up.0 == down.0 {
                    spread.push((vec![up.1, down.1], *count));
                } else {
                    let (from, to) = (*up, *down);
                    unfinished.entry(*spine).or_default().push(Unfinished {
                        position: *position,
                        from,
                        to,
                        count: *count,
                    });
                }
            }
        }
        unfinished.values().try_for_each(|flows| self.place_between_pods(flows, spreads))
    }

    fn ends(&self, position: usize) -> Option<(&crate::commodity::Commodity, &Uplinks, &Uplinks)> {
        let commodity = self.paths.commodity(*self.part.commodities.get(position)?);
        Some((commodity, self.ups.get(&commodity.entry)?, self.downs.get(&commodity.exit)?))
    }

    /// Chooses cores for flows that have the same spine number.
    fn place_between_pods(&self, flows: &[Unfinished], spreads: &mut [Spread]) -> Option<()> {
        let mut numbers = Numbers::default();
        let mut cells = Vec::new();
        let mut middles: HashMap<(NodeId, NodeId), Vec<Route>> = HashMap::new();
        let mut shape = None;
        for flow in flows {
            let commodity = *self.part.commodities.get(flow.position)?;
            let middle = middles.entry((flow.from.0, flow.to.0)).or_insert_with(|| self.middle(commodity, flow));
            // Between any two spines of one number there must be the same number of cores, over equal links.
            let capacities: Vec<u64> =
                middle.iter().flatten().map(|link| self.paths.problem.fabric.link(*link).capacity).collect();
            let alike = capacities.windows(2).all(|pair| pair.first() == pair.last());
            if !alike || capacities.is_empty() || shape.get_or_insert_with(|| capacities.clone()) != &capacities {
                return None;
            }
            let [from, to] = [flow.from.0, flow.to.0].map(|spine| numbers.leaf(spine, false));
            cells.push(Cell { sender: [from; 2], receiver: [to; 2], count: flow.count, colours: Vec::new() });
        }
        colour(&mut cells, shape?.len() / 2);
        for (flow, cell) in flows.iter().zip(&cells) {
            let middle = middles.get(&(flow.from.0, flow.to.0))?;
            for (way, count) in middle.iter().zip(&cell.colours).filter(|(_, count)| **count > 0) {
                let route = [&[flow.from.1], way.as_slice(), &[flow.to.1]].concat();
                spreads.get_mut(flow.position)?.push((route, *count));
            }
        }
        Some(())
    }

    /// Returns the routes from spine to spine over each core that both reach, in the order of cores.
    fn middle(&self, commodity: usize, flow: &Unfinished) -> Vec<Route> {
        let to_exit = self.paths.to_exit(commodity);
        let ups = self.paths.onward(to_exit, flow.from.0, 0);
        let over = |core: NodeId, up: LinkId| {
            let downs = self.paths.onward(to_exit, core, 0).filter(|step| step.to == flow.to.0);
            downs.map(move |down| vec![up, down.link]).collect::<Vec<_>>()
        };
        ups.flat_map(|step| over(step.to, step.link)).collect()
    }
}

/// Flows of one commodity that have spines but no core yet.
struct Unfinished {
    position: usize,
    from: (NodeId, LinkId),
    to: (NodeId, LinkId),
    count: u64,
}

/// Assigns consecutive numbers to leaves and pods: one number for traffic inside a pod and another for the rest.
#[derive(Default)]
struct Numbers {
    leaves: HashMap<(NodeId, bool), usize>,
    pods: HashMap<(Vec<NodeId>, bool), usize>,
}

impl Numbers {
    fn leaf(&mut self, leaf: NodeId, inside: bool) -> usize {
        let next = self.leaves.len();
        *self.leaves.entry((leaf, inside)).or_insert(next)
    }

    fn pod(&mut self, pod: Vec<NodeId>, inside: bool) -> usize {
        let next = self.pods.len();
        *self.pods.entry((pod, inside)).or_insert(next)
    }
}

/// Returns the spine number of each uplink; parallel links to one spine have the same number.
fn spine_numbers(links: &Uplinks) -> Vec<usize> {
    let mut seen: Vec<NodeId> = Vec::new();
    let number = |(spine, _): &(NodeId, LinkId)| {
        if seen.last() != Some(spine) {
            seen.push(*spine);
        }
        seen.len()
    };
    links.iter().map(number).collect()
}

/// Returns the plane of each switch above the leaves: the connected parts of the fabric without its leaves, numbered.
fn planes(paths: &CommodityPaths) -> PerNode<Option<usize>> {
    let fabric = paths.problem.fabric;
    let tiers = fabric.tiers();
    let mut planes = PerNode::new(fabric.node_count(), None);
    let above = |node: NodeId| tiers[node].is_some_and(|tier| tier > 0);
    for (number, (start, _)) in fabric.nodes().filter(|(node, _)| above(*node)).enumerate() {
        let mut stack = vec![start];
        while let Some(node) = stack.pop() {
            if planes[node].is_none() {
                planes[node] = Some(number);
                stack.extend(fabric.out(node).map(|link| fabric.link(link).to).filter(|next| above(*next)));
            }
        }
    }
    planes
}
