#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use proptest::prelude::*;

use crate::{
    LENGTH, LaneId, Message, NoLoop, Probe, Reject, RoundTrips, Seal, Settings, State, Turn, Watch, loop_along,
};

const MS: u64 = 1_000_000;
const SETTINGS: Settings = Settings { interval: 100 * MS, timeout: 100 * MS, dead_after: 3, hold: 1000 * MS };

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn a_loop_goes_back_over_the_same_nodes() {
    let along = |carrier: &str, turn| loop_along(address(carrier), 32, turn).map(|carrier| carrier.to_string());
    let host = Turn::default();
    assert_eq!(along("fcbb:0:1004:1001:1006:fe06::", host).unwrap(), "fcbb:0:1004:1001:1006:1001:1004:fe06");
    assert_eq!(along("fcbb:0:1004:1006:fe06::", host).unwrap(), "fcbb:0:1004:1006:1004:fe06::");
    assert_eq!(along("fcbb:0:1004:fe06::", host).unwrap(), "fcbb:0:1004:fe06::", "one node decapsulates for both");
    let ipv4 = Turn { own: None, decap: Some(0xfe06) };
    assert_eq!(along("fcbb:0:1004:1001:1006:fe04::", ipv4).unwrap(), "fcbb:0:1004:1001:1006:1001:1004:fe06");
    let leaf = Turn { own: Some(0x1004), decap: Some(0xfe46) };
    assert_eq!(along("fcbb:0:1001:1006:fe06::", leaf).unwrap(), "fcbb:0:1001:1006:1001:1004:fe46:0");
    let long = loop_along(address("fcbb:0:1:1004:1001:1006:2:fe06"), 32, host);
    assert_eq!(long, Err(NoLoop::TooLong(10)));
    assert_eq!(loop_along(address("fcbb:0:fe06::"), 32, host), Err(NoLoop::TooShort));
    assert_eq!(loop_along(address("fcbb:0:1004:e001:1006:fe06::"), 32, host), Err(NoLoop::Local(0xe001)));
    for block in [0, 20, 128] {
        assert_eq!(loop_along(address("fcbb:0:1004:fe06::"), block, host), Err(NoLoop::Block));
    }
    assert_eq!(
        loop_along(address("fcbb:1004:1001:1006:fe06::"), 16, host).unwrap().segments()[1..7],
        [0x1004, 0x1001, 0x1006, 0x1001, 0x1004, 0xfe06]
    );
}

#[test]
fn a_payload_is_that_of_a_session_sender_with_authentication() {
    let seal = Seal::new("a test's key");
    let message = Message { sequence: 7, lane: 5 };
    // 2026-01-01 00:00:00.5 UTC
    let bytes = seal.close(message, 1_767_225_600_500_000_000);
    assert_eq!(bytes.len(), LENGTH);
    assert_eq!(bytes[..4], 7u32.to_be_bytes());
    assert_eq!(bytes[16..24], (0xed00_3780_8000_0000_u64).to_be_bytes(), "NTP");
    assert_eq!(bytes[24..28], [0, 1, 0, 5]);
    assert!(bytes[4..16].iter().chain(&bytes[28..96]).all(|byte| *byte == 0));
    assert_eq!(seal.open(&bytes), Ok(message));
    assert_eq!(seal.open(&bytes[..111]), Err(Reject::Length));
    assert_eq!(Seal::new("another").open(&bytes), Err(Reject::Seal));
    for bit in 0..LENGTH * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(seal.open(&changed), Err(Reject::Seal), "bit {bit}");
    }
    assert!(!format!("{seal:?}").contains("test"));
}

#[test]
fn a_packet_has_both_headers_and_a_checksum() {
    let probe = Probe {
        source: address("fcbb:0:800::2"),
        carrier: address("fcbb:0:1004:1001:1006:1001:1004:fe06"),
        address: address("fcbb:0:800::2"),
        port: 47151,
    };
    let packet = probe.packet(0x0002_0003, &[9; LENGTH]);
    assert_eq!(packet.len(), 40 + 40 + 8 + LENGTH);
    assert_eq!(packet[..8], [0x60, 0x21, 0x00, 0x03, 0, 160, 41, 64], "ECT(0), label 10003, IPv6 inside");
    assert_eq!(packet[24..40], probe.carrier.octets());
    assert_eq!(packet[40..48], [0x60, 0x21, 0x00, 0x03, 0, 120, 17, 64]);
    assert_eq!(packet[48..64], packet[64..80], "from this node to this node");
    let sum = |bytes: &[u8]| bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    let whole = sum(&packet[48..]) + 120 + 17;
    assert_eq!((whole & 0xffff) + (whole >> 16), 0xffff);
}

