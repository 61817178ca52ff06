//! Changes of compiled tables in place. The index knows where each entry is, so that a few changes take little time,
//! however many prefixes there are.
//!
//! There are two copies of the tables. [`Index::apply`] makes a change in one copy and returns an [`OpLog`], with
//! which [`Tables::replay`] makes the same change in the other copy. Only `apply` decides whether a change can be
//! made in place. If it cannot, it returns [`NeedsRebuild`].

mod neighbors;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_fib::{COUNTED_HOPS, GROUPS, MEMBERS, PATTERNS, Spread};

use crate::build::{Build, BuildError, Entries, Known, OWN_GROUP, Rank, indexed_blocks, key};
use crate::desired::{
    Amendment, Desired, Hop, Path, PortId, Route, RouteAction, RouteChange, SidChange, Steer, SteerChange, TableId,
    UnknownSid,
};
use crate::fast::put;
use crate::history::Before;
use crate::lpm::{Key, Meaning, Prefixes, TooMuch};
use crate::offload::{Offload, Scope, is_selected};
use crate::tables::{Adjacency, Epoch, MAIN, PathEntry, Tables, Target, VrfIndex};
use crate::tally::Slots;

/// Number of groups, and of next hops, that amendments may add on top of as many as the build had. Unused entries stay
/// until the next whole build.
const SPARE: usize = 1024;
/// Largest number of next hops with amendments. Each needs a counter of the XDP program, which also has to have
/// counters for unused next hops that keep theirs, and for those that a whole build takes before it releases others.
const MOST_HOPS: usize = COUNTED_HOPS as usize - 2 * Slots::KEPT;
/// Number of members of groups that amendments may add on top of as many as the build had.
const SPARE_MEMBERS: usize = 1 << 14;
/// Number of patterns of groups that amendments may add on top of as many as the build had.
const SPARE_PATTERNS: usize = PATTERNS as usize / 2;
/// Number of bytes of SRHs that amendments may add on top of as many as the build had.
const SPARE_SRH: usize = 1 << 20;
/// Largest number of paths to be updated when the route to their first segment changes.
const MOST_PATHS: usize = 1024;

/// A prefix: its VRF, whether it is an IPv6 prefix, and its key.
type At = (VrfIndex, bool, Key);
/// A path that takes the route to its first segment: the segment, the index of the path, and the index of its steered
/// prefix.
type Led = (Ipv6Addr, u32, u32);

/// The reason why a change needs a whole build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildReason {
    /// There was only one copy of the tables so far.
    First,
    /// The change affects more than one prefix: it concerns a SID, a new VRF, or an on-link route.
    AffectsOthers,
    /// The prefix tables cannot apply the change.
    Prefixes(TooMuch),
    /// There is no room for more groups, next hops or SRHs, or too many paths follow the route.
    NoRoom,
    /// The change cannot become tables. A whole build returns the reason.
    Refused,
}

impl From<TooMuch> for RebuildReason {
    fn from(why: TooMuch) -> Self {
        Self::Prefixes(why)
    }
}

impl From<BuildError> for RebuildReason {
    fn from(_: BuildError) -> Self {
        Self::Refused
    }
}

/// A change that the tables cannot apply in place. The desired state already has the change.
#[derive(Debug)]
pub struct NeedsRebuild {
    /// The reason why a whole build is needed.
    pub reason: RebuildReason,
    /// The amendment that undoes the change of the desired state.
    pub undo: Amendment,
}

impl NeedsRebuild {
    /// Changes the desired state only. It is for the first amendment, when there are no two copies of the tables yet.
    pub fn first(desired: &mut Desired, amendment: &Amendment) -> Self {
        Self { reason: RebuildReason::First, undo: desired.amend(amendment) }
    }
}

