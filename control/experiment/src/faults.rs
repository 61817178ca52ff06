//! The changes that a fault makes to a link, one after the other.

use std::time::Duration;

use srv6d_emulate::{Chance, Emulation};

use crate::agenda::{PS_PER_NS, Ps};
use crate::settings::{Direction, Fault, FaultKind};

/// A change of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub at: Ps,
    /// Time at which the routing has learnt of the change. `None`: it never learns of it.
    pub learnt: Option<Ps>,
    /// Whether the link is faulty after the change.
    pub is_faulty: bool,
}

impl Fault {
    /// Returns the change with this number, from 0.
    pub(crate) fn change(&self, step: u32) -> Option<Change> {
        let is_faulty = step.is_multiple_of(2);
        let until = self.until.map_or(Ps::MAX, ps);
        let begin = match self.kind {
            FaultKind::Flap { up, down } => {
                let period = ps(up).saturating_add(ps(down));
                ps(self.at).saturating_add(period.saturating_mul(u64::from(step / 2)))
            }
            _ if step < 2 => ps(self.at),
            _ => return None,
        };
        let end = match self.kind {
            FaultKind::Flap { down, .. } => begin.saturating_add(ps(down)),
            _ => Ps::MAX,
        };
        let at = if is_faulty { begin } else { end.min(until) };
        if begin >= until || at == Ps::MAX {
            return None;
        }
        let reaction = if at == 0 { 0 } else { ps(self.reaction) };
        Some(Change { at, learnt: self.is_noticed().then_some(at.saturating_add(reaction)), is_faulty })
    }

    fn is_noticed(&self) -> bool {
        matches!(self.kind, FaultKind::Slow(_) | FaultKind::Down | FaultKind::Flap { .. })
    }

    /// Returns whether the link is down while it is faulty.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self.kind, FaultKind::Down | FaultKind::Flap { .. })
    }

    /// Returns the port of one direction while the link is faulty.
    pub(crate) fn port(&self, healthy: Emulation, direction: Direction) -> Emulation {
        if self.direction != Direction::Both && self.direction != direction {
            return healthy;
        }
        let loss = |share| Emulation { loss: Chance::of(share), ..healthy };
        match self.kind {
            FaultKind::Slow(share) => Emulation { rate: part(healthy.rate, share), ..healthy },
            FaultKind::Lossy(share) => loss(share),
            FaultKind::BlackHole => loss(1.0),
            FaultKind::Down | FaultKind::Flap { .. } => healthy,
        }
    }
}

/// Returns a share of a rate, but not 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of it"
)]
fn part(rate: u64, share: f64) -> u64 {
    ((rate as f64 * share) as u64).max(1)
}

/// Returns a time in picoseconds.
pub(crate) fn ps(time: Duration) -> Ps {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(PS_PER_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ps = 1_000_000_000;

    fn fault(kind: FaultKind, at: u64, until: Option<u64>) -> Fault {
        let ms = Duration::from_millis;
        Fault {
            kind,
            leaf: 0,
            spine: 0,
            direction: Direction::Both,
            at: ms(at),
            until: until.map(ms),
            reaction: ms(50),
        }
    }

    fn changes(fault: &Fault) -> Vec<(Ps, Option<Ps>, bool)> {
        let ms = |at: Ps| at / MS;
        let changes = (0..10).map_while(|step| fault.change(step));
        changes.map(|change| (ms(change.at), change.learnt.map(ms), change.is_faulty)).collect()
    }

    #[test]
    fn a_fault_from_the_beginning_is_known() {
        assert_eq!(changes(&fault(FaultKind::Slow(0.25), 0, None)), [(0, Some(0), true)]);
        assert_eq!(changes(&fault(FaultKind::Down, 10, Some(30))), [(10, Some(60), true), (30, Some(80), false)]);
        assert_eq!(changes(&fault(FaultKind::BlackHole, 10, Some(30))), [(10, None, true), (30, None, false)]);
    }

    #[test]
    fn a_flapping_link_is_down_and_up_in_turn() {
        let kind = FaultKind::Flap { up: Duration::from_millis(20), down: Duration::from_millis(10) };
        let expected = [
            (5, Some(55), true),
            (15, Some(65), false),
            (35, Some(85), true),
            (45, Some(95), false),
            (65, Some(115), true),
            (70, Some(120), false),
        ];
        assert_eq!(changes(&fault(kind, 5, Some(70))), expected);
        assert_eq!(changes(&fault(kind, 5, None)).len(), 10, "it does not end");
    }

    #[test]
    fn a_fault_of_one_direction_leaves_the_other_one_alone() {
        let healthy = Emulation::of_rate(1000);
        let hole = Fault { direction: Direction::Down, ..fault(FaultKind::BlackHole, 0, None) };
        let port = |direction| hole.port(healthy, direction);
        assert_eq!((port(Direction::Up), port(Direction::Down).loss), (healthy, Chance::ALWAYS));
        assert_eq!(fault(FaultKind::Slow(0.25), 0, None).port(healthy, Direction::Up).rate, 250);
    }
}
