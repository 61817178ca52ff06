//! A ping: probes at an interval, their answers, and statistics of the round-trip times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::answer::{Answer, Kind, read};
use crate::network::{Network, NetworkError};
use crate::probe::Probe;

/// Longest round-trip time that is told apart from longer ones, in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;
/// Decimal digits of a round-trip time that are kept.
const DIGITS: u8 = 3;
/// Largest number of probes that are waited for at a time.
const MAX_WAITING: usize = 10_000;

/// Settings of a ping.
#[derive(Clone, Copy, Debug)]
pub struct Ping {
    /// Number of probes. `None`: until somebody asks to stop.
    pub count: Option<u32>,
    /// Time between two probes.
    pub interval: Duration,
    /// Longest time to wait for an answer.
    pub timeout: Duration,
    /// Hop limit of the probes.
    pub hop_limit: u8,
}

/// An answer, or the lack of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// An answer with its round-trip time.
    Answered(Answer, Duration),
    /// The probe with this number was not answered in time.
    Silent(u32),
}

/// What a ping has found out.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Number of probes.
    pub sent: u32,
    /// Number of probes that have arrived: echo replies, and what else comes from the end of the way only.
    pub received: u32,
    /// Number of probes that were answered by an error.
    pub errors: u32,
    /// Number of probes whose answer was still waited for at the end.
    pub waiting: u32,
    round_trips: Histogram<u64>,
}

impl Statistics {
    /// Makes the statistics of no probe.
    fn new() -> Option<Self> {
        let round_trips = Histogram::new_with_bounds(1, LONGEST, DIGITS).ok()?;
        Some(Self { sent: 0, received: 0, errors: 0, waiting: 0, round_trips })
    }

    /// Returns the number of probes that are known not to have arrived.
    pub const fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received).saturating_sub(self.waiting)
    }

    /// Returns the shortest, average and longest round-trip time in nanoseconds, if a probe has arrived.
    pub fn extremes(&self) -> Option<[f64; 3]> {
        let times = &self.round_trips;
        #[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds fits")]
        let [min, max] = [times.min(), times.max()].map(|time| time as f64);
        (!times.is_empty()).then(|| [min, times.mean().clamp(min, max), max])
    }

    /// Returns a percentile of the round-trip times in nanoseconds; 0 if no probe has arrived.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.round_trips.value_at_quantile(percent / 100.0)
    }

    fn count(&mut self, kind: Kind, time: Duration) {
        if kind.is_arrival() {
            self.received += 1;
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.round_trips.saturating_record(nanoseconds.max(1));
        } else {
            self.errors += 1;
        }
    }
}

