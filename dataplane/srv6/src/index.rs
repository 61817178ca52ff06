//! What control keeps beside the tables so that few changes take little time, however many prefixes there are.
//!
//! Workers read one copy of the tables while the other one, which nobody reads, is changed; then they read that one:
//!
//! ```text
//!            workers read      nobody reads                 missing in the latter
//! publish    A                 B, a copy                    nothing
//! amend 1    A                 B: change 1, put in force
//!            B                 A                            change 1
//! amend 2    B                 A: change 1, change 2, put in force
//!            A                 B                            change 2
//! ```
//!
//! [`Index::amend`] makes a change in one copy and says what the other one has to take over. Whatever it cannot make in
//! place is left to a whole build: what that changes everywhere, and what no amendment has ever room for.

mod neighbors;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::build::{Build, BuildError, Entries, Known, OWN_GROUP, Rank, buckets, indexed_blocks, key};
use crate::lpm::{Key, Meaning, Prefixes, TooMuch};
use crate::model::{
    Amendment, Desired, Hop, Path, PortId, Route, RouteAction, RouteChange, SidChange, Steer, SteerChange, TableId,
    UnknownSid,
};
use crate::straight::offload::{Offload, Scope, is_met};
use crate::straight::put;
use crate::tables::{Adjacency, Edition, MAIN, PathEntry, Tables, Target, VrfIndex};
use crate::tally::Slots;

/// Groups and next hops that may have been added, beside as many again as there were: those that nothing leads to any
/// more stay until the next whole build.
const SPARE: usize = 1024;
/// Bytes of SRHs that may have been added likewise.
const SPARE_SRH: usize = 1 << 20;
/// Paths that are led anew because the route to their first segment has changed.
const MOST_PATHS: usize = 1024;

/// A prefix: of which VRF, whether it is an IPv6 one, and its bits.
type At = (VrfIndex, bool, Key);
/// A path that the route to its first segment leads: that segment, the path, its steered prefix.
type Led = (Ipv6Addr, u32, u32);

/// Why a change is left to a whole build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// A SID, a VRF that is new, or a route onto a link: these mean more than one prefix.
    MeansMore,
    /// What is in the way in a prefix table.
    Prefixes(TooMuch),
    /// Too much that nothing leads to any more has been left over, or too many paths are led by the route.
    LeftOver,
}

impl From<TooMuch> for Whole {
    fn from(why: TooMuch) -> Self {
        Self::Prefixes(why)
    }
}

/// A change that was not made in place.
#[derive(Debug)]
pub enum NotAmended {
    /// It takes a whole build. The desired state has the change.
    Whole(Whole, Amendment),
    /// It cannot become tables. The desired state has it or not: it is to be put right with what undoes it.
    Refused(Box<BuildError>, Amendment),
}

/// What one copy of the tables has and the other one has not.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// Which tables they lead to.
    edition: Edition,
    prefixes: Vec<At>,
    adjacencies: Vec<Adjacency>,
    /// Next hops that have another MAC address, or none any more, or are needed again.
    renewed: Vec<(u32, Adjacency)>,
    groups: Vec<Vec<u32>>,
    /// Neighbours that cross-connects lead to, with their groups.
    cross_connected: Vec<((PortId, IpAddr), Option<u32>)>,
    /// Groups that have other next hops than before.
    regrouped: Vec<(u32, Vec<u32>)>,
    paths: Vec<(u32, PathEntry)>,
    steers: Vec<(u32, Vec<u32>)>,
    offload: Option<Offload>,
}

impl Edits {
    /// The extract for the offload is another one.
    pub fn changes_offload(&self) -> bool {
        self.offload.is_some()
    }
}

/// What compiling tables leaves behind.
pub struct Parts {
    vrfs: BTreeMap<TableId, VrfIndex>,
    entries: Vec<[Entries; 2]>,
    known: Known,
}

/// Where everything is in the tables, and in the desired state.
#[derive(Debug)]
pub struct Index {
    vrfs: BTreeMap<TableId, VrfIndex>,
    /// By VRF: IPv6 and IPv4.
    prefixes: Vec<[Prefixes; 2]>,
    known: Known,
    /// Prefixes of on-link routes, and the ports they lead onto.
    on_link: Vec<(TableId, IpNet, PortId)>,
    /// Ports that cross-connects lead onto.
    cross_connects: BTreeSet<PortId>,
    neighbors: BTreeSet<IpAddr>,
    /// Paths that are led by the route to their first segment: by that, with their steered prefix.
    led: BTreeSet<Led>,
    free_steers: Vec<u32>,
    free_paths: Vec<u32>,
    /// Groups, next hops and bytes of SRHs there may be.
    room: [usize; 3],
}

