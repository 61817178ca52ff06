//! Paths from a commodity's entry to its exit: the shortest ones, or longer ones up to the permitted detour.

use std::collections::{HashMap, VecDeque};

use crate::commodity::{Commodity, Problem, Route};
use crate::constraints::PlaceError;
use crate::permits::{Permit, Permits};
use crate::table::{LinkId, NodeId, PerLink, PerNode};

/// Number of hops that stands for "no path from there".
const NOWHERE: usize = usize::MAX;

/// All paths to one exit under one permit.
pub(crate) struct PathsToExit<'p> {
    pub exit: NodeId,
    permit: &'p Permit,
    /// Number of hops to the exit, by node.
    hops: PerNode<usize>,
    /// Nodes that some entry may cross, in ascending order of distance from the exit.
    order: Vec<NodeId>,
}

/// One step along a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Onward {
    pub link: LinkId,
    pub to: NodeId,
    /// Number of extra hops that remain after the step.
    pub slack: usize,
}

/// The paths of every commodity of a problem.
pub(crate) struct CommodityPaths<'p> {
    pub problem: &'p Problem<'p>,
    pub detour: usize,
    to_exit: Vec<PathsToExit<'p>>,
    exit_of: Vec<usize>,
    out: PerNode<Vec<(LinkId, NodeId)>>,
}

impl<'p> CommodityPaths<'p> {
    pub(crate) fn new(problem: &'p Problem<'p>, permits: &'p Permits) -> Self {
        let fabric = problem.fabric;
        let mut out = PerNode::new(fabric.node_count(), Vec::new());
        let mut into = PerNode::new(fabric.node_count(), Vec::new());
        for (node, _) in fabric.nodes() {
            let judged = |link: &LinkId| problem.judged[*link];
            out[node] = fabric.out(node).filter(judged).map(|link| (link, fabric.link(link).to)).collect();
            into[node] = fabric.into(node).filter(judged).map(|link| (link, fabric.link(link).from)).collect();
        }
        let mut paths =
            Self { problem, detour: problem.constraints.detour, to_exit: Vec::new(), exit_of: Vec::new(), out };
        let mut known = HashMap::new();
        let mut entries: Vec<Vec<NodeId>> = Vec::new();
        for commodity in &problem.commodities {
            let exit = *known.entry((commodity.exit, commodity.tenant)).or_insert(paths.to_exit.len());
            if exit == paths.to_exit.len() {
                let permit = permits.of(commodity.tenant);
                let hops = hops_to(commodity.exit, permit, &into);
                paths.to_exit.push(PathsToExit { exit: commodity.exit, permit, hops, order: Vec::new() });
                entries.push(Vec::new());
            }
            if let Some(entries) = entries.get_mut(exit) {
                entries.push(commodity.entry);
            }
            paths.exit_of.push(exit);
        }
        let orders: Vec<_> =
            paths.to_exit.iter().zip(&entries).map(|(to_exit, entries)| paths.order(to_exit, entries)).collect();
        for (to_exit, order) in paths.to_exit.iter_mut().zip(orders) {
            to_exit.order = order;
        }
        paths
    }

    fn order(&self, to_exit: &PathsToExit, entries: &[NodeId]) -> Vec<NodeId> {
        let states = self.detour + 1;
        let mut seen = PerNode::new(self.out.len(), vec![false; states]);
        let mut order = Vec::new();
        let mut queue: Vec<(NodeId, usize)> = entries.iter().map(|entry| (*entry, self.detour)).collect();
        while let Some((node, slack)) = queue.pop() {
            if to_exit.hops[node] == NOWHERE {
                continue;
            }
            let first = !seen[node].contains(&true);
            match seen[node].get_mut(slack) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            if first {
                order.push(node);
            }
            queue.extend(self.onward(to_exit, node, slack).map(|step| (step.to, step.slack)));
        }
        order.sort_by_key(|node| (to_exit.hops[*node], *node));
        order
    }

