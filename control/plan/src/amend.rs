//! Amends the plan in force when only a few routes of the kernel have changed, because a whole plan with many routes
//! takes much longer.
//!
//! ```text
//! changed routes ─► Needed: these, and whatever route their first hops or those of the file may follow
//!                     └─► plan_with, as ever ─► what it says of the changed prefixes: PlanChange ─► Plan::amend
//! ```
//!
//! A route that others depend on (a first segment or a next hop lies inside of its prefix) needs a whole plan. So
//! does every change while something is pending or refused, because it may be waiting for this route, and every change
//! with `[fpm]`, with rules that lead to more than `main`, or while probes leave paths out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use srv6d_kernel_routes::{KernelAction, KernelRoute, RouteKey, Routes};
use srv6d_srv6::desired::{
    Amendment, Desired, Mac, NeighborChange, Path, PortId, RouteAction, RouteChange, SidChange, Steer, SteerChange,
    TableId,
};

use super::diff::{Change, Diff, diff, in_table};
use super::environment::is_link_local;
use super::followed::Unfollowed;
use super::lookups::Lookups;
use super::ports::{self, Ports};
use super::probes;
use super::{Context, Plan, plan_with};
use crate::Environment;
use srv6d_config::{Config, Findings, OneHop, PathKeys, Sid, Spanned};
use srv6d_offer::Offer;

/// Largest number of routes that are planned. With more, a whole plan is as fast.
const MOST: usize = 4096;

/// The inputs of an amended plan, as for [`plan_with`].
#[derive(Clone, Copy)]
pub struct PlanInputs<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The offers of sources.
    pub offers: &'a [Offer],
    /// The current state of the kernel.
    pub environment: &'a Environment,
}

/// The changes of some prefixes of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanChange {
    keys: BTreeSet<RouteKey>,
    changes: Amendment,
    unfollowed: Vec<Unfollowed>,
}

/// Plans the changed routes of these prefixes. Returns `None` if a whole plan is needed. `next_hops` are those of the
/// tables in force.
pub fn plan_change(
    inputs: PlanInputs<'_>,
    plan: &Plan,
    keys: &BTreeSet<RouteKey>,
    next_hops: &[IpAddr],
) -> Option<PlanChange> {
    let PlanInputs { config, offers, environment } = inputs;
    let rules = ports::rules(config, environment);
    if config.kernel.is_none()
        || config.fpm.is_some()
        || !plan.amendable
        || !plan.left_out.is_empty()
        || !rules.lead_to_main_only(&environment.routes)
    {
        return None;
    }
    let keys: BTreeSet<RouteKey> = keys.iter().filter(|key| follows(config, key.table)).copied().collect();
    let holds_a_hop =
        |key: &RouteKey| next_hops.iter().any(|hop| key.prefix.contains(hop)) || plan.first_hops.are_in(key.prefix);
    let others_follow = |key: &RouteKey| leads(environment, plan, key) && holds_a_hop(key);
    let connected = Ports::resolve(config, environment, &rules, &mut Findings::new(config.source.clone())).connected;
    let overlaps =
        |key: &RouteKey| connected.iter().any(|of| of.prefix.contains(&key.prefix) || key.prefix.contains(&of.prefix));
    if keys.iter().any(|key| others_follow(key) || means_more(plan, key) || overlaps(key))
        || !stand_alone(&keys, inputs)
    {
        return None;
    }
    let routes = Arc::new(Needed::routes(inputs, &keys)?);
    let planned = plan_with(config, &Environment { routes, ..environment.clone() }, offers).ok()?;
    if !planned.amendable || planned.warnings != plan.warnings || planned.desired.ports != plan.desired.ports {
        return None;
    }
    let is_used = |key: &RouteKey| environment.routes.used_for(key).is_some();
    PlanChange::of(planned, keys, is_used)
}