/// Runs a ping. `on_echo` gets each answer. After the last probe it waits for at most one `timeout`.
///
/// # Errors
/// A probe cannot be sent.
pub fn ping(
    probe: &Probe,
    settings: Ping,
    network: &mut impl Network,
    is_stopped: impl Fn() -> bool,
    mut on_echo: impl FnMut(Echo),
) -> Result<Statistics, NetworkError> {
    let no_memory = || NetworkError::Other { what: "keep statistics", why: std::io::ErrorKind::OutOfMemory.into() };
    let mut probe = probe.clone();
    let mut statistics = Statistics::new().ok_or_else(no_memory)?;
    let mut waiting: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut next = Instant::now();
    let is_complete = |sent: u32| settings.count.is_some_and(|count| sent >= count);
    while !(is_stopped() || is_complete(statistics.sent) && waiting.is_empty()) {
        let now = Instant::now();
        if !is_complete(statistics.sent) && now >= next && waiting.len() < MAX_WAITING {
            statistics.sent = statistics.sent.saturating_add(1);
            waiting.insert(statistics.sent, now);
            for packet in probe.packets(statistics.sent, settings.hop_limit) {
                network.send(&packet, probe.way.first())?;
            }
            // What was missed is not made up for.
            next = (next + settings.interval).max(now);
        }
        while let Some(oldest) = waiting.first_entry().filter(|oldest| now >= *oldest.get() + settings.timeout) {
            on_echo(Echo::Silent(*oldest.key()));
            oldest.remove();
        }
        let gives_up = waiting.first_key_value().map(|(_, sent)| *sent + settings.timeout);
        let sends = Some(next).filter(|_| !is_complete(statistics.sent));
        let Some(until) = gives_up.into_iter().chain(sends).min() else { continue };
        let Some(received) = network.receive(until)? else { continue };
        let Some(answer) = read(&probe, received.from, &received.message) else { continue };
        if let Some(sent) = waiting.remove(&answer.number) {
            let time = received.at.saturating_duration_since(sent);
            statistics.count(answer.kind, time);
            if answer.kind == Kind::EchoReply {
                probe.has_arrived_at(answer.from);
            }
            on_echo(Echo::Answered(answer, time));
        }
    }
    statistics.waiting = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    Ok(statistics)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::network::Received;
    use crate::probe::Payload;
    use crate::way::Way;
    use std::collections::VecDeque;
    use std::net::Ipv6Addr;

    /// A network that answers the first two of three probes, each twice, and the second one with an error.
    #[derive(Default)]
    struct Made {
        sent: u32,
        ready: VecDeque<Received>,
    }

    impl Network for Made {
        fn send(&mut self, packet: &[u8], _: Ipv6Addr) -> Result<(), NetworkError> {
            self.sent += 1;
            let message = match self.sent {
                1 => [&[129], &packet[41..]].concat(),
                2 => [&[1, 0, 0, 0, 0, 0, 0, 0], packet].concat(),
                _ => return Ok(()),
            };
            let received = Received { from: Ipv6Addr::LOCALHOST, message, at: Instant::now() };
            self.ready.extend([received.clone(), received]);
            Ok(())
        }

        fn receive(&mut self, until: Instant) -> Result<Option<Received>, NetworkError> {
            let ready = self.ready.pop_front();
            if ready.is_none() {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            Ok(ready)
        }
    }

    fn probe() -> Probe {
        let way = Way::new(vec!["fcbb:0:1:2:3::".parse().unwrap()], "fcbb::/32".parse().unwrap(), 16).unwrap();
        let source = "2001:db8::1".parse().unwrap();
        Probe {
            ends: vec![source],
            way,
            source,
            to: None,
            payload: Payload::Echo,
            length: 56,
            flow_label: 0,
            token: [7; 8],
        }
    }

    const SETTINGS: Ping =
        Ping { count: Some(3), interval: Duration::from_millis(1), timeout: Duration::from_millis(10), hop_limit: 64 };

    #[test]
    fn every_probe_ends_in_one_way() {
        let (mut network, mut echoes) = (Made::default(), Vec::new());
        let statistics = ping(&probe(), SETTINGS, &mut network, || false, |echo| echoes.push(echo)).unwrap();
        assert_eq!((statistics.sent, statistics.received, statistics.errors, statistics.lost()), (3, 1, 1, 2));
        assert!(matches!(echoes.as_slice(), [Echo::Answered(..), Echo::Answered(..), Echo::Silent(3)]), "{echoes:?}");
        let [min, average, max] = statistics.extremes().unwrap();
        assert!(min <= average && average <= max);
    }

    #[test]
    fn once_a_probe_has_arrived_one_packet_is_enough() {
        let mut network = Made::default();
        let ends = vec![Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST];
        ping(&Probe { ends, ..probe() }, SETTINGS, &mut network, || false, |_| {}).unwrap();
        assert_eq!(network.sent, 2 + 1 + 1);
    }

    #[test]
    fn what_is_on_its_way_at_the_end_is_not_lost() {
        let is_stopped = std::cell::Cell::new(false);
        let mut network = Made { sent: 2, ready: VecDeque::new() };
        let (count, timeout) = (Some(1), Duration::from_millis(50));
        let settings = Ping { count, timeout, ..SETTINGS };
        let stopping = || is_stopped.replace(true);
        let statistics = ping(&probe(), settings, &mut network, stopping, |_| {}).unwrap();
        assert_eq!((statistics.sent, statistics.waiting, statistics.lost()), (1, 1, 0));
        assert_eq!((statistics.extremes(), statistics.percentile(99.0)), (None, 0));
    }
}