/// The changes that one copy of the tables has, and that the other copy has to replay.
#[derive(Clone, Debug, Default)]
pub struct OpLog {
    /// The epoch of the tables after these changes.
    epoch: Epoch,
    prefixes: Vec<At>,
    adjacencies: Vec<Adjacency>,
    /// Next hops whose MAC address has changed or is gone, or that are needed again.
    renewed: Vec<(u32, Adjacency)>,
    groups: Vec<Spread>,
    /// Neighbours that cross-connects lead to, with their groups.
    cross_connected: Vec<((PortId, IpAddr), Option<u32>)>,
    /// Groups whose next hops have changed.
    regrouped: Vec<(u32, Spread)>,
    paths: Vec<(u32, PathEntry)>,
    steers: Vec<(u32, Spread)>,
    offload: Option<Offload>,
}

impl OpLog {
    /// Returns true if the extract for the offload has changed.
    pub fn changes_offload(&self) -> bool {
        self.offload.is_some()
    }
}

/// Numbers of what tables hold, or may hold.
#[derive(Clone, Copy, Debug)]
struct Room {
    groups: usize,
    hops: usize,
    /// Members of groups, and paths of steered prefixes.
    members: usize,
    patterns: usize,
    srh_bytes: usize,
}

impl Room {
    /// Returns what the tables hold.
    fn used_by(tables: &Tables) -> Self {
        Self {
            groups: tables.groups.len(),
            hops: tables.adjacencies.len(),
            members: tables.groups.list_len() + tables.steers.list_len(),
            patterns: tables.groups.pattern_count() + tables.steers.pattern_count(),
            srh_bytes: tables.fast.srh_bytes(),
        }
    }

    /// Returns what these tables may hold until the next whole build. The maps of the XDP program set bounds if
    /// `is_offloaded`.
    fn after_build(tables: &Tables, is_offloaded: bool) -> Self {
        let room = |built: usize, spare: usize, fits: usize| {
            if is_offloaded { room_in_maps(built, spare, fits) } else { built * 2 + spare }
        };
        let built = Self::used_by(tables);
        Self {
            groups: room(built.groups, SPARE, GROUPS as usize),
            hops: room(built.hops, SPARE, MOST_HOPS),
            members: room(built.members, SPARE_MEMBERS, MEMBERS as usize),
            patterns: room(built.patterns, SPARE_PATTERNS, PATTERNS as usize),
            srh_bytes: built.srh_bytes * 2 + SPARE_SRH,
        }
    }

    /// Returns whether there is room for this.
    const fn has(&self, used: &Self) -> bool {
        used.groups <= self.groups
            && used.hops <= self.hops
            && used.members <= self.members
            && used.patterns <= self.patterns
            && used.srh_bytes <= self.srh_bytes
    }
}

/// The parts of a build that an [`Index`] is made of.
pub struct Parts {
    vrfs: BTreeMap<TableId, VrfIndex>,
    entries: Vec<[Entries; 2]>,
    known: Known,
}

/// The index of everything in the tables and in the desired state.
#[derive(Debug)]
pub struct Index {
    vrfs: BTreeMap<TableId, VrfIndex>,
    /// Prefixes of each VRF, IPv6 and IPv4.
    prefixes: Vec<[Prefixes; 2]>,
    known: Known,
    /// Prefixes of on-link routes, and the ports they lead onto.
    on_link: Vec<(TableId, IpNet, PortId)>,
    /// Ports that cross-connects lead onto.
    cross_connects: BTreeSet<PortId>,
    neighbors: BTreeSet<IpAddr>,
    /// Paths that follow the route to their first segment, in the order of that segment.
    led: BTreeSet<Led>,
    free_steers: Vec<u32>,
    free_paths: Vec<u32>,
    /// What the tables may hold until the next whole build.
    room: Room,
}

impl Desired {
    /// Reserves memory for what amendments add: an eighth more entries.
    pub fn make_room(&mut self) {
        room_for_more(&mut self.routes);
        room_for_more(&mut self.steers);
    }
}

impl Tables {
    /// Reserves memory for what amendments add: an eighth more entries.
    pub fn make_room(&mut self) {
        room_for_more(&mut self.adjacencies);
        self.groups.make_room(more_than(self.groups.len()));
        room_for_more(&mut self.paths);
        self.steers.make_room(more_than(self.steers.len()));
        self.fast.make_room();
    }

