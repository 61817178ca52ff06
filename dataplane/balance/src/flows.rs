//! Which member each flow has, and when it sent its last packet.

/// Entries of one set. A flow is in one set only.
const WAYS: usize = 8;
/// Logarithm of the unit of an entry's clock: 2¹⁰ ns. The clock wraps after 73 minutes. A flow that sends its next
/// packet at just that time seems not to have been idle and keeps its member, which is harmless.
const UNIT_BITS: u32 = 10;

/// Number of flows that a table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows(usize);

impl Flows {
    /// Smallest number of flows.
    pub const LEAST: usize = 256;
    /// Largest number of flows.
    pub const MOST: usize = 1 << 20;
    /// Default number of flows.
    pub const DEFAULT: Self = Self(4096);

    /// Returns the number of flows that there is room for.
    pub const fn room(self) -> usize {
        self.0
    }

    /// Limits a number of flows to the bounds, and rounds it up to a power of two.
    pub fn of(number: usize) -> Self {
        Self(number.clamp(Self::LEAST, Self::MOST).next_power_of_two())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u32,
    last: u32,
    member: u32,
    /// Packets of the flow on this member. 0: the entry is free.
    packets: u32,
}

/// What the table knows of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The last packet of the flow is no longer ago than the gap. It went to this member.
    Recent(u32),
    /// The last packet of the flow is longer ago than the gap. It went to this member.
    Idle(u32),
    /// The flow is unknown, and an entry is free for it.
    New,
    /// The flow is unknown, and takes the entry of a flow that was still sending.
    Evicts,
}

/// The flows of one worker: sets of eight entries, 16 bytes each. It does not grow.
#[derive(Clone, Debug, Default)]
pub struct FlowTable {
    sets: Vec<[Entry; WAYS]>,
}

impl FlowTable {
    /// Creates an empty table. All memory is taken here.
    pub fn new(flows: Flows) -> Self {
        Self { sets: vec![[Entry::default(); WAYS]; flows.0 / WAYS] }
    }

    /// Number of flows that there is room for.
    pub fn room(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Returns what is known of a flow, and its entry. `None`: the table has no room at all.
    pub(crate) fn find(&mut self, flow: u64, now: u64, gap: u64) -> Option<(Known, EntryOf<'_>)> {
        let last_set = self.sets.len().checked_sub(1)?;
        let [tag, number] = [flow >> 32, flow & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or_default());
        let set = self.sets.get_mut(usize::try_from(number).unwrap_or_default() & last_set)?;
        let now = clock(now);
        let gap = u32::try_from(gap >> UNIT_BITS).unwrap_or(u32::MAX);
        let idle = |entry: &Entry| now.wrapping_sub(entry.last);
        let known = set.iter().position(|entry| entry.packets > 0 && entry.tag == tag);
        let (known, at) = match known.and_then(|at| Some((at, set.get(at)?))) {
            Some((at, entry)) if idle(entry) <= gap => (Known::Recent(entry.member), at),
            Some((at, entry)) => (Known::Idle(entry.member), at),
            None => {
                let age = |&(_, entry): &(usize, &Entry)| (entry.packets == 0, idle(entry));
                let (at, oldest) = set.iter().enumerate().max_by_key(age)?;
                (if oldest.packets == 0 || idle(oldest) > gap { Known::New } else { Known::Evicts }, at)
            }
        };
        Some((known, EntryOf { entry: set.get_mut(at)?, tag, now }))
    }
}

/// The entry of a flow.
pub(crate) struct EntryOf<'t> {
    entry: &'t mut Entry,
    tag: u32,
    now: u32,
}

impl EntryOf<'_> {
    /// Notes a packet of the flow that goes to this member.
    pub(crate) fn note(self, member: u32) {
        let is_same = self.entry.tag == self.tag && self.entry.member == member;
        let packets = if is_same { self.entry.packets.saturating_add(1) } else { 1 };
        *self.entry = Entry { tag: self.tag, last: self.now, member, packets };
    }
}

/// Returns the time of an entry's clock.
#[allow(clippy::cast_possible_truncation, reason = "the clock wraps")]
const fn clock(now: u64) -> u32 {
    (now >> UNIT_BITS) as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;

    const TICK: u64 = 1 << UNIT_BITS;
    const GAP: u64 = 250 * TICK;

    fn see(table: &mut FlowTable, flow: u64, now: u64, member: u32) -> Known {
        let (known, entry) = table.find(flow, now, GAP).unwrap();
        entry.note(member);
        known
    }

    #[test]
    fn a_flow_is_recent_up_to_the_gap_and_idle_one_tick_later() {
        let mut table = FlowTable::new(Flows::DEFAULT);
        assert_eq!(see(&mut table, 7, TICK, 3), Known::New);
        assert_eq!(see(&mut table, 7, TICK + GAP, 3), Known::Recent(3));
        assert_eq!(see(&mut table, 7, TICK + 2 * GAP + TICK, 4), Known::Idle(3));
        assert_eq!(see(&mut table, 7, TICK + 2 * GAP + TICK, 4), Known::Recent(4));
    }

    #[test]
    fn the_clock_may_wrap_between_two_packets() {
        let mut table = FlowTable::new(Flows::DEFAULT);
        let end = (1u64 << 32) * TICK;
        see(&mut table, 7, end - TICK, 3);
        assert_eq!(see(&mut table, 7, end + TICK, 3), Known::Recent(3));
        assert_eq!(see(&mut table, 7, end + 2 * TICK + GAP, 3), Known::Idle(3));
    }

    #[test]
    fn a_full_set_loses_its_oldest_flow() {
        let mut table = FlowTable::new(Flows::of(1));
        let flow = |number: u64| number << 32;
        (0..8).for_each(|number| assert_eq!(see(&mut table, flow(number), number * TICK, 0), Known::New));
        assert_eq!(see(&mut table, flow(8), 8 * TICK, 0), Known::Evicts);
        assert_eq!(see(&mut table, flow(1), 9 * TICK, 0), Known::Recent(0), "only the oldest one is gone");
        assert_eq!(see(&mut table, flow(0), 10 * TICK, 0), Known::Evicts);
        // When flows have been idle for long enough, nothing that is needed is lost.
        assert_eq!(see(&mut table, flow(9), 20 * TICK + GAP, 0), Known::New);
    }

    #[test]
    fn sizes_are_powers_of_two_within_bounds() {
        let room = |number| FlowTable::new(Flows::of(number)).room();
        assert_eq!([room(0), room(256), room(257), room(5000), room(usize::MAX)], [256, 256, 512, 8192, 1 << 20]);
        assert!(FlowTable::default().find(1, 0, GAP).is_none(), "a table that was never made");
        assert_eq!(size_of::<Entry>(), 16);
    }
}
