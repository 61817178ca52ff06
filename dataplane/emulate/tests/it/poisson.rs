//! A link under packets that come at random, as queueing theory has it.

use srv6d_emulate::{Chance, Draws, Ecn, EmulatedLink, Emulation, NonEct, Offered, Time};

/// Length of the frames in bytes, and their time on a link of 100 Mbit/s in picoseconds.
const LEN: usize = 1530;
const SERVICE: f64 = 124_320_000.0;
const PACKETS: u32 = 400_000;

/// What came of it: shares of the packets or of the link's rate, and bytes.
struct Outcome {
    goodput: f64,
    dropped: f64,
    marked: f64,
    mean_queue: f64,
}

fn run(load: f64) -> Outcome {
    let ecn = Ecn { min: 30_000, max: 120_000, probability: Chance::of(0.2), non_ect: NonEct::Drop };
    let mut port = EmulatedLink::new(Emulation { ecn: Some(ecn), ..Emulation::of_rate(100_000_000) }, 0);
    let mut draws = Draws::named("poisson");
    let (mut now, mut depths) = (0.0, 0.0);
    for _ in 0..PACKETS {
        let [gap, _] = draws.pair();
        now -= SERVICE / load * ((f64::from(gap) + 1.0) / 4_294_967_297.0).ln();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is positive
        let at = now as Time;
        while port.release(at).is_some() {}
        depths += port.depth(at) as f64;
        let _ = port.offer(at, Offered { len: LEN, ecn: 2, draws: draws.pair() }, (), |()| ());
    }
    let counts = port.counts();
    assert_eq!(counts.sent + counts.queue_full, u64::from(PACKETS));
    Outcome {
        goodput: counts.sent as f64 * SERVICE / f64::max(now, port.free_at() as f64),
        dropped: counts.queue_full as f64 / f64::from(PACKETS),
        marked: counts.ce_marked as f64 / counts.sent as f64,
        mean_queue: depths / f64::from(PACKETS),
    }
}

fn near(value: f64, expected: f64, by: f64) -> bool {
    (value - expected).abs() <= by
}

#[test]
fn below_its_rate_a_link_carries_everything_and_marks_almost_nothing() {
    for (load, marked, by) in [(0.5, 0.0, 1e-6), (0.8, 0.0, 1e-4), (0.9, 0.0002, 0.0004), (0.95, 0.004, 0.004)] {
        let outcome = run(load);
        assert!(near(outcome.goodput, load, 0.005), "{load}: goodput {}", outcome.goodput);
        assert!(outcome.dropped == 0.0 && near(outcome.marked, marked, by), "{load}: marked {}", outcome.marked);
        // The mean queue of M/D/1: load / (2 (1 - load)) packets wait, and one is sent in half of its time.
        let waiting = load * load / (2.0 * (1.0 - load)) + load / 2.0;
        let expected = waiting * (LEN + 24) as f64;
        assert!(near(outcome.mean_queue / expected, 1.0, 0.1), "{load}: {} and not {expected}", outcome.mean_queue);
    }
}

#[test]
fn above_its_rate_a_link_is_always_busy_and_drops_the_rest() {
    for (load, marked) in [(1.1, 0.99), (1.5, 0.995)] {
        let outcome = run(load);
        assert!(near(outcome.goodput, 1.0, 0.001), "{load}: goodput {}", outcome.goodput);
        let expected = 1.0 - 1.0 / load;
        assert!(near(outcome.dropped, expected, 0.006), "{load}: dropped {} and not {expected}", outcome.dropped);
        assert!(outcome.marked > marked, "{load}: marked {}", outcome.marked);
        assert!(outcome.mean_queue > 240_000.0 && outcome.mean_queue < 256_000.0, "{load}: {}", outcome.mean_queue);
    }
}