#[test]
fn round_trips_forget_old_answers() {
    let mut trips = RoundTrips::default();
    let p50 = |trips: &RoundTrips| trips.quantiles([0.5]).map(|[time]| time);
    assert_eq!(p50(&trips), None);
    (0..1024).for_each(|_| trips.add(50 * MS));
    assert!(p50(&trips).is_some_and(|p50| p50.abs_diff(50_000) < 1000));
    let copy = trips.clone();
    (0..2100).for_each(|_| trips.add(1000));
    assert_eq!(trips.quantiles([0.5, 0.99]), Some([1, 1]));
    trips.add(u64::MAX);
    assert!(trips.quantiles([0.5, 1.0]).is_some_and(|[p50, longest]| p50 == 1 && longest >= 20_000_000));
    assert!(p50(&copy).is_some_and(|p50| p50.abs_diff(50_000) < 1000), "a copy stays as it is");
}

/// A node in virtual time, whose loops answer, or do not.
struct Node {
    watch: Watch,
    now: u64,
    /// Time after which an answer arrives.
    round_trip: u64,
    answers: Vec<(u64, LaneId, u32)>,
    silent: BTreeSet<LaneId>,
    /// Loops of which every other probe gets lost.
    lossy: BTreeSet<LaneId>,
}

impl Node {
    fn new(lanes: u16) -> Self {
        Self::with(SETTINGS, lanes)
    }

    fn with(settings: Settings, lanes: u16) -> Self {
        let mut watch = Watch::new(settings);
        watch.change(settings, &(0..lanes).collect(), 0);
        let (silent, lossy) = (BTreeSet::new(), BTreeSet::new());
        Self { watch, now: 0, round_trip: MS, answers: Vec::new(), silent, lossy }
    }

    /// Runs for a time in steps of a millisecond.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now += MS;
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let (arrived, wait) = std::mem::take(&mut self.answers).into_iter().partition(|(at, ..)| *at <= now);
        self.answers = wait;
        for (at, lane, sequence) in arrived {
            self.watch.answered(lane, sequence, false, (now, at)).unwrap();
        }
        self.watch.tick(now);
        while let Some(lane) = self.watch.due(now) {
            let sequence = self.watch.sent(lane, now, now).unwrap();
            let is_lost = self.silent.contains(&lane) || self.lossy.contains(&lane) && sequence.is_multiple_of(2);
            if !is_lost {
                self.answers.push((now + self.round_trip, lane, sequence));
            }
        }
        self.watch.next_due();
    }

    fn states(&self) -> Vec<State> {
        self.watch.lanes().values().map(|lane| lane.state).collect()
    }

    fn usable(&self) -> Vec<bool> {
        self.watch.usable(&self.watch.lanes().keys().map(|id| Some(*id)).collect::<Vec<_>>())
    }
}

#[test]
fn a_silent_loop_is_dead_after_three_intervals_and_a_timeout() {
    for phase in 0..100 {
        let mut node = Node::new(4);
        node.run(1000 * MS + phase * MS);
        assert_eq!(node.states(), [State::Good; 4]);
        node.silent.insert(2);
        let begin = node.now;
        while node.watch.lanes()[&2].state != State::Dead {
            node.run(MS);
        }
        let took = node.now - begin;
        assert!(took <= 3 * SETTINGS.interval + SETTINGS.timeout + MS, "{} ms from phase {phase}", took / MS);
        assert!(took > 2 * SETTINGS.interval, "{} ms", took / MS);
        assert_eq!(node.usable(), [true, true, false, true]);
    }
}

