//! When probes are sent, what their answers and their silence mean, and which paths may be used.
//!
//! ```text
//!             an answer                  `dead_after` probes lost in a row
//! Unheard ─────────────────► Good ─────────────────────────────────────────► Dead
//!    └──────────────────────────────────── the same ─────────────────────────►│
//!                              ▲   answers in a row, for `hold` and longer    │
//!                              └──────────────────────────────────────────────┘
//! ```
//!
//! A probe is *lost* if it has no answer after `timeout` while a probe of another loop, sent later, has one. Otherwise its
//! silence may be this node's own, and it is *unjudged*. Probes that wait while this process was late are unjudged, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::reject::Reject;
use crate::round_trips::RoundTrips;

/// Number of probes of a loop that are remembered. It is larger than the number of those that may wait.
const REMEMBERED: usize = 64;
/// Number of the last judged probes that the present loss is counted from.
const RECENT: u32 = 100;

/// Number of a loop, which its probes have.
pub type LaneId = u16;

/// When probes are sent and judged. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between two probes of a loop.
    pub interval: u64,
    /// Time after which a probe without an answer is judged. It is not shorter than the interval, so that every other loop has
    /// sent a later probe by then.
    pub timeout: u64,
    /// Number of probes lost in a row after which a loop is dead.
    pub dead_after: u32,
    /// Time for which a dead loop has to answer before it is good again.
    pub hold: u64,
}

/// What is known of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No probe has come back yet.
    #[default]
    Unheard,
    /// Probes come back.
    Good,
    /// Probes got lost one after the other.
    Dead,
}

impl State {
    /// Returns the name that is shown to people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unheard => "unheard",
            Self::Good => "good",
            Self::Dead => "dead",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waiting,
    Answered,
    Lost,
    Unjudged,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u32,
    at: u64,
    wall: u64,
    fate: Fate,
}

/// One loop, and what became of its probes: `sent` = `received` + `lost` + `unjudged` + those that wait.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Present state.
    pub state: State,
    /// Time since which it is in this state.
    pub since: u64,
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back in time, or while nothing could be judged.
    pub received: u64,
    /// Probes lost.
    pub lost: u64,
    /// Probes that came back after they had been judged as lost.
    pub overdue: u64,
    /// Probes without an answer that prove nothing.
    pub unjudged: u64,
    /// Probes that came back with the mark of congestion (CE).
    pub ce: u64,
    /// Round-trip times.
    pub round_trips: RoundTrips,
    next: u32,
    remembered: VecDeque<Sent>,
    /// Number, and time of sending, of the newest probe that came back.
    newest: Option<(u32, u64)>,
    lost_in_a_row: u32,
    good_in_a_row: u32,
    good_since: u64,
    /// Fates of the last probes, the newest in the lowest bit; a 1 is a lost one.
    recent: u128,
    judged: u32,
}

impl Lane {
    /// Returns the share of the last 100 judged probes that got lost, in percent. `None`: none has been judged yet.
    pub fn loss_percent(&self) -> Option<u32> {
        (self.judged > 0).then(|| self.recent.count_ones() * 100 / self.judged)
    }

    /// Returns the number of probes that wait for their answer.
    pub fn waiting(&self) -> usize {
        self.remembered.iter().filter(|probe| probe.fate == Fate::Waiting).count()
    }

    fn note(&mut self, is_lost: bool) {
        let mask = (1 << RECENT) - 1;
        self.recent = ((self.recent << 1) | u128::from(is_lost)) & mask;
        self.judged = (self.judged + 1).min(RECENT);
    }

    fn become_(&mut self, state: State, now: u64) {
        (self.state, self.since) = (state, now);
    }

    fn send(&mut self, now: u64, wall: u64) -> u32 {
        if self.remembered.len() == REMEMBERED
            && self.remembered.pop_front().is_some_and(|oldest| oldest.fate == Fate::Waiting)
        {
            self.unjudged += 1;
        }
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        self.sent += 1;
        self.remembered.push_back(Sent { sequence, at: now, wall, fate: Fate::Waiting });
        sequence
    }