impl Desired {
    /// Makes room for what amendments add: an eighth more entries.
    pub fn make_room(&mut self) {
        room_for_more(&mut self.routes);
        room_for_more(&mut self.steers);
    }
}

impl Tables {
    /// Makes room for what amendments add: an eighth more entries.
    pub fn make_room(&mut self) {
        room_for_more(&mut self.adjacencies);
        room_for_more(&mut self.groups);
        room_for_more(&mut self.paths);
        room_for_more(&mut self.steers);
        self.straight.make_room();
    }

    /// Compiles `desired` as [`build`](Self::build) does, and keeps what an [`Index`] is made of.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_with_parts(desired: &Desired, slots: &mut Slots) -> Result<(Self, Parts), BuildError> {
        Self::build_with(desired, slots, |build| Parts {
            vrfs: std::mem::take(&mut build.vrfs),
            entries: std::mem::take(&mut build.entries),
            known: std::mem::take(&mut build.known),
        })
    }

    /// Takes over what the other copy has. `index` may know of later changes already.
    ///
    /// # Errors
    /// [`TooMuch`]: these tables are of no use any more.
    pub fn take_over(&mut self, edits: &Edits, index: &Index) -> Result<(), TooMuch> {
        for &(vrf, is_v6, key) in &edits.prefixes {
            self.amend_prefix(index, (vrf, is_v6, key))?;
        }
        self.adjacencies.extend(edits.adjacencies.iter().cloned());
        for (at, adjacency) in &edits.renewed {
            put(&mut self.adjacencies, *at as usize, adjacency.clone(), adjacency.clone());
        }
        for &(neighbor, group) in &edits.cross_connected {
            self.cross_connect(neighbor, group);
        }
        self.groups.extend(edits.groups.iter().cloned());
        for (at, group) in &edits.regrouped {
            put(&mut self.groups, *at as usize, group.clone(), Vec::new());
        }
        for (at, path) in &edits.paths {
            put(&mut self.paths, *at as usize, path.clone(), path.clone());
        }
        for (at, steer) in &edits.steers {
            put(&mut self.steers, *at as usize, steer.clone(), Vec::new());
        }
        self.follow(edits);
        if let Some(offload) = &edits.offload {
            self.offload = offload.clone();
        }
        Ok(())
    }

    /// Reads what [`take_over`](Self::take_over) will change of the prefix tables, so that it is in a cache by then.
    pub fn touch(&self, edits: &Edits) {
        for &(vrf, is_v6, key) in &edits.prefixes {
            std::hint::black_box(self.lookup(vrf, is_v6, key.bits));
        }
    }

    fn amend_prefix(&mut self, index: &Index, (vrf, is_v6, key): At) -> Result<(), TooMuch> {
        let tables = self.vrfs.get_mut(usize::from(vrf)).zip(index.prefixes.get(usize::from(vrf)));
        let Some((tables, [v6, v4])) = tables else { return Ok(()) };
        if is_v6 { tables.v6.amend(v6, key) } else { tables.v4.amend(v4, key) }
    }

    fn follow(&mut self, edits: &Edits) {
        edits.paths.iter().for_each(|(_, path)| self.sid_space.add(path));
        let mut straight = std::mem::take(&mut self.straight);
        let renewed = edits.renewed.iter().map(|(at, _)| *at);
        let regrouped = edits.regrouped.iter().map(|(at, _)| *at);
        let (paths, steers) = (edits.paths.iter().map(|(at, _)| *at), edits.steers.iter().map(|(at, _)| *at));
        straight.follow(self, renewed, regrouped, paths, steers);
        self.straight = straight;
        let prefixes: Vec<_> = edits.prefixes.iter().map(|&(_, is_v6, key)| (is_v6, key)).collect();
        let before = std::mem::replace(&mut self.edition, edits.edition);
        self.changes.add(before, edits.edition, &prefixes);
    }
}