/// Returns the changed neighbours of a plan whose file has not changed. Returns `None` if the change is on the port
/// of a uA that names no neighbour, because such a uA leads to whatever neighbour is there.
pub fn neighbors(config: &Config, environment: &Environment, plan: &Plan) -> Option<Vec<NeighborChange>> {
    let changes = neighbor_changes(&plan.desired.neighbors, &all_neighbors(config, environment));
    let open: BTreeSet<&String> = config.sids.iter().filter_map(|sid| open_port(sid.get_ref())).collect();
    let is_open = |change: &NeighborChange| {
        let port = config.ports.get(usize::from(change.port.0));
        port.is_some_and(|port| open.contains(port.get_ref().name.get_ref()))
    };
    if changes.iter().any(is_open) { None } else { Some(changes) }
}

/// Returns the port of a SID that names no neighbour.
fn open_port(sid: &Sid) -> Option<&String> {
    let names_none = sid.hop.via.is_none() && sid.nexthops.is_empty();
    sid.hop.port.as_ref().filter(|_| names_none).map(Spanned::get_ref)
}

/// Returns the changes that lead from the first neighbours to the second ones.
fn neighbor_changes(
    before: &BTreeMap<(PortId, IpAddr), Mac>,
    after: &BTreeMap<(PortId, IpAddr), Mac>,
) -> Vec<NeighborChange> {
    let gone = before.keys().filter(|at| !after.contains_key(at)).map(|at| (at, None));
    let other = after.iter().filter(|(at, mac)| before.get(at) != Some(mac)).map(|(at, mac)| (at, Some(*mac)));
    gone.chain(other).map(|(&(port, address), mac)| NeighborChange { port, address, mac }).collect()
}

fn all_neighbors(config: &Config, environment: &Environment) -> BTreeMap<(PortId, IpAddr), Mac> {
    let rules = ports::rules(config, environment);
    let found = &mut Findings::new(config.source.clone());
    let ports = Ports::resolve(config, environment, &rules, found);
    ports::neighbors(&Context { config, environment, rules, ports, lookups: Lookups::default() }, found)
}

/// First segments and next hops of the paths in force, and the number of paths that have each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstHopCounts(BTreeMap<IpAddr, usize>);

impl FirstHopCounts {
    pub(super) fn of(steers: &[Steer]) -> Self {
        let mut hops = Self::default();
        for steer in steers {
            hops.add(&steer.paths);
        }
        hops
    }

    fn add(&mut self, paths: &[Path]) {
        hops_of(paths).for_each(|hop| *self.0.entry(hop).or_default() += 1);
    }

    fn remove(&mut self, paths: &[Path]) {
        for hop in hops_of(paths) {
            if let Some(count) = self.0.get_mut(&hop) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&hop);
                }
            }
        }
    }

    fn are_in(&self, prefix: IpNet) -> bool {
        self.0.range(prefix.network()..=prefix.broadcast()).next().is_some()
    }
}

fn hops_of(paths: &[Path]) -> impl Iterator<Item = IpAddr> {
    let first = |path: &Path| std::iter::once(IpAddr::V6(path.segments.first()));
    paths.iter().flat_map(move |path| first(path).chain(path.via.iter().filter_map(|hop| hop.via)))
}

fn follows(config: &Config, table: TableId) -> bool {
    config.kernel.as_ref().is_some_and(|kernel| kernel.follows(table))
}

const fn is_sid(route: &KernelRoute) -> bool {
    matches!(route.action, KernelAction::Sid(_))
}

/// Returns true if other entries may depend on the route. First hops are looked up in the main table. First hops of followed
/// routes are looked up in the table of the route before. SIDs belong to the node, whatever table their routes are in.
fn leads(environment: &Environment, plan: &Plan, key: &RouteKey) -> bool {
    key.table == TableId::MAIN
        || plan.desired.steers.iter().any(|steer| steer.table == key.table)
        || environment.routes.used_for(key).is_some_and(is_sid)
        || plan.desired.sids.iter().any(|sid| key.prefix == IpNet::V6(sid.prefix))
}

