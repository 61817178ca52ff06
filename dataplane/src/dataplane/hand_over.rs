//! Which packets the XDP program takes over from the workers, and until when their order has to be looked after.
//!
//! ```text
//!   publish ─► what is new to the program? ─► marked rows, hand-over n ─► each queue is taken ─► rows without marks
//!                                                     └─ a queue whose worker does not finish: taken after 2 s, and counted
//! ```
//!
//! The program itself decides, packet by packet, when a queue is its own (`bpf/offload_flow.h`, `may_take`). Control takes care of
//! queues where nothing comes in, and of an end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use srv6d_fib::{
    DeviceRow, FORWARDS, Forwarding, PathKind, Prefix, PrefixTable, SidKind, TARGET_INDEX_BITS, TARGET_KERNEL,
    TARGET_NEIGHBOR, TARGET_ROUTE, TARGET_SID, TARGET_STEER,
};
use srv6d_xsk::QueueHandOver;
use srv6d_xsk::xdp_offload::{ProgramWiring, TakenOver};

use crate::hand_over::HandOvers;

/// Longest time that a queue stays its worker's because the worker does not finish.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same, where hand-overs follow on each other.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(10);
/// Longer than any run of the program. A queue that was finished all this time has no run that has seen anything else.
const QUIET: Duration = Duration::from_millis(200);

/// The hand-over that is under way.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    number: u32,
    new: New,
    /// When it began, and the first of those that followed on each other.
    since: Option<(Instant, Instant)>,
    /// What idle queues had been given when they were looked at, by device and queue.
    idle: BTreeMap<(u16, u32), (u64, Instant)>,
    /// How often a queue was taken although its worker had not finished, by device.
    hurried: BTreeMap<u16, u64>,
    told: Arc<HandOvers>,
}

/// What is new to the program, by names that stay the same.
#[derive(Debug, Default)]
struct New {
    /// Numbers of devices, and VLAN IDs, 0 for untagged ports.
    ports: BTreeSet<(u16, u16)>,
    /// Slots of the counters of next hops.
    hops: BTreeSet<u32>,
    /// Prefixes by table, and whether they are IPv4.
    prefixes: BTreeSet<(u16, bool, Prefix)>,
}

impl New {
    fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.hops.is_empty() && self.prefixes.is_empty()
    }

    fn extend(&mut self, more: Self) {
        self.ports.extend(more.ports);
        self.hops.extend(more.hops);
        self.prefixes.extend(more.prefixes);
    }
}

impl HandOver {
    /// What workers read.
    pub(super) fn told(&self) -> Arc<HandOvers> {
        Arc::clone(&self.told)
    }

    /// Says how often queues of a device were taken although their workers had not finished, if that has happened.
    pub(super) fn hurried(&self, device: usize) -> Option<String> {
        let times = self.hurried.get(&u16::try_from(device).ok()?)?;
        Some(format!(
            "taken over {times} time(s) from a worker that did not finish, whose packets may have been overtaken"
        ))
    }

    /// Begins a hand-over if the program gets more than it had, and marks in `wiring` what it takes over. `revision` is that
    /// of the tables. Workers have to be woken if this returns true.
    pub(super) fn follow(
        &mut self,
        before: Option<&(Forwarding, ProgramWiring)>,
        (rows, wiring): (&Forwarding, &mut ProgramWiring),
        revision: u64,
        now: Instant,
    ) -> bool {
        let more = new_to(before, rows, wiring);
        let begins = !more.is_empty();
        if begins {
            self.new.extend(more);
            self.number = self.number.wrapping_add(1).max(1);
            self.since = Some((now, self.since.map_or(now, |(_, first)| first)));
            self.idle.clear();
            self.told.begin(self.number, revision);
        }
        if self.since.is_some() {
            wiring.taken_over = self.marks(rows, wiring);
        }
        begins
    }

    fn marks(&self, rows: &Forwarding, wiring: &ProgramWiring) -> TakenOver {
        let ports = entries(rows, wiring).filter(|(_, entry)| self.new.ports.contains(entry));
        let hops = rows.hops.iter().filter(|(_, hop)| self.new.hops.contains(&hop.slot));
        TakenOver {
            number: self.number,
            ports: ports.map(|(index, _)| index).collect(),
            hops: hops.map(|(&index, _)| index).collect(),
            prefixes: self.new.prefixes.clone(),
        }
    }

    /// Looks whether all queues are taken; takes those that are idle, and those whose workers do not finish in time. Returns true
    /// if that was the end, so that the marks can go.
    pub(super) fn look_after<'q>(
        &mut self,
        queues: impl Iterator<Item = (u16, u32, &'q QueueHandOver)>,
        now: Instant,
    ) -> bool {
        let Some((since, first)) = self.since else { return false };
        let is_late = now - since > PATIENCE || now - first > PATIENCE_WITH_ALL;
        let mut open = 0;
        for (device, queue, hand_over) in queues.filter(|(_, _, hand_over)| hand_over.taken() != self.number) {
            if hand_over.is_finished(self.number) {
                let given = hand_over.given();
                let (was, at) = *self.idle.entry((device, queue)).or_insert((given, now));
                if was != given {
                    self.idle.insert((device, queue), (given, now));
                } else if now - at >= QUIET {
                    hand_over.take(self.number);
                    continue;
                }
            } else if is_late {
                tracing::warn!(
                    "queue {queue} of device {device}: its worker has not finished: packets may be overtaken"
                );
                *self.hurried.entry(device).or_default() += 1;
                hand_over.take(self.number);
                continue;
            }
            open += 1;
        }
        if open == 0 {
            self.told.end();
            (self.new, self.since) = (New::default(), None);
        }
        open == 0
    }
}