impl Index {
    /// For `tables`, which `desired` was compiled to. `None`: a route or a steered prefix stands there twice, so that
    /// taking one away would bring another one back.
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
            room: [
                tables.groups.len() * 2 + SPARE,
                tables.adjacencies.len() * 2 + SPARE,
                tables.straight.srh_bytes() * 2 + SPARE_SRH,
            ],
        })
    }

    /// Makes a change in `tables`, which nobody reads and which miss nothing, and in `desired`. Nothing to take over:
    /// nothing has changed.
    ///
    /// # Errors
    /// [`NotAmended`]: neither this index nor `tables` are of any use any more.
    pub fn amend(
        &mut self,
        desired: &mut Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        amendment: &Amendment,
    ) -> Result<(Edits, Amendment), NotAmended> {
        if let Err(why) = self.is_local(desired, amendment) {
            return Err(NotAmended::Whole(why, desired.amend(amendment)));
        }
        let before = (tables.adjacencies.len(), tables.groups.len());
        let targets = self.build(desired, slots, tables, |build| {
            amendment.routes.iter().map(|change| build.changed_target(change)).collect::<Result<Vec<_>, _>>()
        });
        let targets = targets.map_err(|why| NotAmended::Refused(Box::new(why), Amendment::default()))?;
        let mut changed = Changed::default();
        for (change, target) in amendment.routes.iter().zip(targets) {
            self.change_route(desired, change, target, &mut changed);
        }
        for change in &amendment.steers {
            self.change_steer(desired, tables, change, &mut changed);
        }
        let renewed = self.change_neighbors(desired, slots, tables, &amendment.neighbors, &mut changed);
        changed.undo.routes.reverse();
        changed.undo.steers.reverse();
        changed.undo.neighbors.reverse();
        let Changed { mut edits, undo, paths, regrouped } = changed;
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(why) => return Err(NotAmended::Refused(Box::new(why), undo)),
        };
        let group = |&(_, at): &(At, u32)| Some((at, tables.groups.get(at as usize)?.clone()));
        edits.regrouped = regrouped.iter().filter_map(group).collect();
        match self.compile(desired, slots, tables, (&mut edits, &paths)) {
            Ok(()) => {}
            Err(Stop::Whole(why)) => return Err(NotAmended::Whole(why, undo)),
            Err(Stop::Refused(why)) => return Err(NotAmended::Refused(Box::new(why), undo)),
        }
        self.follow_woken(tables, &mut edits);
        if let Err(why) = Self::follow_groups(tables, &renewed, &mut edits) {
            return Err(NotAmended::Whole(why, undo));
        }
        edits.adjacencies = tables.adjacencies.get(before.0..).unwrap_or_default().to_vec();
        edits.groups = tables.groups.get(before.1..).unwrap_or_default().to_vec();
        edits.edition = Edition::next();
        tables.follow(&edits);
        self.offload(desired, tables, &mut edits, (&regrouped, !undo.steers.is_empty()));
        if self.is_cluttered(tables) {
            return Err(NotAmended::Whole(Whole::LeftOver, undo));
        }
        Ok((edits, undo))
    }

    /// Goes on building these tables.
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

    /// None of these means more than its own prefix: a route onto a link makes routes of its neighbours, and a longer
    /// prefix can take these away.
    fn is_local(&self, desired: &Desired, amendment: &Amendment) -> Result<(), Whole> {
        let is_new = |change: &SidChange| {
            let known = desired.sids.iter().find(|sid| sid.prefix == change.prefix);
            known != change.sid.as_ref()
        };
        if amendment.sids.iter().any(is_new) {
            return Err(Whole::MeansMore);
        }
        let prefixes = amendment.routes.iter().map(|change| (change.table, change.prefix));
        let prefixes = prefixes.chain(amendment.steers.iter().map(|change| (change.table, change.prefix)));
        for (table, prefix) in prefixes {
            let known = self.vrfs.contains_key(&table);
            let is_inside = |(of, link, _): &(TableId, IpNet, PortId)| {
                *of == table && link.contains(&prefix) && link.prefix_len() < prefix.prefix_len()
            };
            if !known || self.has_neighbor(prefix) && self.on_link.iter().any(is_inside) {
                return Err(Whole::MeansMore);
            }
        }
        let onto_link = |change: &RouteChange| {
            let was = self.of_rank(change.table, change.prefix, Rank::Route);
            let was = was.and_then(|was| desired.routes.get(was.at as usize));
            was.is_some_and(|was| is_on_link(&was.action)) || change.action.as_ref().is_some_and(is_on_link)
        };
        if amendment.routes.iter().any(onto_link) { Err(Whole::MeansMore) } else { Ok(()) }
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

    /// A steered prefix in the desired state.
    pub fn steer<'d>(&self, desired: &'d Desired, table: TableId, prefix: IpNet) -> Option<&'d Steer> {
        desired.steers.get(self.of_rank(table, prefix, Rank::Steer)?.at as usize)
    }

    /// What a prefix means in each table that knows it: the meaning that counts.
    pub fn meanings(&self, prefix: IpNet) -> impl Iterator<Item = (TableId, Rank)> {
        self.vrfs.keys().filter_map(move |&table| {
            let meaning = self.family(table, prefix)?.get(key(prefix))?;
            Some((table, *Rank::ALL.get(usize::from(meaning.rank))?))
        })
    }

    /// Whether packets to exactly this prefix, which come in by a port with these tables, are for the workers.
    /// `None`: it means nothing there.
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
        change: &RouteChange,
        target: Option<Target>,
        changed: &mut Changed,
    ) {
        let RouteChange { table, prefix, ref action } = *change;
        let was = self.of_rank(table, prefix, Rank::Route);
        let at = was.map(|was| was.at as usize);
        let old = at.and_then(|at| desired.routes.get(at)).map(|route| route.action.clone());
        if old == *action {
            return;
        }
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
                return; // to the prefix table it is what it was
            }
        }
        changed.edits.prefixes.extend(at);
    }

    fn change_steer(
        &mut self,
        desired: &mut Desired,
        tables: &mut Tables,
        change: &SteerChange,
        changed: &mut Changed,
    ) {
        let SteerChange { table, prefix, ref paths } = *change;
        let was = self.of_rank(table, prefix, Rank::Steer);
        let at = was.map(|was| was.at as usize);
        let old = at.and_then(|at| desired.steers.get(at)).map(|steer| steer.paths.clone()).unwrap_or_default();
        if old == *paths {
            return;
        }
        if let Some(Target::Steer(number)) = was.map(|was| Target::decode(was.value)) {
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
            let number = self.take_up(tables, paths, changed);
            self.set(table, prefix, Rank::Steer, Some((Target::Steer(number), at)));
        }
        changed.undo.steers.push(SteerChange { table, prefix, paths: old });
        changed.edits.prefixes.extend(self.at(table, prefix));
    }

    /// The last entry of a list has taken the place of one that is gone.
    fn moved(&mut self, table: TableId, prefix: IpNet, rank: Rank, at: usize) {
        if let Some(meaning) = self.of_rank(table, prefix, rank) {
            self.set(table, prefix, rank, Some((Target::decode(meaning.value), at)));
        }
    }

    fn at(&self, table: TableId, prefix: IpNet) -> Option<At> {
        self.vrfs.get(&table).map(|&vrf| (vrf, matches!(prefix, IpNet::V6(_)), key(prefix)))
    }

    /// Places for a steered prefix and its paths, which are compiled once the prefix tables are there.
    fn take_up(&mut self, tables: &mut Tables, paths: &[Path], changed: &mut Changed) -> u32 {
        let number = place(&mut self.free_steers, &mut tables.steers, Vec::new());
        let mut weights = Vec::with_capacity(paths.len());
        for path in paths {
            let at = place(&mut self.free_paths, &mut tables.paths, PathEntry::UNUSED);
            weights.push((at, u32::from(path.weight)));
            changed.paths.push((at, path.clone()));
            if path.via.is_empty() {
                self.led.insert((path.segments.first(), at, number));
            }
        }
        let steer = buckets(&weights);
        put(&mut tables.steers, number as usize, steer.clone(), Vec::new());
        changed.edits.steers.push((number, steer));
        number
    }

    fn let_go(&mut self, tables: &Tables, number: u32, paths: &[Path], changed: &mut Changed) {
        let mut places = tables.steers.get(number as usize).cloned().unwrap_or_default();
        places.dedup();
        for (&at, path) in places.iter().zip(paths) {
            self.led.remove(&(path.segments.first(), at, number));
            changed.paths.retain(|(known, _)| *known != at);
        }
        self.free_paths.extend(places);
        self.free_steers.push(number);
    }

    /// Brings `tables` in line with what has changed.
    fn compile(
        &mut self,
        desired: &Desired,
        slots: &mut Slots,
        tables: &mut Tables,
        (edits, paths): (&mut Edits, &[(u32, Path)]),
    ) -> Result<(), Stop> {
        for &prefix in &edits.prefixes {
            tables.amend_prefix(self, prefix).map_err(|why| Stop::Whole(why.into()))?;
        }
        let regrouped: Vec<Option<u32>> = edits.regrouped.iter().map(|(at, _)| Some(*at)).collect();
        let mut led = self.led_by(tables, &edits.prefixes, &regrouped)?;
        led.retain(|(_, led, _)| paths.iter().all(|(at, _)| at != led));
        self.build(desired, slots, tables, |build| {
            for (at, path) in paths {
                edits.paths.push((*at, build.path(path).map_err(Stop::Refused)?));
            }
            for (first, at, steer) in led {
                // Whatever is wrong with it, a whole build can say by name.
                let way = build.way_to(first, "").map_err(|_| Stop::Whole(Whole::MeansMore))?;
                let of_steer = build.tables.steers.get(steer as usize).cloned();
                let path = build.tables.paths.get(at as usize);
                let path = path.filter(|path| path.group != way || regrouped.contains(&way));
                if let (Some(path), Some(of_steer)) = (path, of_steer) {
                    edits.paths.push((at, PathEntry { group: way, ..path.clone() }));
                    edits.steers.push((steer, of_steer));
                }
            }
            Ok(())
        })?;
        for (at, path) in &edits.paths {
            put(&mut tables.paths, *at as usize, path.clone(), PathEntry::UNUSED);
        }
        Ok(())
    }

    /// Paths whose first segment lies in one of these prefixes, and those that leave by one of these groups.
    fn led_by(&self, tables: &Tables, prefixes: &[At], groups: &[Option<u32>]) -> Result<Vec<Led>, Stop> {
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
        if led.len() > MOST_PATHS { Err(Stop::Whole(Whole::LeftOver)) } else { Ok(led.into_iter().copied().collect()) }
    }

    /// The extract for the offload, where it can be another one.
    fn offload(
        &self,
        desired: &Desired,
        tables: &mut Tables,
        edits: &mut Edits,
        (regrouped, are_steered): (&[(At, u32)], bool),
    ) {
        if desired.offload.is_empty() {
            return;
        }
        let is_in = |&changed: &At| {
            self.prefixes.get(usize::from(changed.0)).is_some_and(|prefixes| is_met(desired, prefixes, changed))
        };
        let mut changed = edits.prefixes.iter().chain(regrouped.iter().map(|(at, _)| at));
        let are_renewed = !edits.renewed.is_empty() || !edits.regrouped.is_empty();
        if are_steered || are_renewed || !edits.paths.is_empty() || changed.any(is_in) {
            let met = Scope::of(desired, &self.vrfs).among_ordered(&self.prefixes);
            tables.offload = Offload::of(tables, &met, &desired.offload);
            edits.offload = Some(tables.offload.clone());
        }
    }

    fn is_cluttered(&self, tables: &Tables) -> bool {
        let [groups, adjacencies, srhs] = self.room;
        tables.groups.len() > groups || tables.adjacencies.len() > adjacencies || tables.straight.srh_bytes() > srhs
    }
}