/// Returns true if the prefix is known of the node otherwise, or contains something that is.
fn means_more(plan: &Plan, key: &RouteKey) -> bool {
    let desired = &plan.desired;
    desired.neighbors.keys().any(|(_, address)| key.prefix.contains(address))
        || desired.local_addresses.iter().any(|(_, address)| key.prefix.addr() == *address)
        || desired.blocks.iter().any(|block| key.prefix == IpNet::V6(block.prefix))
}

/// Returns true if no two of the followed tables have the prefix, because the claims of a port are those of all its
/// tables.
fn stand_alone(keys: &BTreeSet<RouteKey>, PlanInputs { config, environment, .. }: PlanInputs<'_>) -> bool {
    let mut prefixes = HashSet::new();
    let tables = environment.routes.tables();
    let elsewhere: Vec<TableId> = tables.into_iter().filter(|table| follows(config, *table)).collect();
    keys.iter().all(|&RouteKey { table, prefix }| {
        let mut others = elsewhere.iter().filter(|other| **other != table);
        prefixes.insert(prefix)
            && !others.any(|&other| environment.routes.used_for(&RouteKey { table: other, prefix }).is_some())
    })
}

/// The routes without which the changed ones cannot be planned.
#[derive(Default)]
struct Needed {
    keys: BTreeSet<RouteKey>,
    seen: HashSet<(TableId, IpAddr)>,
    /// Addresses that something is sent to, and the table they are looked up in.
    open: Vec<(TableId, IpAddr)>,
}

impl Needed {
    /// Collects the routes. Returns `None` if there are too many.
    fn routes(inputs: PlanInputs<'_>, changed: &BTreeSet<RouteKey>) -> Option<Routes> {
        let PlanInputs { config, offers, environment } = inputs;
        let routes = &*environment.routes;
        let aside: Vec<TableId> =
            routes.tables().into_iter().filter(|table| follows(config, *table) && *table != TableId::MAIN).collect();
        let open = written_hops(config).chain(offered_hops(offers)).map(|hop| (TableId::MAIN, hop)).collect();
        let mut needed = Self { open, ..Self::default() };
        for route in changed.iter().filter_map(|key| routes.used_for(key)) {
            needed.add(route);
        }
        while let Some((table, address)) = needed.open.pop() {
            if needed.seen.insert((table, address)) {
                routes.around(table, address).for_each(|route| needed.add(route));
                // SIDs belong to the main table, whatever table their routes are in.
                let others = aside.iter().flat_map(|table| routes.around(*table, address));
                others.filter(|route| is_sid(route)).for_each(|route| needed.add(route));
            }
            if needed.keys.len() > MOST {
                return None;
            }
        }
        Some(routes.only(&needed.keys))
    }

    fn add(&mut self, route: &KernelRoute) {
        let is_new = self.keys.insert(RouteKey { table: route.table, prefix: route.prefix });
        let KernelAction::Via(hops) = &route.action else { return };
        let first = hops.iter().filter_map(|hop| hop.encap.as_ref()?.segments.first().copied().map(IpAddr::V6));
        let via = hops.iter().filter_map(|hop| hop.via.filter(|via| !is_link_local(*via)));
        let tables = [TableId::MAIN, route.table];
        self.open.extend(first.chain(via).filter(|_| is_new).flat_map(|hop| tables.map(|table| (table, hop))));
    }
}

/// Returns the first hops of the paths and routes in the file.
fn written_hops(config: &Config) -> impl Iterator<Item = IpAddr> {
    let steers = config.steers.iter().flat_map(|steer| {
        let steer = steer.get_ref();
        std::iter::once(&steer.path).chain(steer.paths.iter().map(|path| &path.get_ref().path))
    });
    let of_path = |path: &PathKeys| {
        let first = path.segments.first().map(|segment| IpAddr::V6(*segment.get_ref()));
        let several = path.nexthops.iter().filter_map(|hop| via(&hop.get_ref().hop));
        first.into_iter().chain(via(&path.hop)).chain(several).collect::<Vec<_>>()
    };
    let of_routes = config.routes.iter().flat_map(|route| {
        let route = route.get_ref();
        via(&route.hop).into_iter().chain(route.nexthops.iter().filter_map(|hop| via(&hop.get_ref().hop)))
    });
    steers.flat_map(of_path).chain(of_routes)
}