    /// Compiles `desired` as [`build`](Self::build) does, and keeps the parts for an [`Index`]. Flows stay on the next
    /// hops and paths that they have in the tables `before`, if these next hops and paths still exist.
    ///
    /// # Errors
    /// Returns [`BuildError`] if the desired state is not consistent.
    pub fn build_with_parts<'d>(
        desired: &'d Desired,
        slots: &'d mut Slots,
        before: Option<Before<'d>>,
    ) -> Result<(Self, Parts), BuildError> {
        Self::build_with(desired, slots, before, |build| Parts {
            vrfs: std::mem::take(&mut build.vrfs),
            entries: std::mem::take(&mut build.entries),
            known: std::mem::take(&mut build.known),
        })
    }

    /// Applies changes that were made in the other copy. `index` may contain later changes already.
    ///
    /// # Errors
    /// Returns [`TooMuch`] if the tables can no longer be used.
    pub fn replay(&mut self, op_log: &OpLog, index: &Index) -> Result<(), TooMuch> {
        for &(vrf, is_v6, key) in &op_log.prefixes {
            self.amend_prefix(index, (vrf, is_v6, key))?;
        }
        self.adjacencies.extend(op_log.adjacencies.iter().cloned());
        for (at, adjacency) in &op_log.renewed {
            put(&mut self.adjacencies, *at as usize, adjacency.clone(), adjacency.clone());
        }
        for &(neighbor, group) in &op_log.cross_connected {
            self.cross_connect(neighbor, group);
        }
        for group in &op_log.groups {
            self.groups.push(group);
        }
        for (at, group) in &op_log.regrouped {
            self.groups.set(*at, group);
        }
        for (at, path) in &op_log.paths {
            put(&mut self.paths, *at as usize, path.clone(), path.clone());
        }
        for (at, steer) in &op_log.steers {
            self.steers.set(*at, steer);
        }
        self.update_fast(op_log);
        if let Some(offload) = &op_log.offload {
            self.offload = offload.clone();
        }
        Ok(())
    }

    fn amend_prefix(&mut self, index: &Index, (vrf, is_v6, key): At) -> Result<(), TooMuch> {
        let tables = self.vrfs.get_mut(usize::from(vrf)).zip(index.prefixes.get(usize::from(vrf)));
        let Some((tables, [v6, v4])) = tables else { return Ok(()) };
        if is_v6 { tables.v6.amend(v6, key) } else { tables.v4.amend(v4, key) }
    }

    fn update_fast(&mut self, op_log: &OpLog) {
        op_log.paths.iter().for_each(|(_, path)| self.sid_space.add(path));
        let mut fast = std::mem::take(&mut self.fast);
        let renewed = op_log.renewed.iter().map(|(at, _)| *at);
        let regrouped = op_log.regrouped.iter().map(|(at, _)| *at);
        let (paths, steers) = (op_log.paths.iter().map(|(at, _)| *at), op_log.steers.iter().map(|(at, _)| *at));
        fast.update(self, renewed, regrouped, paths, steers);
        self.fast = fast;
        self.epoch = op_log.epoch;
    }
}

