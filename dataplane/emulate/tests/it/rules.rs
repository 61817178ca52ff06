//! What an emulated port does with single packets: times, marks, drops, changes of its settings.

use srv6d_emulate::{Chance, Draws, Ecn, EmulatedLink, Emulation, NonEct, Offered, Refusal, Time};

const MS: Time = 1_000_000_000;
const ECT0: u8 = 2;
const LAB: Ecn = Ecn { min: 30_000, max: 120_000, probability: Chance::ALWAYS, non_ect: NonEct::Drop };

fn offered(len: usize, ecn: u8) -> Offered {
    Offered { len, ecn, draws: [0, u32::MAX] }
}

/// Offers a packet that carries its own number. Returns why it does not go on.
fn offer(port: &mut EmulatedLink<u32>, now: Time, len: usize, number: u32) -> Option<Refusal> {
    port.offer(now, offered(len, ECT0), number, |_| ()).err().map(|(_, refusal)| refusal)
}

/// Fills the queue to this depth in bytes.
fn filled(settings: Emulation, depth: usize) -> EmulatedLink<u32> {
    let mut port = EmulatedLink::new(Emulation { ecn: None, overhead: 0, queue: u64::MAX, ..settings }, 0);
    assert_eq!(offer(&mut port, 0, depth, 0), None);
    port.change(settings, 0);
    assert_eq!(port.depth(0), depth as u64);
    port
}

#[test]
fn packets_wait_for_those_in_front_of_them() {
    let mut port = EmulatedLink::new(Emulation::of_rate(100_000_000), 0);
    let steps = [
        (0, 1514, 0, 123_040_000),
        (0, 1514, 1538, 246_080_000),
        (50_000_000, 64, 2451, 253_120_000),
        (1_000_000_000, 1514, 0, 1_123_040_000),
    ];
    for (number, (now, len, depth, free_at)) in (0..).zip(steps) {
        assert_eq!(port.depth(now), depth, "in front of packet {number}");
        assert_eq!(offer(&mut port, now, len, number), None);
        assert_eq!(port.free_at(), free_at, "behind packet {number}");
    }
}

#[test]
fn what_a_division_leaves_is_not_lost() {
    let settings = |rate| Emulation { queue: u64::MAX, packets: usize::MAX, ..Emulation::of_rate(rate) };
    let mut port = EmulatedLink::new(settings(97_000_003), 0);
    (0..1000).for_each(|number| assert_eq!(offer(&mut port, 0, 1514, number), None));
    assert_eq!(port.free_at(), 126_845_356_901);
    let mut port = EmulatedLink::new(settings(97_000_003), 0);
    for number in 0..1_000_000 {
        let now = port.free_at();
        assert_eq!(offer(&mut port, now, 1514, number), None);
        assert!(port.release(port.free_at()).is_some());
    }
    assert_eq!(port.free_at(), 1_000_000 * 1538 * 8 * 1_000_000_000_000 / 97_000_003, "a million packets, exactly");
}

#[test]
fn the_time_does_not_end_after_half_a_year() {
    let year = 365 * 86_400 * 1000 * MS;
    let mut port = EmulatedLink::new(Emulation::of_rate(100_000_000), 0);
    assert_eq!(offer(&mut port, year, 1514, 0), None);
    assert_eq!(port.free_at(), year + 123_040_000);
    assert_eq!(port.release(year + 123_039_999), None);
    assert_eq!(port.release(year + 123_040_000).unwrap().frame, 0);
}

#[test]
fn a_full_queue_refuses_by_bytes_and_by_packets() {
    let bytes = Emulation { queue: 3076, ..Emulation::of_rate(1_000_000) };
    let mut port = EmulatedLink::new(bytes, 0);
    assert_eq!([0, 1, 2].map(|number| offer(&mut port, 0, 1514, number)), [None, None, Some(Refusal::QueueFull)]);
    assert_eq!((port.counts().peak_queue, port.counts().queue_full), (3076, 1));
    // A byte takes eight microseconds. As soon as its transmission begins, it no longer counts.
    assert_eq!(offer(&mut port, 1537 * 8_000_000, 1514, 3), Some(Refusal::QueueFull));
    assert_eq!(offer(&mut port, 1537 * 8_000_000 + 1, 1514, 3), None);

    let packets = Emulation { packets: 8, delay: 1_000_000, ..Emulation::of_rate(1_000_000_000) };
    let mut port = EmulatedLink::new(packets, 0);
    let refused = (0..9).filter(|&number| offer(&mut port, 0, 60, number).is_some()).count();
    assert_eq!((refused, port.len()), (1, 8), "those in the delay count too");
}