fn via(hop: &OneHop) -> Option<IpAddr> {
    hop.via.as_ref().map(|via| *via.get_ref())
}

fn offered_hops(offers: &[Offer]) -> impl Iterator<Item = IpAddr> {
    offers.iter().flat_map(|offer| &offer.steers).flat_map(|steer| {
        let paths = steer.paths.iter().chain(&steer.last_good);
        let first = paths.filter_map(|path| path.segments.first().copied().map(IpAddr::V6));
        first.chain(steer.via)
    })
}

impl PlanChange {
    /// Takes the changes from a plan with the changed routes. Returns `None` if one of the prefixes has another
    /// meaning, too.
    fn of(planned: Plan, keys: BTreeSet<RouteKey>, is_used: impl Fn(&RouteKey) -> bool) -> Option<Self> {
        let Plan { desired, unfollowed, .. } = planned;
        let mut meanings: BTreeMap<IpNet, usize> = BTreeMap::new();
        let all = desired.routes.iter().map(|route| route.prefix);
        let all = all.chain(desired.steers.iter().map(|steer| steer.prefix));
        for prefix in all.chain(desired.sids.iter().map(|sid| sid.prefix.into())) {
            *meanings.entry(prefix).or_default() += 1;
        }
        let mut routes = by_key(desired.routes, |route| (route.table, route.prefix));
        let mut steers = by_key(desired.steers, |steer| (steer.table, steer.prefix));
        let mut sids = by_key(desired.sids, |sid| (TableId::MAIN, sid.prefix.into()));
        let mut changes = Amendment::default();
        for &key in &keys {
            let RouteKey { table, prefix } = key;
            let action = routes.remove(&(table, prefix)).map(|route| route.action);
            let stays = unfollowed.iter().any(|route| (route.table, route.prefix) == (table, prefix));
            let others = meanings.get(&prefix).copied().unwrap_or_default() > usize::from(is_used(&key));
            if others || stays && action != Some(RouteAction::Kernel) {
                return None;
            }
            let paths = steers.remove(&(table, prefix)).map(|steer| steer.paths).unwrap_or_default();
            changes.routes.push(RouteChange { table, prefix, action });
            changes.steers.push(SteerChange { table, prefix, paths });
            if let IpNet::V6(prefix) = prefix {
                changes.sids.push(SidChange { prefix, sid: sids.remove(&(TableId::MAIN, prefix.into())) });
            }
        }
        let is_changed = |route: &Unfollowed| keys.contains(&RouteKey { table: route.table, prefix: route.prefix });
        let unfollowed = unfollowed.iter().filter(|route| is_changed(route)).cloned().collect();
        Some(Self { keys, changes, unfollowed })
    }
}

fn by_key<T>(entries: Vec<T>, key: fn(&T) -> (TableId, IpNet)) -> BTreeMap<(TableId, IpNet), T> {
    entries.into_iter().map(|entry| (key(&entry), entry)).collect()
}

impl Plan {
    /// Applies changed neighbours. Returns the changes, for people and for the tables.
    pub fn resolve(&mut self, neighbors: Vec<NeighborChange>) -> (Diff, Amendment) {
        let ports = &self.desired.ports;
        let of = |neighbors: &[NeighborChange]| {
            let resolved = neighbors.iter().filter_map(|of| Some(((of.port, of.address), of.mac?))).collect();
            Desired { ports: ports.clone(), neighbors: resolved, ..Desired::default() }
        };
        let changes = Amendment { neighbors, ..Amendment::default() };
        let after = of(&changes.neighbors);
        let known = |change: &NeighborChange| NeighborChange {
            mac: self.desired.neighbors.get(&(change.port, change.address)).copied(),
            ..*change
        };
        let before = of(&changes.neighbors.iter().map(known).collect::<Vec<_>>());
        self.desired.amend(&changes);
        (diff(&before, &after), changes)
    }

