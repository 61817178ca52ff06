//! Decides when a node sends heartbeats, and makes them.

use crate::message::{Entry, Heartbeat, Role};

const MILLISECOND: u64 = 1_000_000;

/// Settings of a node that sends heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// BGP identifier of this node.
    pub node: u32,
    /// Role of this node.
    pub role: Role,
    /// Longest time between two heartbeats, in milliseconds. It is not 0.
    pub period: u16,
    /// Shortest time between two heartbeats, in nanoseconds.
    pub min_gap: u64,
}

/// The entry of one port, with what decides whether the entry is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The entry of the port.
    pub entry: Entry,
    /// Quality of the port by its free capacity, 0 to 7.
    pub available: u8,
}

impl Said {
    /// Returns the values whose change makes a heartbeat due at once: the neighbour, the bands, the state and the capacity.
    const fn news(&self) -> (u32, u8, u8, bool, bool, u32) {
        let Entry { neighbor, band, is_up, is_valid, capacity, .. } = self.entry;
        (neighbor, band, self.available, is_up, is_valid, capacity)
    }
}

/// Decides when heartbeats are sent.
#[derive(Clone, Debug)]
pub struct Sender {
    sending: Sending,
    boot: u16,
    sequence: u32,
    sent: Option<u64>,
    said: Vec<Said>,
}

impl Sender {
    /// Creates the sender of a node that has just started. `boot` is another number after each start, and `sequence` is
    /// larger than the number of any earlier heartbeat.
    pub const fn new(sending: Sending, boot: u16, sequence: u32) -> Self {
        Self { sending, boot, sequence, sent: None, said: Vec::new() }
    }

    /// Changes the settings. Sequence numbers go on.
    pub const fn change(&mut self, sending: Sending) {
        self.sending = sending;
    }

    /// Returns the heartbeat that is to be sent at `now` (nanoseconds of a clock that is never set), if one is due: a
    /// period is over, or something has changed and the last heartbeat is at least the shortest gap ago.
    pub fn look(&mut self, now: u64, said: &[Said]) -> Option<Heartbeat> {
        // If the clock has gone back, the time begins anew.
        let since = self.sent.filter(|sent| *sent <= now).map(|sent| now - sent);
        let is_periodic = since.is_none_or(|since| since >= u64::from(self.sending.period) * MILLISECOND);
        let is_news = !self.said.iter().map(Said::news).eq(said.iter().map(Said::news));
        let is_change = is_news && since.is_none_or(|since| since >= self.sending.min_gap);
        if !is_periodic && !is_change {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        (self.sent, self.said) = (Some(now), said.to_vec());
        Some(Heartbeat {
            is_periodic,
            is_change,
            is_draining: false,
            role: self.sending.role,
            node: self.sending.node,
            sequence: self.sequence,
            clock: now,
            period: self.sending.period,
            boot: self.boot,
            entries: said.iter().map(|said| said.entry).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND;

    fn sender() -> Sender {
        Sender::new(Sending { node: 1, role: Role::Helper, period: 20, min_gap: MS }, 7, u32::MAX)
    }

    fn said(load: u16, available: u8) -> [Said; 1] {
        let entry =
            Entry { neighbor: 2, band: 7, is_up: true, is_valid: true, load, queue: 0, ifindex: 3, capacity: 100 };
        [Said { entry, available }]
    }

    #[test]
    fn without_news_one_heartbeat_is_sent_in_each_period() {
        let mut sender = sender();
        let sent: Vec<u16> = (0..100).filter(|ms| sender.look(u64::from(*ms) * MS, &said(*ms, 7)).is_some()).collect();
        assert_eq!(sent, [0, 20, 40, 60, 80], "the load alone is no news");
    }

    #[test]
    fn news_is_sent_at_once_but_not_closer_than_the_gap() {
        let mut sender = sender();
        let first = sender.look(0, &said(0, 7));
        assert_eq!(
            first.map(|sent| (sent.sequence, sent.boot, sent.is_periodic)),
            Some((0, 7, true)),
            "it has wrapped"
        );
        assert_eq!(sender.look(MS - 1, &said(2000, 6)), None, "too close");
        let second = sender.look(MS, &said(2000, 6));
        assert_eq!(second.map(|sent| (sent.sequence, sent.is_periodic, sent.is_change)), Some((1, false, true)));
        assert_eq!(sender.look(20 * MS, &said(2000, 6)), None, "the period begins with the last heartbeat");
        assert!(sender.look(21 * MS, &said(2000, 6)).is_some_and(|sent| !sent.is_change));
        assert!(
            sender.look(22 * MS, &[]).is_some_and(|sent| sent.is_change && sent.entries.is_empty()),
            "a port is gone"
        );
    }

    #[test]
    fn a_clock_that_jumps_delays_nothing() {
        let mut sender = sender();
        assert!(sender.look(u64::MAX, &said(0, 7)).is_some());
        assert!(sender.look(5, &said(0, 7)).is_some(), "the clock has gone back");
        assert_eq!(sender.look(6, &said(0, 7)), None);
    }
}