#[test]
fn a_loop_that_comes_back_is_used_after_the_hold_time() {
    let mut node = Node::new(3);
    node.run(500 * MS);
    node.silent.insert(0);
    node.run(600 * MS);
    assert_eq!(node.states()[0], State::Dead);
    node.silent.clear();
    node.run(900 * MS);
    assert_eq!(node.usable(), [false, true, true], "it has answered for less than a second");
    node.run(400 * MS);
    assert_eq!(node.usable(), [true; 3]);
    let lane = &node.watch.lanes()[&0];
    assert_eq!(lane.sent, lane.received + lane.lost + lane.unjudged + lane.waiting() as u64);
    assert!(lane.lost >= 3 && lane.loss_percent().is_some_and(|loss| loss > 0));
}

#[test]
fn a_dead_loop_does_not_come_back_while_probes_get_lost() {
    for timeout in [100, 250, 500, 2000] {
        let mut node = Node::with(Settings { timeout: timeout * MS, ..SETTINGS }, 3);
        node.run(500 * MS);
        node.silent.insert(0);
        node.run(5000 * MS);
        assert_eq!(node.states()[0], State::Dead, "timeout {timeout} ms");
        node.silent.clear();
        node.lossy.insert(0);
        for _ in 0..200 {
            node.run(50 * MS);
            assert_eq!(node.states()[0], State::Dead, "every other probe is lost, timeout {timeout} ms");
        }
        node.lossy.clear();
        node.run((timeout + 2000) * MS);
        assert_eq!(node.states()[0], State::Good, "timeout {timeout} ms");
    }
}

#[test]
fn silence_of_everything_at_once_proves_nothing() {
    let mut node = Node::new(4);
    node.run(1000 * MS);
    node.silent.extend(0..4);
    node.run(10_000 * MS);
    assert_eq!(node.states(), [State::Good; 4]);
    node.silent.clear();
    node.run(1000 * MS);
    assert_eq!(node.states(), [State::Good; 4], "nor does its end");
    assert!(node.watch.lanes().values().all(|lane| lane.unjudged > 90 && lane.lost <= 1));
}

#[test]
fn a_late_process_judges_nothing() {
    let mut node = Node::new(4);
    node.run(1000 * MS);
    for _ in 0..20 {
        // The process sleeps, and the answers that it finds then are those of before.
        node.answers.clear();
        node.now += 400 * MS;
        node.step();
    }
    assert_eq!(node.states(), [State::Good; 4]);
    assert!(node.watch.late() >= 20);
    assert!(node.watch.lanes().values().all(|lane| lane.lost == 0));
}

#[test]
fn probes_that_wait_while_the_process_is_late_are_never_judged() {
    let mut node = Node::new(4);
    node.run(1000 * MS);
    node.silent.insert(2);
    for _ in 0..20 {
        // Probes of the silent loop wait when the process falls asleep, and later ones of the others come back.
        node.run(90 * MS);
        node.now += 400 * MS;
        node.step();
    }
    assert_eq!(node.states(), [State::Good; 4]);
    assert_eq!(node.watch.lanes()[&2].lost, 0);
    node.run(500 * MS);
    assert_eq!(node.states()[2], State::Dead, "it judges again as soon as it is in time");
}

#[test]
fn only_one_loop_is_never_judged() {
    let mut node = Node::new(1);
    node.run(500 * MS);
    node.silent.insert(0);
    node.run(5000 * MS);
    assert_eq!(node.states(), [State::Good]);
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut node = Node::new(2);
    node.run(500 * MS);
    let before = format!("{:?}", node.watch.lanes());
    let (known, _) = node.watch.lanes()[&0].newest_for_tests();
    let at = (node.now, node.now);
    assert_eq!(node.watch.answered(0, known, true, at), Err(Reject::Again));
    assert_eq!(node.watch.answered(0, known + 1000, true, at), Err(Reject::Sequence));
    assert_eq!(node.watch.answered(0, known.wrapping_sub(1000), true, at), Err(Reject::Sequence));
    assert_eq!(node.watch.answered(7, known, true, at), Err(Reject::Loop));
    assert_eq!(format!("{:?}", node.watch.lanes()), before);
}

#[test]
fn an_overdue_answer_is_counted_and_proves_nothing() {
    let mut node = Node::new(3);
    node.run(500 * MS);
    node.silent.insert(1);
    node.run(600 * MS);
    assert_eq!(node.states()[1], State::Dead);
    let (newest, _) = node.watch.lanes()[&1].newest_for_tests();
    let received = node.watch.lanes()[&1].received;
    for sequence in newest + 1..newest + 4 {
        assert_eq!(node.watch.answered(1, sequence, false, (node.now, node.now)), Ok(()));
    }
    let lane = &node.watch.lanes()[&1];
    assert_eq!((lane.overdue, lane.received, lane.state), (3, received, State::Dead));
}