impl Index {
    /// Creates the index of `tables`, which were compiled from `desired`. Returns `None` if a route or a steered
    /// prefix occurs twice there, because removing one of the two would bring the other one into force.
    pub fn new(desired: &Desired, tables: &Tables, parts: Parts) -> Option<Self> {
        let Parts { vrfs, entries, known } = parts;
        let count = |rank: Rank| {
            let all = entries.iter().flatten().flatten();
            all.filter(|(_, meaning)| meaning.rank == rank as u8).count()
        };
        let counts = [count(Rank::Route), count(Rank::Steer)];
        let indexed = indexed_blocks(desired);
        let blocks = |vrf: usize| if vrf == usize::from(MAIN) { indexed.as_slice() } else { &[] };
        let families =
            |(vrf, [v6, v4]): (usize, [Entries; 2])| [Prefixes::new(v6, blocks(vrf)), Prefixes::new(v4, &[])];
        let prefixes: Vec<[Prefixes; 2]> = entries.into_iter().enumerate().map(families).collect();
        let kept = |rank: Rank| -> usize { prefixes.iter().flatten().map(|kept| kept.count(rank as u8)).sum() };
        if counts != [kept(Rank::Route), kept(Rank::Steer)] {
            return None;
        }
        Some(Self {
            vrfs,
            prefixes,
            known,
            on_link: desired.routes.iter().filter_map(on_link).collect(),
            cross_connects: neighbors::cross_connects(desired),
            neighbors: desired.neighbors.keys().map(|&(_, address)| address).collect(),
            led: led(desired),
            free_steers: Vec::new(),
            free_paths: Vec::new(),
            room: Room::after_build(tables, !desired.offload.is_empty()),
        })
    }

    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Makes a change in `desired` and in `tables`, which nobody reads and which are up to date. Returns the changes
    /// that the other copy has to replay, and the amendment that undoes the change of `desired`. Both are empty if
    /// nothing has changed.
    ///
    /// # Errors
    /// Returns [`NeedsRebuild`] if neither this index nor `tables` are of any use any more.
    pub fn apply(
        &mut self,
        desired: &mut Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        amendment: &Amendment,
    ) -> Result<(OpLog, Amendment), NeedsRebuild> {
        let mut changed = Changed::default();
        let applied = self.apply_all(desired, slots, tables, amendment, &mut changed);
        let Changed { op_log, mut undo, .. } = changed;
        undo.routes.reverse();
        undo.steers.reverse();
        undo.neighbors.reverse();
        match applied {
            Ok(()) => Ok((op_log, undo)),
            Err(reason) => {
                // The change may have stopped half-way.
                desired.amend(&undo);
                Err(NeedsRebuild { reason, undo: desired.amend(amendment) })
            }
        }
    }

    fn apply_all(
        &mut self,
        desired: &mut Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        amendment: &Amendment,
        changed: &mut Changed,
    ) -> Result<(), RebuildReason> {
        let is_known = |change: &SidChange| {
            let known = desired.sids.iter().find(|sid| sid.prefix == change.prefix);
            known == change.sid.as_ref()
        };
        if !amendment.sids.iter().all(is_known) {
            return Err(RebuildReason::AffectsOthers);
        }
        let before = (tables.adjacencies.len(), tables.groups.len());
        for change in &amendment.routes {
            self.change_route(desired, slots, tables, change, changed)?;
        }
        for change in &amendment.steers {
            self.change_steer(desired, tables, change, changed)?;
        }
        let renewed = self.change_neighbors(desired, slots, tables, &amendment.neighbors, changed)?;
        let Changed { op_log, undo, paths, regrouped } = changed;
        let group = |&(_, at): &(At, u32)| Some((at, tables.groups.spread(at)?));
        op_log.regrouped = regrouped.iter().filter_map(group).collect();
        self.compile(desired, slots, tables, (op_log, paths))?;
        self.follow_woken(tables, op_log);
        Self::follow_groups(tables, &renewed, op_log)?;
        op_log.adjacencies = tables.adjacencies.get(before.0..).unwrap_or_default().to_vec();
        op_log.groups = (before.1..tables.groups.len())
            .filter_map(|group| tables.groups.spread(u32::try_from(group).ok()?))
            .collect();
        op_log.epoch = Epoch::next();
        tables.update_fast(op_log);
        self.offload(desired, tables, op_log, (regrouped, !undo.steers.is_empty()));
        if self.room.has(&Room::used_by(tables)) { Ok(()) } else { Err(RebuildReason::NoRoom) }
    }