    fn answered(&mut self, sequence: u32, ce: bool, (now, wall): (u64, u64), settings: Settings) -> Result<(), Reject> {
        let known = self.remembered.iter_mut().find(|probe| probe.sequence == sequence);
        let probe = known.ok_or(Reject::Sequence)?;
        match std::mem::replace(&mut probe.fate, Fate::Answered) {
            Fate::Answered => return Err(Reject::Again),
            Fate::Lost => {
                self.overdue += 1;
                return Ok(());
            }
            Fate::Unjudged => self.unjudged -= 1,
            Fate::Waiting => {}
        }
        let (at, sent_wall) = (probe.at, probe.wall);
        let longest = now.saturating_sub(at);
        // The clock on the wall may be set meanwhile. The kernel knows by it when the answer arrived.
        let trip = wall.checked_sub(sent_wall).filter(|trip| *trip <= longest).unwrap_or(longest);
        self.round_trips.add(trip);
        self.received += 1;
        self.ce += u64::from(ce);
        self.note(false);
        if self.newest.is_none_or(|(_, newest)| at >= newest) {
            self.newest = Some((sequence, at));
        }
        self.lost_in_a_row = 0;
        self.good_in_a_row = self.good_in_a_row.saturating_add(1);
        if self.good_in_a_row == 1 {
            self.good_since = at;
        }
        // A probe that still waits may be lost, so what was sent before it is all that is proven.
        let begin = self.good_since;
        let waiting = self.remembered.iter().find(|probe| probe.fate == Fate::Waiting && probe.at >= begin);
        let end = waiting.map_or(at, |probe| probe.at.min(at));
        let is_proven = self.good_in_a_row >= settings.dead_after && end.saturating_sub(begin) >= settings.hold;
        match self.state {
            State::Unheard => self.become_(State::Good, now),
            State::Dead if is_proven => self.become_(State::Good, now),
            State::Good | State::Dead => {}
        }
        Ok(())
    }

    /// Judges the probes that have waited too long. `others` is when the newest answered probe of another loop was sent.
    fn judge(&mut self, now: u64, others: Option<u64>, settings: Settings) {
        let newest = self.newest.map(|(_, at)| at);
        let is_due =
            |probe: &&mut Sent| probe.fate == Fate::Waiting && now.saturating_sub(probe.at) >= settings.timeout;
        let (mut lost, mut in_a_row, mut good_in_a_row) = (0, 0, self.good_in_a_row);
        for probe in self.remembered.iter_mut().filter(is_due) {
            if others.is_some_and(|others| others > probe.at) {
                probe.fate = Fate::Lost;
                lost += 1;
                in_a_row += u32::from(newest.is_none_or(|newest| newest < probe.at));
                // With a long timeout, later probes may have come back before.
                if probe.at >= self.good_since {
                    good_in_a_row = 0;
                }
            } else {
                probe.fate = Fate::Unjudged;
                self.unjudged += 1;
            }
        }
        self.lost += lost;
        (0..lost).for_each(|_| self.note(true));
        self.good_in_a_row = good_in_a_row;
        self.lost_in_a_row = self.lost_in_a_row.saturating_add(in_a_row);
        if self.lost_in_a_row >= settings.dead_after && self.state != State::Dead {
            self.become_(State::Dead, now);
        }
    }

    /// Takes the meaning from all probes that wait.
    fn forgive(&mut self) {
        for probe in self.remembered.iter_mut().filter(|probe| probe.fate == Fate::Waiting) {
            probe.fate = Fate::Unjudged;
            self.unjudged += 1;
        }
    }

    /// Returns when the oldest waiting probe is judged.
    fn due(&self, settings: Settings) -> Option<u64> {
        let oldest = self.remembered.iter().find(|probe| probe.fate == Fate::Waiting)?;
        Some(oldest.at.saturating_add(settings.timeout))
    }
}

/// All loops of a node.
#[derive(Clone, Debug)]
pub struct Watch {
    settings: Settings,
    lanes: BTreeMap<LaneId, Lane>,
    last: LaneId,
    next_send: u64,
    /// When [`tick`](Self::tick) should have been called.
    wanted: Option<u64>,
    late: u64,
}

impl Watch {
    /// Creates a watch without loops.
    pub fn new(settings: Settings) -> Self {
        Self { settings, lanes: BTreeMap::new(), last: 0, next_send: 0, wanted: None, late: 0 }
    }

    /// Changes the settings and the loops. Loops that stay keep what is known of them.
    pub fn change(&mut self, settings: Settings, lanes: &BTreeSet<LaneId>, now: u64) {
        self.settings = settings;
        self.lanes.retain(|id, _| lanes.contains(id));
        for id in lanes {
            self.lanes.entry(*id).or_insert_with(|| Lane { since: now, ..Lane::default() });
        }
    }