/// Returns what the program has not forwarded so far.
fn new_to(before: Option<&(Forwarding, ProgramWiring)>, rows: &Forwarding, wiring: &ProgramWiring) -> New {
    let Some((was, wired)) = before else {
        return New { ports: entries(rows, wiring).map(|(_, entry)| entry).collect(), ..New::default() };
    };
    // A port may have only delivered to this node so far.
    let forwarding = |rows: &Forwarding, wiring: &ProgramWiring| -> BTreeSet<(u16, u16)> {
        let forwards = |index: &u16| rows.ports.get(index).is_some_and(|row| row.flags & FORWARDS != 0);
        entries(rows, wiring).filter(|(index, _)| forwards(index)).map(|(_, entry)| entry).collect()
    };
    let delivering = |rows: &Forwarding, wiring: &ProgramWiring| -> BTreeSet<(u16, u16)> {
        let from = |index: &u16| wiring.kernel.as_ref().is_some_and(|kernel| kernel.from.contains(index));
        entries(rows, wiring).filter(|(index, _)| from(index)).map(|(_, entry)| entry).collect()
    };
    let (forwarded, delivered) = (forwarding(was, wired), delivering(was, wired));
    let (forwards, delivers) = (forwarding(rows, wiring), delivering(rows, wiring));
    New {
        ports: forwards.difference(&forwarded).chain(delivers.difference(&delivered)).copied().collect(),
        hops: new_hops((was, wired), (rows, wiring)),
        prefixes: new_prefixes(was, rows),
    }
}

/// Returns the ports that the program forwards from, each with the number of its device and its VLAN ID.
fn entries(rows: &Forwarding, wiring: &ProgramWiring) -> impl Iterator<Item = (u16, (u16, u16))> {
    let entry =
        move |(&index, &number): (&u16, &u16)| (index, (number, rows.vlans.get(&index).copied().unwrap_or_default()));
    wiring.from.iter().map(entry)
}

/// Returns the slots of next hops that the program did not send to, or to whose devices it sent less.
fn new_hops(
    (was, wired): (&Forwarding, &ProgramWiring),
    (rows, wiring): (&Forwarding, &ProgramWiring),
) -> BTreeSet<u32> {
    let sent = |rows: &Forwarding, wiring: &ProgramWiring| -> BTreeMap<u32, u32> {
        let takes = |port| wiring.to.get(&port).map_or(0, |device: &DeviceRow| device.mtu);
        rows.hops.values().map(|hop| (hop.slot, takes(hop.port))).collect()
    };
    let before = sent(was, wired);
    let grown = |&(slot, takes): &(u32, u32)| takes > before.get(&slot).copied().unwrap_or_default();
    sent(rows, wiring).into_iter().filter(grown).map(|(slot, _)| slot).collect()
}

/// Returns the prefixes whose packets the program forwards now, and left to the workers, all or some of them.
fn new_prefixes(was: &Forwarding, rows: &Forwarding) -> BTreeSet<(u16, bool, Prefix)> {
    let same =
        was.tables == rows.tables && was.sids == rows.sids && was.steers == rows.steers && was.paths == rows.paths;
    if same {
        return BTreeSet::new();
    }
    let none = PrefixTable::default();
    let mut new = BTreeSet::new();
    for (&table, now) in &rows.tables {
        let before = was.tables.get(&table).unwrap_or(&none);
        for (is_v4, (now, before)) in [false, true].into_iter().zip(now.iter().zip(before)) {
            let is_new = |prefix: Prefix, target: u32| {
                let had = around(before, prefix).map(|target| ways(was, target)).unwrap_or_default();
                ways(rows, target).fast > 0 && (had.fast == 0 || had.slow > 0)
            };
            let found = now.iter().filter(|&(&prefix, &target)| is_new(prefix, target));
            new.extend(found.map(|(&prefix, _)| (table, is_v4, prefix)));
        }
    }
    new
}

/// Returns the target of the longest prefix that contains this one.
fn around(targets: &BTreeMap<Prefix, u32>, (bits, len): Prefix) -> Option<u32> {
    let mask = |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    (0..=len).rev().find_map(|len| targets.get(&(bits & mask(len), len))).copied()
}

/// In how many ways the program and the workers forward what is addressed to a target.
#[derive(Clone, Copy, Default)]
struct Ways {
    fast: usize,
    slow: usize,
}

fn ways(rows: &Forwarding, target: u32) -> Ways {
    let index = target & ((1 << TARGET_INDEX_BITS) - 1);
    let one = |is_fast: bool| Ways { fast: is_fast.into(), slow: (!is_fast).into() };
    match target >> TARGET_INDEX_BITS {
        TARGET_SID => one(rows.sids.get(&index).is_some_and(|sid| sid.kind != SidKind::Slow)),
        TARGET_STEER => {
            let of_one = |at: u32| rows.paths.get(&at).is_some_and(|path| is_fast(rows, at, path.kind));
            let members: Vec<u32> = match rows.steers.get(&index) {
                Some(group) if group.count == 1 => vec![group.at],
                Some(group) => {
                    let places = group.at..group.at.saturating_add(group.count);
                    rows.steer_members.range(places).map(|(_, &path)| path).collect()
                }
                None => Vec::new(),
            };
            let fast = members.iter().filter(|&&path| of_one(path)).count();
            Ways { fast, slow: members.len() - fast }
        }
        // Next hops are looked at one by one.
        TARGET_ROUTE | TARGET_NEIGHBOR | TARGET_KERNEL => one(true),
        _ => one(false),
    }
}

fn is_fast(rows: &Forwarding, path: u32, kind: PathKind) -> bool {
    match kind {
        PathKind::WithoutSrh => true,
        PathKind::WithSrh => rows.srhs.contains_key(&path),
        PathKind::Slow | PathKind::ByFlow => false,
    }
}