    /// Continues the build of these tables, so that `work` can add to them.
    fn build<T>(
        &mut self,
        desired: &Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        work: impl FnOnce(&mut Build<'_>) -> T,
    ) -> T {
        let known = std::mem::take(&mut self.known);
        let mut build = Build::resume(desired, slots, std::mem::take(tables), known);
        let done = work(&mut build);
        *tables = build.tables;
        self.known = build.known;
        done
    }

    /// Fails if a change of this prefix affects more than the prefix itself: its VRF is new, or it lies in an on-link
    /// route and can take neighbours away from it.
    fn check_alone(&self, table: TableId, prefix: IpNet) -> Result<(), RebuildReason> {
        let is_inside = |(of, link, _): &(TableId, IpNet, PortId)| {
            *of == table && link.contains(&prefix) && link.prefix_len() < prefix.prefix_len()
        };
        let affects_others =
            !self.vrfs.contains_key(&table) || self.has_neighbor(prefix) && self.on_link.iter().any(is_inside);
        if affects_others { Err(RebuildReason::AffectsOthers) } else { Ok(()) }
    }

    fn has_neighbor(&self, prefix: IpNet) -> bool {
        self.neighbors.range(prefix.network()..=prefix.broadcast()).next().is_some()
    }

    fn family(&self, table: TableId, prefix: IpNet) -> Option<&Prefixes> {
        let [v6, v4] = self.prefixes.get(usize::from(*self.vrfs.get(&table)?))?;
        Some(if matches!(prefix, IpNet::V6(_)) { v6 } else { v4 })
    }

    fn of_rank(&self, table: TableId, prefix: IpNet, rank: Rank) -> Option<Meaning> {
        self.family(table, prefix)?.of_rank(key(prefix), rank as u8)
    }

    /// Returns a steered prefix of the desired state.
    pub fn steer<'d>(&self, desired: &'d Desired, table: TableId, prefix: IpNet) -> Option<&'d Steer> {
        desired.steers.get(self.of_rank(table, prefix, Rank::Steer)?.at as usize)
    }

    /// Returns the kind of the entry in force for a prefix, in each table that has the prefix.
    pub fn meanings(&self, prefix: IpNet) -> impl Iterator<Item = (TableId, Rank)> {
        self.vrfs.keys().filter_map(move |&table| {
            let meaning = self.family(table, prefix)?.get(key(prefix))?;
            Some((table, *Rank::ALL.get(usize::from(meaning.rank))?))
        })
    }

    /// Returns true if the workers receive packets to exactly this prefix from ports that look up in `tables`. Returns
    /// `None` if none of these tables has the prefix.
    pub fn claims(&self, tables: &BTreeSet<TableId>, prefix: IpNet) -> Option<bool> {
        let meanings = tables.iter().filter_map(|&table| self.family(table, prefix)?.get(key(prefix)));
        let counts =
            meanings.filter(|meaning| meaning.rank < Rank::Neighbor as u8).min_by_key(|meaning| meaning.rank)?;
        let is_kernels =
            matches!(Target::decode(counts.value), Target::Local | Target::Kernel | Target::Unknown(UnknownSid::Punt));
        Some(!is_kernels)
    }

    fn set(&mut self, table: TableId, prefix: IpNet, rank: Rank, meaning: Option<(Target, usize)>) {
        let Some(&vrf) = self.vrfs.get(&table) else { return };
        let Some([v6, v4]) = self.prefixes.get_mut(usize::from(vrf)) else { return };
        let family = if matches!(prefix, IpNet::V6(_)) { v6 } else { v4 };
        let meaning = meaning.map(|(target, at)| Meaning {
            value: target.encode(),
            rank: rank as u8,
            at: u32::try_from(at).unwrap_or(u32::MAX),
        });
        family.set(key(prefix), rank as u8, meaning);
    }

    fn change_route(
        &mut self,
        desired: &mut Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        change: &RouteChange,
        changed: &mut Changed,
    ) -> Result<(), RebuildReason> {
        let RouteChange { table, prefix, ref action } = *change;
        self.check_alone(table, prefix)?;
        let was = self.of_rank(table, prefix, Rank::Route);
        let at = was.map(|was| was.at as usize);
        let old = at.and_then(|at| desired.routes.get(at)).map(|route| route.action.clone());
        if old.iter().chain(action).any(is_on_link) {
            return Err(RebuildReason::AffectsOthers); // an on-link route adds routes to the neighbours on the link
        }
        if old == *action {
            return Ok(());
        }
        let before = was.and_then(|was| match Target::decode(was.value) {
            Target::Route(group) => Some(group),
            _ => None,
        });
        let target = self.build(desired, slots, tables, |build| build.changed_target(change, before))?;
        let route = action.clone().map(|action| Route { table, prefix, action });
        let at = replace(&mut desired.routes, at, route);
        self.set(table, prefix, Rank::Route, target.map(|target| (target, at)));
        if let (None, Some(moved)) = (action, desired.routes.get(at)) {
            self.moved(moved.table, moved.prefix, Rank::Route, at);
        }
        changed.undo.routes.push(RouteChange { table, prefix, action: old });
        let at = self.at(table, prefix);
        if let (Some(Target::Route(group)), Some(at)) = (target, at)
            && prefix.prefix_len() < OWN_GROUP
        {
            changed.regrouped.push((at, group));
            if was.map(|was| Target::decode(was.value)) == target {
                return Ok(()); // the prefix table does not change
            }
        }
        changed.op_log.prefixes.extend(at);
        Ok(())
    }

    fn change_steer(
        &mut self,
        desired: &mut Desired,
        tables: &mut Tables,
        change: &SteerChange,
        changed: &mut Changed,
    ) -> Result<(), RebuildReason> {
        let SteerChange { table, prefix, ref paths } = *change;
        self.check_alone(table, prefix)?;
        let was = self.of_rank(table, prefix, Rank::Steer);
        let at = was.map(|was| was.at as usize);
        let old = at.and_then(|at| desired.steers.get(at)).map(|steer| steer.paths.clone()).unwrap_or_default();
        if old == *paths {
            return Ok(());
        }
        let mut before = None;
        if let Some(Target::Steer(number)) = was.map(|was| Target::decode(was.value)) {
            before = tables.steers.spread(number);
            self.let_go(tables, number, &old, changed);
        }
        let steer = Some(paths).filter(|paths| !paths.is_empty());
        let steer = steer.map(|paths| Steer { table, prefix, paths: paths.clone() });
        let is_gone = steer.is_none();
        let at = replace(&mut desired.steers, at, steer);
        if is_gone {
            self.set(table, prefix, Rank::Steer, None);
            if let Some(moved) = desired.steers.get(at) {
                self.moved(moved.table, moved.prefix, Rank::Steer, at);
            }
        } else {
            let policy = desired.balance.policy_of(table, prefix);
            let before = before.as_ref().map(|before| (before, old.as_slice()));
            let number = self.take_up(tables, (paths, policy), before, changed);
            self.set(table, prefix, Rank::Steer, Some((Target::Steer(number), at)));
        }
        changed.undo.steers.push(SteerChange { table, prefix, paths: old });
        changed.op_log.prefixes.extend(self.at(table, prefix));
        Ok(())
    }

    /// Records that the last entry of a list has moved to the place of a removed one.
    fn moved(&mut self, table: TableId, prefix: IpNet, rank: Rank, at: usize) {
        if let Some(meaning) = self.of_rank(table, prefix, rank) {
            self.set(table, prefix, rank, Some((Target::decode(meaning.value), at)));
        }
    }

    fn at(&self, table: TableId, prefix: IpNet) -> Option<At> {
        self.vrfs.get(&table).map(|&vrf| (vrf, matches!(prefix, IpNet::V6(_)), key(prefix)))
    }

    /// Reserves places for a steered prefix and its paths, which are compiled when the prefix tables are complete.
    ///
    /// `before` are the paths of the prefix until now. Paths of the same name keep their slots.
    fn take_up(
        &mut self,
        tables: &mut Tables,
        (paths, policy): (&[Path], u16),
        before: Option<(&Spread, &[Path])>,
        changed: &mut Changed,
    ) -> u32 {
        let number = self.free_steers.pop().unwrap_or_else(|| tables.steers.push(&Spread::default()));
        let mut weights = Vec::with_capacity(paths.len());
        for path in paths {
            let at = place(&mut self.free_paths, &mut tables.paths, PathEntry::UNUSED);
            weights.push((at, u32::from(path.weight)));
            changed.paths.push((at, path.clone()));
            if path.via.is_empty() {
                self.led.insert((path.segments.first(), at, number));
            }
        }
        let before = before.map(|(before, old)| {
            before.renumbered(|was| {
                let (_, path) = before.members().iter().zip(old).find(|(member, _)| **member == was)?;
                let now = paths.iter().position(|now| now.name == path.name)?;
                weights.get(now).map(|(at, _)| *at)
            })
        });
        let steer = self.known.spreader.spread(&weights, before.as_ref()).chosen_by(policy);
        tables.steers.set(number, &steer);
        changed.op_log.steers.push((number, steer));
        number
    }

    fn let_go(&mut self, tables: &Tables, number: u32, paths: &[Path], changed: &mut Changed) {
        let places = tables.steers.get(number).unwrap_or_default().to_vec();
        for (&at, path) in places.iter().zip(paths) {
            self.led.remove(&(path.segments.first(), at, number));
            changed.paths.retain(|(known, _)| *known != at);
        }
        self.free_paths.extend(places);
        self.free_steers.push(number);
    }

    /// Updates `tables` with the changes.
    fn compile(
        &mut self,
        desired: &Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        (op_log, paths): (&mut OpLog, &[(u32, Path)]),
    ) -> Result<(), RebuildReason> {
        for &prefix in &op_log.prefixes {
            tables.amend_prefix(self, prefix)?;
        }
        let regrouped: Vec<Option<u32>> = op_log.regrouped.iter().map(|(at, _)| Some(*at)).collect();
        let mut led = self.led_by(tables, &op_log.prefixes, &regrouped)?;
        led.retain(|(_, led, _)| paths.iter().all(|(at, _)| at != led));
        self.build(desired, slots, tables, |build| {
            for (at, path) in paths {
                op_log.paths.push((*at, build.path(path)?));
            }
            for (first, at, steer) in led {
                // A whole build can name the path that is wrong.
                let way = build.way_to(first, "").map_err(|_| RebuildReason::AffectsOthers)?;
                let of_steer = build.tables.steers.spread(steer);
                let path = build.tables.paths.get(at as usize);
                let path = path.filter(|path| path.group != way || regrouped.contains(&way));
                if let (Some(path), Some(of_steer)) = (path, of_steer) {
                    op_log.paths.push((at, PathEntry { group: way, ..path.clone() }));
                    op_log.steers.push((steer, of_steer));
                }
            }
            Ok::<_, RebuildReason>(())
        })?;
        for (at, path) in &op_log.paths {
            put(&mut tables.paths, *at as usize, path.clone(), PathEntry::UNUSED);
        }
        Ok(())
    }

    /// Returns the paths whose first segment lies in one of `prefixes`, and those that use one of `groups`.
    fn led_by(&self, tables: &Tables, prefixes: &[At], groups: &[Option<u32>]) -> Result<Vec<Led>, RebuildReason> {
        let mut led = BTreeSet::new();
        if !groups.is_empty() {
            let leaves =
                |&&(_, at, _): &&Led| tables.paths.get(at as usize).is_some_and(|path| groups.contains(&path.group));
            led.extend(self.led.iter().filter(leaves).take(MOST_PATHS + 1));
        }
        for (_, _, key) in prefixes.iter().filter(|(vrf, is_v6, _)| *vrf == MAIN && *is_v6) {
            let last = key.bits | u128::MAX.checked_shr(key.len.into()).unwrap_or(0);
            let first = (Ipv6Addr::from_bits(key.bits), 0, 0);
            led.extend(self.led.range(first..=(Ipv6Addr::from_bits(last), u32::MAX, u32::MAX)).take(MOST_PATHS + 1));
        }
        if led.len() > MOST_PATHS { Err(RebuildReason::NoRoom) } else { Ok(led.into_iter().copied().collect()) }
    }

    /// Updates the extract for the offload, if it can have changed.
    fn offload(
        &self,
        desired: &Desired,
        tables: &mut Tables,
        op_log: &mut OpLog,
        (regrouped, are_steered): (&[(At, u32)], bool),
    ) {
        if desired.offload.is_empty() {
            return;
        }
        let is_in = |&changed: &At| {
            let whole = &tables.offload.whole;
            let is_selected = |prefixes| is_selected((desired, &self.vrfs), whole, prefixes, changed);
            self.prefixes.get(usize::from(changed.0)).is_some_and(is_selected)
        };
        let mut changed = op_log.prefixes.iter().chain(regrouped.iter().map(|(at, _)| at));
        let are_renewed = !op_log.renewed.is_empty() || !op_log.regrouped.is_empty();
        if are_steered || are_renewed || !op_log.paths.is_empty() || changed.any(is_in) {
            let selected = Scope::of(desired, &self.vrfs).among_ordered(&self.prefixes);
            tables.offload = Offload::of(tables, &selected, desired);
            op_log.offload = Some(tables.offload.clone());
        }
    }
}