    /// Returns the loop of which a probe has to be sent now, if one is due. The probes of all loops are spread over the
    /// interval; those that were missed are left out.
    pub fn due(&mut self, now: u64) -> Option<LaneId> {
        if now < self.next_send {
            return None;
        }
        let next = self.lanes.range(self.last.saturating_add(1)..).next().or_else(|| self.lanes.iter().next());
        let (&id, _) = next?;
        self.last = id;
        let gap = (self.settings.interval / self.lanes.len() as u64).max(1);
        self.next_send = if self.is_late_for(self.next_send, now) { now } else { self.next_send }.saturating_add(gap);
        Some(id)
    }

    /// Records a probe that is being sent. Returns its number. `wall` is the time by the clock on the wall.
    pub fn sent(&mut self, id: LaneId, now: u64, wall: u64) -> Option<u32> {
        Some(self.lanes.get_mut(&id)?.send(now, wall))
    }

    /// Forgets the newest probe of a loop, because it could not be sent.
    pub fn not_sent(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && lane.remembered.pop_back().is_some()
        {
            lane.sent -= 1;
        }
    }

    /// Records that a probe came back, with or without the mark of congestion.
    ///
    /// # Errors
    /// No such probe waits for an answer. Nothing has changed.
    pub fn answered(&mut self, id: LaneId, sequence: u32, ce: bool, (now, wall): (u64, u64)) -> Result<(), Reject> {
        let settings = self.settings;
        self.lanes.get_mut(&id).ok_or(Reject::Loop)?.answered(sequence, ce, (now, wall), settings)
    }

    /// Judges probes without an answer. It has to be called after all answers that have arrived were handed in, and by
    /// [`next_due`](Self::next_due).
    pub fn tick(&mut self, now: u64) {
        if self.wanted.is_some_and(|wanted| self.is_late_for(wanted, now)) {
            self.late += 1;
            self.lanes.values_mut().for_each(Lane::forgive);
        } else {
            // The two newest answered probes of different loops: each loop is judged by that of another one.
            let mut newest: Vec<(u64, LaneId)> =
                self.lanes.iter().filter_map(|(id, lane)| Some((lane.newest?.1, *id))).collect();
            newest.sort_unstable_by(|one, other| other.cmp(one));
            for (id, lane) in &mut self.lanes {
                let others = newest.iter().find(|(_, of)| of != id).map(|(at, _)| *at);
                lane.judge(now, others, self.settings);
            }
        }
        self.wanted = None;
    }

    /// Returns when something has to be done next, and remembers it. `None`: there are no loops.
    pub fn next_due(&mut self) -> Option<u64> {
        let expiries = self.lanes.values().filter_map(|lane| lane.due(self.settings));
        let sends = (!self.lanes.is_empty()).then_some(self.next_send);
        self.wanted = expiries.chain(sends).min();
        self.wanted
    }

    /// Returns for each of the paths of a prefix whether it may be used, by the loop that tells about it. A path without a loop
    /// may. If all are dead, those may that have died last, within `hold`: they are the likeliest to come back, and what
    /// ended all of them at once is not on the way of one.
    pub fn usable(&self, paths: &[Option<LaneId>]) -> Vec<bool> {
        let died = |path: &Option<LaneId>| {
            let lane = self.lanes.get(path.as_ref()?)?;
            (lane.state == State::Dead).then_some(lane.since)
        };
        let died: Vec<Option<u64>> = paths.iter().map(died).collect();
        if died.iter().any(Option::is_none) {
            return died.iter().map(Option::is_none).collect();
        }
        let last = died.iter().flatten().copied().max().unwrap_or_default();
        died.iter().map(|died| died.is_none_or(|died| died.saturating_add(self.settings.hold) >= last)).collect()
    }

    /// Returns the loops.
    pub const fn lanes(&self) -> &BTreeMap<LaneId, Lane> {
        &self.lanes
    }

    /// Returns how often this process was so late that nothing could be judged.
    pub const fn late(&self) -> u64 {
        self.late
    }

    const fn is_late_for(&self, wanted: u64, now: u64) -> bool {
        now.saturating_sub(wanted) > self.settings.interval / 2
    }
}

#[cfg(test)]
impl Lane {
    /// Returns number and time of the newest probe that came back.
    pub(crate) fn newest_for_tests(&self) -> (u32, u64) {
        self.newest.unwrap_or_default()
    }
}