#[test]
fn marks_begin_above_min_grow_in_a_line_and_are_everywhere_from_max() {
    let rule = Ecn { probability: Chance::of(0.2), ..LAB };
    let settings = Emulation { ecn: Some(rule), queue: 400_000, ..Emulation::of_rate(100_000_000) };
    let mut draws = Draws::named("eth1");
    let mut share = |depth| {
        let port = filled(settings, depth);
        let tries = 20_000;
        let marked = (0..tries).filter(|_| {
            let offered = Offered { draws: draws.pair(), ..offered(1514, ECT0) };
            let mut is_marked = false;
            port.clone().offer(0, offered, 0, |_| is_marked = true).unwrap();
            is_marked
        });
        marked.count() as f64 / f64::from(tries)
    };
    assert_eq!((share(1), share(30_000)), (0.0, 0.0));
    assert_eq!((share(120_000), share(300_000)), (1.0, 1.0));
    for (depth, expected) in [(48_000, 0.04), (75_000, 0.1), (119_999, 0.2)] {
        let sigma = f64::sqrt(expected * (1.0 - expected) / 20_000.0);
        let share = share(depth);
        assert!((share - expected).abs() < 4.0 * sigma, "{depth}: {share} and not {expected}");
    }
}

#[test]
fn what_does_not_support_ecn_is_dropped_or_passes_and_ce_stays() {
    let with = |non_ect| Emulation { ecn: Some(Ecn { non_ect, ..LAB }), ..Emulation::of_rate(100_000_000) };
    let try_one = |non_ect, ecn| {
        let mut port = filled(with(non_ect), 200_000);
        let mut is_marked = false;
        let refusal = port.offer(0, offered(1514, ecn), 0, |_| is_marked = true).err().map(|(_, refusal)| refusal);
        (refusal, is_marked, port.counts().ce_marked, port.counts().wred_dropped)
    };
    assert_eq!(try_one(NonEct::Drop, 0), (Some(Refusal::Wred), false, 0, 1));
    assert_eq!(try_one(NonEct::Pass, 0), (None, false, 0, 0), "Not-ECT is never marked");
    assert_eq!(try_one(NonEct::Drop, 3), (None, false, 0, 0), "it is marked already");
    for ect in [1, 2] {
        assert_eq!(try_one(NonEct::Drop, ect), (None, true, 1, 0));
    }
}

#[test]
fn equal_limits_of_marking_are_one_step() {
    let step = Ecn { min: 50_000, max: 50_000, ..LAB };
    let settings = Emulation { ecn: Some(step), ..Emulation::of_rate(100_000_000) };
    for (depth, expected) in [(50_000, 0), (50_001, 1)] {
        let mut port = filled(settings, depth);
        assert_eq!(offer(&mut port, 0, 1514, 0), None);
        assert_eq!(port.counts().ce_marked, expected, "{depth}");
    }
}

#[test]
fn a_lost_packet_has_used_the_link() {
    let mut port = EmulatedLink::new(Emulation { loss: Chance::ALWAYS, ..Emulation::of_rate(100_000_000) }, 0);
    let offered = Offered { len: 1514, ecn: 0, draws: [0, u32::MAX] };
    assert_eq!(port.offer(0, offered, 0, |_| ()), Err((0, Refusal::WireLoss)));
    assert_eq!((port.free_at(), port.len(), port.counts().wire_loss, port.counts().sent), (123_040_000, 0, 1, 1));
    let third = Emulation { loss: Chance::of(1.0 / 3.0), ..Emulation::of_rate(1_000_000_000_000) };
    let (mut port, mut draws) = (EmulatedLink::new(third, 0), Draws::named("eth2"));
    for number in 0..30_000_u32 {
        let now = Time::from(number) * MS;
        let _ = port.offer(now, Offered { draws: draws.pair(), ..offered }, number, |_| ());
        while port.release(now + MS).is_some() {}
    }
    let share = port.counts().wire_loss as f64 / 30_000.0;
    assert!((share - 1.0 / 3.0).abs() < 0.011, "four standard deviations: {share}");
}

