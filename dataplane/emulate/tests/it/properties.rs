//! What holds for every sequence of packets, settings and times.

use proptest::prelude::*;
use srv6d_emulate::{Chance, Ecn, EmulatedLink, Emulation, NonEct, Offered, Time};

/// What happens to a port, after so many picoseconds.
#[derive(Clone, Debug)]
enum Event {
    Offer(usize, u8, [u32; 2]),
    Release,
    Change(Emulation),
    Up(bool),
}

fn settings() -> impl Strategy<Value = Emulation> {
    let ecn =
        (0..50_000_u64, 0..50_000_u64, 0.0..1.0, any::<bool>()).prop_map(|(min, width, probability, drops)| Ecn {
            min,
            max: min + width,
            probability: Chance::of(probability),
            non_ect: if drops { NonEct::Drop } else { NonEct::Pass },
        });
    (
        (1_000_000..10_000_000_000_u64, 3000..60_000_u64, 1..40_usize, 0..64_u32),
        (0..2_000_000_u64, 0.0..0.5, proptest::option::of(ecn)),
    )
        .prop_map(|((rate, queue, packets, overhead), (delay, loss, ecn))| Emulation {
            rate,
            queue,
            packets,
            overhead,
            delay,
            loss: Chance::of(loss),
            ecn,
        })
}

fn events() -> impl Strategy<Value = Vec<(Time, Event)>> {
    let event = prop_oneof![
        12 => (14..9018_usize, 0..4_u8, any::<[u32; 2]>()).prop_map(|(len, ecn, draws)| Event::Offer(len, ecn, draws)),
        4 => Just(Event::Release),
        1 => settings().prop_map(Event::Change),
        1 => any::<bool>().prop_map(Event::Up),
    ];
    proptest::collection::vec((prop_oneof![Just(0), 0..1_000_000_000_u128], event), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_ends_in_one_place_in_order_and_not_too_early(first in settings(), events in events()) {
        let mut port = EmulatedLink::new(first, 0);
        let (mut now, mut number, mut refused, mut left) = (0, 0_u64, 0, Vec::new());
        for (pause, event) in events {
            now += pause;
            match event {
                Event::Offer(len, ecn, draws) => {
                    let due = now + u128::from(port.emulation().delay) * 1000;
                    match port.offer(now, Offered { len, ecn, draws }, (number, due), |_| ()) {
                        Ok(()) => prop_assert!(port.len() <= port.emulation().packets),
                        Err(_) => refused += 1,
                    }
                    number += 1;
                }
                Event::Release => {
                    while let Some(released) = port.release(now) {
                        left.push(released.frame.0);
                    }
                    prop_assert!(port.next_release().is_none_or(|due| due > now));
                }
                Event::Change(settings) => port.change(settings, now),
                Event::Up(is_up) => {
                    port.set_up(is_up);
                    if !is_up {
                        refused += port.drop_all(now).count();
                    }
                }
            }
            let counts = port.counts();
            let dropped = counts.queue_full + counts.wred_dropped + counts.wire_loss + counts.port_down;
            prop_assert_eq!(dropped, refused as u64);
            prop_assert_eq!(number, left.len() as u64 + dropped + port.len() as u64);
        }
        prop_assert!(left.is_sorted_by(|a, b| a < b));
    }

    /// While nothing else happens, no more leaves than the rate allows, no packet leaves before its bits and the delay are
    /// over, and a busy link is exactly as fast as its rate.
    #[test]
    fn the_rate_is_exact(settings in settings(), packets in proptest::collection::vec((0..200_000_000_u128, 14..9018_usize), 1..200)) {
        let settings = Emulation { ecn: None, loss: Chance::NEVER, ..settings };
        let mut port = EmulatedLink::new(settings, 0);
        let (mut now, mut begin, mut bits) = (0, 0, 0_u128);
        for (pause, len) in packets {
            now += pause;
            if port.free_at() <= now {
                (begin, bits) = (now, 0);
            }
            let cost = len as u128 + u128::from(settings.overhead);
            let depth = u128::from(port.depth(now));
            let fits = depth + cost <= u128::from(settings.queue) && port.len() < settings.packets;
            let delayed = u128::from(settings.delay) * 1000;
            match port.offer(now, Offered { len, ecn: 0, draws: [0; 2] }, now + delayed, |_| ()) {
                Ok(()) => {
                    prop_assert!(fits);
                    bits += cost * 8 * 1_000_000_000_000;
                    let exact = begin + bits / u128::from(settings.rate);
                    let off = port.free_at().abs_diff(exact);
                    // The remainder that the busy time before has left may add a picosecond.
                    prop_assert!(off <= 1, "{off} ps");
                }
                Err(_) => prop_assert!(!fits),
            }
            while let Some(released) = port.release(now) {
                prop_assert!(released.frame < now, "its bits take time");
            }
        }
    }
}