    /// Leaves out these paths, and uses those again that were left out before. Returns the changes, for people and for the
    /// tables.
    pub fn use_paths(&mut self, unused: &BTreeSet<String>) -> (Diff, Amendment) {
        let mut changes = Amendment::default();
        for Steer { table, prefix, paths } in &self.desired.steers {
            let key = (*table, *prefix);
            let all = self.left_out.get(&key).unwrap_or(paths);
            let used = if let Some(used) = probes::without(all, unused) {
                self.left_out.entry(key).or_insert_with(|| paths.clone());
                Some(used)
            } else {
                self.left_out.remove(&key)
            };
            if let Some(used) = used.filter(|used| used != paths) {
                changes.steers.push(SteerChange { table: *table, prefix: *prefix, paths: used });
            }
        }
        let undo = self.desired.amend(&changes);
        let change = kind(&undo.steers, &changes.steers, |steer| (steer.table, steer.prefix, !steer.paths.is_empty()));
        let diff =
            Diff { kinds: [("steers", change)].into_iter().filter(|(_, of)| *of != Change::default()).collect() };
        (diff, changes)
    }

    /// Applies the changed prefixes. Returns the changes, for people and for the tables, whose own copy of the desired
    /// state is amended by them next.
    pub fn amend(&mut self, change: PlanChange) -> (Diff, Amendment) {
        let PlanChange { keys, mut changes, unfollowed } = change;
        let is_changed = |route: &Unfollowed| keys.contains(&RouteKey { table: route.table, prefix: route.prefix });
        // This copies the list only while an answer is made of it.
        let left = Arc::make_mut(&mut self.unfollowed);
        left.retain(|route| !is_changed(route));
        left.extend(unfollowed);
        let undo = self.desired.amend(&changes);
        for steer in &undo.steers {
            self.first_hops.remove(&steer.paths);
        }
        changes.sids.retain(|change| undo.sids.iter().any(|old| old.prefix == change.prefix));
        changes.steers.retain(|change| undo.steers.iter().any(|old| same(old, change, |c| (c.table, c.prefix))));
        changes.routes.retain(|change| undo.routes.iter().any(|old| same(old, change, |c| (c.table, c.prefix))));
        for steer in &changes.steers {
            self.first_hops.add(&steer.paths);
        }
        let kinds = [
            ("sids", kind(&undo.sids, &changes.sids, |sid| (TableId::MAIN, sid.prefix.into(), sid.sid.is_some()))),
            (
                "steers",
                kind(&undo.steers, &changes.steers, |steer| (steer.table, steer.prefix, !steer.paths.is_empty())),
            ),
            (
                "routes",
                kind(&undo.routes, &changes.routes, |route| (route.table, route.prefix, route.action.is_some())),
            ),
        ];
        let diff = Diff { kinds: kinds.into_iter().filter(|(_, change)| *change != Change::default()).collect() };
        (diff, changes)
    }
}

fn same<T, K: PartialEq>(one: &T, other: &T, key: impl Fn(&T) -> K) -> bool {
    key(one) == key(other)
}

/// Returns the difference between entries before and after. `entry` returns table and prefix of an entry, and whether
/// it exists.
fn kind<T>(before: &[T], after: &[T], entry: impl Fn(&T) -> (TableId, IpNet, bool)) -> Change {
    let was_there = |prefix: (TableId, IpNet)| {
        before.iter().map(&entry).any(|(table, inner, is_there)| is_there && (table, inner) == prefix)
    };
    let mut change = Change::default();
    for (table, prefix, is_there) in after.iter().map(&entry) {
        let name = in_table(prefix, table.0);
        match (was_there((table, prefix)), is_there) {
            (false, _) => change.added.push(name),
            (true, true) => change.changed.push(name),
            (true, false) => change.removed.push(name),
        }
    }
    for names in [&mut change.added, &mut change.removed, &mut change.changed] {
        names.sort();
    }
    change
}