/// The effects of an amendment so far.
#[derive(Default)]
struct Changed {
    op_log: OpLog,
    undo: Amendment,
    /// Paths to be compiled, with their places in the tables.
    paths: Vec<(u32, Path)>,
    /// Prefixes with a group of their own whose next hops may have changed.
    regrouped: Vec<(At, u32)>,
}

fn is_on_link(action: &RouteAction) -> bool {
    port_of_link(action).is_some()
}

/// Returns the port whose neighbours an on-link route leads to.
fn port_of_link(action: &RouteAction) -> Option<PortId> {
    match action {
        RouteAction::Via(hops) => match hops.as_slice() {
            [Hop { via: None, port, .. }, ..] => Some(*port),
            _ => None,
        },
        _ => None,
    }
}

fn on_link(route: &Route) -> Option<(TableId, IpNet, PortId)> {
    Some((route.table, route.prefix, port_of_link(&route.action)?))
}

/// Returns the paths without next hops of their own.
fn led(desired: &Desired) -> BTreeSet<Led> {
    let paths = (0..).zip(&desired.steers).flat_map(|(at, steer)| steer.paths.iter().map(move |path| (at, path)));
    let led = (0..).zip(paths).filter(|(_, (_, path))| path.via.is_empty());
    led.map(|(at, (steer, path))| (path.segments.first(), at, steer)).collect()
}