#[test]
fn a_port_that_is_down_takes_nothing_and_counts_what_it_had() {
    let mut port = EmulatedLink::new(Emulation::of_rate(1_000_000), 0);
    (0..5).for_each(|number| assert_eq!(offer(&mut port, 0, 60, number), None));
    port.set_up(false);
    assert_eq!(port.drop_all(1).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(offer(&mut port, 1, 60, 5), Some(Refusal::PortDown));
    assert_eq!((port.counts().port_down, port.len(), port.depth(1)), (6, 0, 0));
    port.set_up(true);
    assert_eq!(offer(&mut port, 2, 60, 6), None);
    assert_eq!(port.free_at(), 2 + 84 * 8_000_000, "the link is free again at once");
}

#[test]
fn other_settings_keep_packets_and_their_order() {
    let slow = Emulation { delay: 10_000_000, ..Emulation::of_rate(1_000_000) };
    let mut port = EmulatedLink::new(slow, 0);
    (0..4).for_each(|number| assert_eq!(offer(&mut port, 0, 101, number), None)); // a millisecond each
    let now = MS + MS / 2;
    port.change(Emulation { delay: 1_000_000, ..Emulation::of_rate(10_000_000) }, now);
    assert_eq!(port.free_at(), now + MS / 4, "2.5 ms at a tenth of the rate");
    let mut due = Vec::new();
    while let Some(time) = port.next_release() {
        due.push(time);
        port.release(time).unwrap();
    }
    // The first one is on the long wire already, and those behind it do not overtake it.
    assert_eq!(due, [11 * MS; 4]);
    port.change(Emulation { rate: 2_000_000, ..slow }, 20 * MS);
    assert_eq!(offer(&mut port, 20 * MS, 226, 9), None);
    assert_eq!(port.next_release(), Some(31 * MS));
}

#[test]
fn a_port_without_emulation_gives_its_packets_back() {
    let mut port = EmulatedLink::new(Emulation::of_rate(1_000_000), 0);
    (0..3).for_each(|number| assert_eq!(offer(&mut port, 0, 60, number), None));
    assert_eq!(port.take_all(0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((port.len(), port.counts().port_down, port.next_release()), (0, 0, None));
}

#[test]
fn the_load_is_the_share_of_busy_time() {
    let mut port = EmulatedLink::new(Emulation::of_rate(1_000_000), 0);
    assert_eq!((port.load(0), port.next_sample()), (0, None));
    // Each of these 100 packets uses the link for one millisecond, and one comes every two milliseconds.
    for number in 0..100 {
        let now = Time::from(number) * 2 * MS;
        port.load(now);
        assert_eq!(offer(&mut port, now, 101, number), None);
        port.release(now);
    }
    assert_eq!(port.load(200 * MS), 500);
    assert_eq!(port.next_sample(), Some(300 * MS));
    assert_eq!(port.load(300 * MS), 0);
    assert_eq!(port.next_sample(), None, "nothing changes any more");
    (0..5).for_each(|number| assert_eq!(offer(&mut port, 300 * MS, 30_000, number), None)); // more than a second
    assert_eq!(port.load(400 * MS), 1000);
}

#[test]
fn a_name_has_its_own_random_numbers() {
    let numbers = |name: &str| {
        let mut draws = Draws::named(name);
        [draws.pair(), draws.pair()]
    };
    assert_eq!(numbers("eth1"), numbers("eth1"));
    assert_ne!(numbers("eth1"), numbers("eth2"));
    assert_ne!(numbers("eth1")[0], numbers("eth1")[1]);
}