/// What an amendment has done so far.
#[derive(Default)]
struct Changed {
    edits: Edits,
    undo: Amendment,
    /// Paths to be compiled, with their places.
    paths: Vec<(u32, Path)>,
    /// Prefixes whose own group has, or may have, other next hops.
    regrouped: Vec<(At, u32)>,
}

enum Stop {
    Whole(Whole),
    Refused(BuildError),
}

fn is_on_link(action: &RouteAction) -> bool {
    port_of_link(action).is_some()
}

/// The port whose neighbours a route leads to.
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

/// Paths without next hops of their own.
fn led(desired: &Desired) -> BTreeSet<Led> {
    let paths = (0..).zip(&desired.steers).flat_map(|(at, steer)| steer.paths.iter().map(move |path| (at, path)));
    let led = (0..).zip(paths).filter(|(_, (_, path))| path.via.is_empty());
    led.map(|(at, (steer, path))| (path.segments.first(), at, steer)).collect()
}

/// A place that is free, or a new one at the end.
fn place<T>(free: &mut Vec<u32>, entries: &mut Vec<T>, entry: T) -> u32 {
    free.pop().unwrap_or_else(|| {
        entries.push(entry);
        u32::try_from(entries.len() - 1).unwrap_or(u32::MAX)
    })
}

/// Room for an eighth more: a list that is full is copied as a whole for one more entry, which takes milliseconds where
/// there are a million.
pub(crate) fn room_for_more<T>(entries: &mut Vec<T>) {
    entries.reserve_exact(entries.len() / 8 + 64);
}

/// Puts an entry in place of the one at a position; `None`: takes that away, and the last one comes there. The position.
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