/// Returns the largest number of entries until the next whole build, which drops unused ones. It is twice the number
/// that the build had, and `spare` more, but no more than the maps of the XDP program hold (`fits`). So every new entry
/// has a place in the maps, however often the tables change. If the build has nearly filled the maps, they set no
/// limit: otherwise every few changes would need a whole build.
fn room_in_maps(built: usize, spare: usize, fits: usize) -> usize {
    let room = built * 2 + spare;
    if built + spare / 2 <= fits { room.min(fits) } else { room }
}

/// Returns the index of a free place, or adds the entry at the end and returns its index.
fn place<T>(free: &mut Vec<u32>, entries: &mut Vec<T>, entry: T) -> u32 {
    free.pop().unwrap_or_else(|| {
        entries.push(entry);
        u32::try_from(entries.len() - 1).unwrap_or(u32::MAX)
    })
}

/// Reserves memory for an eighth more entries. A full list would be copied as a whole for one more entry, which takes
/// milliseconds with a million entries.
pub(crate) fn room_for_more<T>(entries: &mut Vec<T>) {
    entries.reserve_exact(more_than(entries.len()));
}

/// Returns an eighth of this number of entries, and 64 more.
pub(crate) fn more_than(entries: usize) -> usize {
    entries / 8 + 64
}

/// Replaces the entry at a position. `None` as entry removes the old one, and the last entry moves to its place.
/// Returns the position.
fn replace<T>(entries: &mut Vec<T>, at: Option<usize>, entry: Option<T>) -> usize {
    let position = at.unwrap_or(entries.len());
    match (entries.get_mut(position), entry) {
        (Some(place), Some(entry)) => *place = entry,
        (None, Some(entry)) => entries.push(entry),
        (Some(_), None) => drop(entries.swap_remove(position)),
        (None, None) => {}
    }
    position
}