    #[allow(clippy::indexing_slicing, reason = "every commodity of the problem has its paths")]
    pub(crate) fn to_exit(&self, commodity: usize) -> &PathsToExit<'p> {
        &self.to_exit[self.exit_of[commodity]]
    }

    #[allow(clippy::indexing_slicing, reason = "asked for commodities of the problem only")]
    pub(crate) fn commodity(&self, commodity: usize) -> &Commodity {
        &self.problem.commodities[commodity]
    }

    #[allow(clippy::indexing_slicing, reason = "asked for commodities of the problem only")]
    pub(crate) fn exit_of(&self, commodity: usize) -> usize {
        self.exit_of[commodity]
    }

    #[allow(clippy::indexing_slicing, reason = "asked for what `exit_of` says")]
    pub(crate) fn exit(&self, exit: usize) -> &PathsToExit<'p> {
        &self.to_exit[exit]
    }

    /// Returns the number of hops of the commodity's shortest path, or `None` if it has no path.
    pub(crate) fn hops(&self, commodity: usize) -> Option<usize> {
        let hops = self.to_exit(commodity).hops[self.commodity(commodity).entry];
        (hops != NOWHERE).then_some(hops)
    }

    /// Checks that every commodity has a path.
    pub(crate) fn check_paths(&self) -> Result<(), PlaceError> {
        let problem = self.problem;
        let lost = (0..problem.commodities.len()).find(|commodity| self.hops(*commodity).is_none());
        let Some(commodity) = lost.map(|commodity| self.commodity(commodity)) else { return Ok(()) };
        let name = |node| problem.fabric.node(node).name.clone();
        let tenant = problem.constraints.tenant_name(commodity.tenant);
        let fix = match tenant {
            Some(_) => "widen its spines or planes, repair a link, or leave out the hosts behind one of the two",
            None => "repair a link, or leave out the hosts behind one of the two",
        };
        Err(PlaceError::NoPath { from: name(commodity.entry), to: name(commodity.exit), tenant, fix })
    }

    /// Returns the possible next steps from a node with `slack` extra hops to spare. A walk of these steps ends at the
    /// exit.
    pub(crate) fn onward<'w>(
        &'w self,
        to_exit: &'w PathsToExit,
        node: NodeId,
        slack: usize,
    ) -> impl Iterator<Item = Onward> + 'w {
        let most = to_exit.hops[node].saturating_add(slack);
        let steps = if node == to_exit.exit { &[] } else { self.out[node].as_slice() };
        steps.iter().filter_map(move |(link, to)| {
            let left = to_exit.hops[*to];
            if left == NOWHERE || left >= most || !to_exit.permit.allows(*link, *to, to_exit.exit) {
                return None;
            }
            Some(Onward { link: *link, to: *to, slack: most - left - 1 })
        })
    }

    /// Returns every link that a commodity may use.
    pub(crate) fn links(&self, commodity: usize) -> Vec<LinkId> {
        let to_exit = self.to_exit(commodity);
        let mut links = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut queue = vec![(self.commodity(commodity).entry, self.detour)];
        while let Some((node, slack)) = queue.pop() {
            if seen.insert((node, slack)) {
                for step in self.onward(to_exit, node, slack) {
                    links.push(step.link);
                    queue.push((step.to, step.slack));
                }
            }
        }
        links.sort_unstable();
        links.dedup();
        links
    }
}

fn hops_to(exit: NodeId, permit: &Permit, into: &PerNode<Vec<(LinkId, NodeId)>>) -> PerNode<usize> {
    let mut hops = PerNode::new(into.len(), NOWHERE);
    hops[exit] = 0;
    let mut queue = VecDeque::from([exit]);
    while let Some(node) = queue.pop_front() {
        for (link, from) in &into[node] {
            if hops[*from] == NOWHERE && permit.allows(*link, node, exit) {
                hops[*from] = hops[node] + 1;
                queue.push_back(*from);
            }
        }
    }
    hops
}

/// Best next step from a node for one number of extra hops.
#[derive(Clone, Copy)]
struct Best {
    /// Number of the search that found it.
    search: u64,
    cost: f64,
    step: Option<Onward>,
}

/// Finds cheapest paths. A new search does not clear the results of the one before; the search number marks them as
/// outdated.
pub(crate) struct PathSearch<'m, 'p> {
    paths: &'m CommodityPaths<'p>,
    best: Vec<Best>,
    search: u64,
    /// Number of links visited so far.
    pub work: u64,
}

impl<'m, 'p> PathSearch<'m, 'p> {
    pub(crate) fn new(paths: &'m CommodityPaths<'p>) -> Self {
        let nowhere = Best { search: 0, cost: f64::INFINITY, step: None };
        Self { paths, best: vec![nowhere; paths.out.len() * (paths.detour + 1)], search: 0, work: 0 }
    }