#[test]
fn of_paths_that_are_all_dead_the_last_ones_stay() {
    let mut node = Node::new(4);
    node.run(500 * MS);
    node.silent.insert(0);
    node.run(3000 * MS);
    node.silent.extend([1, 2]);
    node.run(600 * MS);
    assert_eq!(node.states(), [State::Dead, State::Dead, State::Dead, State::Good]);
    let of = |paths: &[LaneId]| node.watch.usable(&paths.iter().map(|id| Some(*id)).collect::<Vec<_>>());
    assert_eq!(of(&[0, 1, 2]), [false, true, true]);
    assert_eq!(of(&[0]), [true]);
    assert_eq!(of(&[0, 3]), [false, true]);
    assert_eq!(node.watch.usable(&[Some(0), None]), [false, true], "a path that is not probed is used");
    assert_eq!(node.watch.usable(&[]), Vec::<bool>::new());
    node.watch.change(Settings { hold: 0, ..SETTINGS }, &(0..4).collect(), node.now);
    let left = node.watch.usable(&[Some(0), Some(1), Some(2)]);
    assert!(!left[0] && left.contains(&true), "without a hold time, too: {left:?}");
}

#[test]
fn loops_that_stay_keep_what_is_known() {
    let mut node = Node::new(3);
    node.run(500 * MS);
    let received = node.watch.lanes()[&1].received;
    node.watch.change(SETTINGS, &[1, 9].into(), node.now);
    assert_eq!(node.watch.lanes().keys().copied().collect::<Vec<_>>(), [1, 9]);
    assert_eq!(node.watch.lanes()[&1].received, received);
    assert_eq!(node.watch.lanes()[&9].state, State::Unheard);
}

#[derive(Clone, Debug)]
enum Event {
    Run(u64),
    Sleep(u64),
    Silence(LaneId),
    Answer(LaneId),
    RoundTrip(u64),
    Forge(LaneId, u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..800u64).prop_map(Event::Run),
        1 => (1..1000u64).prop_map(Event::Sleep),
        2 => (0..5u16).prop_map(Event::Silence),
        2 => (0..5u16).prop_map(Event::Answer),
        1 => (0..300u64).prop_map(Event::RoundTrip),
        1 => (0..6u16, any::<u32>()).prop_map(|(lane, sequence)| Event::Forge(lane, sequence)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens: a prefix keeps a path, a loop that was never silent is used, every probe is counted once, and when all
    /// is well again, everything is used again.
    #[test]
    fn no_prefix_starves(events in prop::collection::vec(event(), 1..40)) {
        let mut node = Node::new(5);
        node.run(500 * MS);
        let (mut ever_silent, mut ever_slow) = (BTreeSet::new(), false);
        for event in events {
            match event {
                Event::Run(time) => node.run(time * MS),
                Event::Sleep(time) => { node.now += time * MS; node.step(); }
                Event::Silence(lane) => { node.silent.insert(lane); ever_silent.insert(lane); }
                Event::Answer(lane) => { node.silent.remove(&lane); }
                Event::RoundTrip(time) => { node.round_trip = time * MS; ever_slow |= time >= 100; }
                Event::Forge(lane, sequence) => {
                    let waits = node.answers.iter().any(|(_, of, known)| (*of, *known) == (lane, sequence));
                    let far = sequence > 1_000_000;
                    if !waits && far {
                        prop_assert!(node.watch.answered(lane, sequence, true, (node.now, node.now)).is_err());
                    }
                }
            }
            let usable = node.usable();
            prop_assert!(usable.contains(&true));
            for (id, lane) in node.watch.lanes() {
                prop_assert_eq!(lane.sent, lane.received + lane.lost + lane.unjudged + lane.waiting() as u64);
                if !ever_slow && !ever_silent.contains(id) {
                    prop_assert_ne!(lane.state, State::Dead, "loop {} has always answered", id);
                }
            }
        }
        node.silent.clear();
        node.round_trip = MS;
        node.run(SETTINGS.hold + 6 * SETTINGS.interval);
        prop_assert_eq!(node.usable(), vec![true; 5]);
    }
}