    /// Returns the cheapest path of a commodity and its cost, or `None` if every path costs infinitely much. Costs must
    /// be above 0: then the cheapest walk visits no node twice.
    pub(crate) fn cheapest(&mut self, commodity: usize, cost: &impl Fn(LinkId) -> f64) -> Option<(f64, Route)> {
        self.search += 1;
        let (mut node, mut slack) = (self.paths.commodity(commodity).entry, self.paths.detour);
        let to_exit = self.paths.to_exit(commodity);
        let total = self.look(to_exit, node, slack, cost);
        let mut route = Route::new();
        while node != to_exit.exit && total.is_finite() {
            let step = self.best.get(self.place(node, slack)).and_then(|best| best.step)?;
            route.push(step.link);
            (node, slack) = (step.to, step.slack);
        }
        total.is_finite().then_some((total, route))
    }

    fn place(&self, node: NodeId, slack: usize) -> usize {
        use crate::table::Id;
        node.position() * (self.paths.detour + 1) + slack
    }

    /// Returns the lowest cost from a node to the exit. The recursion ends because every step comes nearer or uses up
    /// slack.
    fn look(&mut self, to_exit: &PathsToExit, node: NodeId, slack: usize, cost: &impl Fn(LinkId) -> f64) -> f64 {
        if node == to_exit.exit {
            return 0.0;
        }
        let place = self.place(node, slack);
        if let Some(known) = self.best.get(place).filter(|best| best.search == self.search) {
            return known.cost;
        }
        let mut best = Best { search: self.search, cost: f64::INFINITY, step: None };
        let paths = self.paths;
        for step in paths.onward(to_exit, node, slack) {
            self.work += 1;
            let price = cost(step.link);
            if price < best.cost {
                let total = price + self.look(to_exit, step.to, step.slack, cost);
                if total < best.cost {
                    (best.cost, best.step) = (total, Some(step));
                }
            }
        }
        if let Some(entry) = self.best.get_mut(place) {
            *entry = best;
        }
        best.cost
    }
}

/// Cheapest paths from all nodes to one exit.
pub(crate) struct Tree {
    states: usize,
    cost: Vec<f64>,
    step: Vec<Option<Onward>>,
    /// Number of links visited so far.
    pub work: u64,
}

impl Tree {
    pub(crate) fn new(paths: &CommodityPaths) -> Self {
        let states = paths.detour + 1;
        let count = paths.out.len() * states;
        Self { states, cost: vec![f64::INFINITY; count], step: vec![None; count], work: 0 }
    }

    fn place(&self, node: NodeId, slack: usize) -> usize {
        use crate::table::Id;
        node.position() * self.states + slack
    }

    #[allow(clippy::indexing_slicing, reason = "places are of nodes of the fabric")]
    pub(crate) fn grow(&mut self, paths: &CommodityPaths, to_exit: &PathsToExit, cost: &PerLink<f64>) {
        for slack in 0..self.states {
            for node in &to_exit.order {
                let mut best = (if *node == to_exit.exit { 0.0 } else { f64::INFINITY }, None);
                for step in paths.onward(to_exit, *node, slack) {
                    self.work += 1;
                    let total = cost[step.link] + self.cost[self.place(step.to, step.slack)];
                    if total < best.0 {
                        best = (total, Some(step));
                    }
                }
                let place = self.place(*node, slack);
                (self.cost[place], self.step[place]) = best;
            }
        }
    }

    #[allow(clippy::indexing_slicing, reason = "places are of nodes of the fabric")]
    pub(crate) fn cost(&self, node: NodeId) -> f64 {
        self.cost[self.place(node, self.states - 1)]
    }

    /// Sends the volumes of the entries down the tree and adds them to the loads.
    #[allow(clippy::indexing_slicing, reason = "places are of nodes of the fabric")]
    pub(crate) fn flow(&self, to_exit: &PathsToExit, entries: &[(NodeId, f64)], loads: &mut PerLink<f64>) {
        let mut waiting = vec![0.0; self.cost.len()];
        for (entry, volume) in entries {
            waiting[self.place(*entry, self.states - 1)] += volume;
        }
        for slack in (0..self.states).rev() {
            for node in to_exit.order.iter().rev() {
                let place = self.place(*node, slack);
                if let Some(step) = self.step[place].filter(|_| waiting[place] > 0.0) {
                    loads[step.link] += waiting[place];
                    waiting[self.place(step.to, step.slack)] += waiting[place];
                }
            }
        }
    }
}
