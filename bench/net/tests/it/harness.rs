//! Tests that the bench itself is right: what it sends and counts, and when it names the DUT or the generator as the
//! limit.
//!
//! Everything runs on one core at a time (the receiving sides of the veth pairs run where the generator does), so that
//! no ring overflows on a loaded machine, and counts are exact.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a test stops at the first surprise"
)]

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use srv6d_bench_net::dut::{self, Dut};
use srv6d_bench_net::frames::{Size, Work};
use srv6d_bench_net::generator::{Load, Sender};
use srv6d_bench_net::layout::{Layout, Receive, SinkPlacement};
use srv6d_bench_net::search::{self, Limit, Range};
use srv6d_bench_net::sink::SinkKind;
use srv6d_bench_net::testbed::Mtu;
use srv6d_bench_net::trial::{Rig, Timing};
use srv6d_bench_net::verdict::{Counted, TrialVerdict, Why};
use srv6d_bench_net::{BenchError, affinity};

const SHORT: Timing = Timing { before: Duration::from_millis(50), measured: Duration::from_millis(450) };

fn rig(dut: &Dut) -> Option<Rig> {
    rig_with(dut, SinkKind::Xdp)
}

/// Returns a rig, or `None` if the machine has too few cores; then the reason is printed.
fn rig_with(dut: &Dut, sink: SinkKind) -> Option<Rig> {
    match Layout::of(SinkPlacement::Inline, &affinity::available()) {
        Ok(layout) => Some(Rig::new(dut, &layout, Mtu::Standard, sink, Path::new("not needed")).unwrap()),
        Err(why) => {
            println!("SKIPPED: {why}");
            None
        }
    }
}

fn crossing(name: &str) -> Dut {
    dut::named(name).unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_generator_sends_what_it_is_asked_for_and_never_faster() {
    let Some(mut rig) = rig(&crossing("xdp-redirect")) else { return };
    let load = Load::of(Work::Cross, Size::Bytes(128), false).at(Some(20_000.0));
    let counted = rig.exactly(&load, 2_000).unwrap();
    assert_eq!((counted.sent, counted.received), (2_000, 2_000));
    let (endless, ()) = with_its_core(|| (rig.trial(&load, SHORT).unwrap(), ()));
    // Other processes may lower the offered rate, and the moment at which the clock was read may raise it.
    assert!(endless.offered < 30_000.0 && endless.sent > 100, "{endless:?}");
    for rate in [20_000.0, 100_000.0, 300_000.0] {
        // Occasionally another process runs between the reading of a counter and of the clock; a wrong rate would
        // differ every time.
        let paces: Vec<f64> = (0..5).map(|_| pace(&mut rig, rate) / rate).take_while(|pace| !is_kept(*pace)).collect();
        assert!(
            paces.len() < 5,
            "{rate} packets per second were asked for, and paced were so many times that: {paces:?}"
        );
    }
}

fn is_kept(pace: f64) -> bool {
    (0.95..1.05).contains(&pace)
}

/// Returns the frames per second, including those that were omitted because the generator did not run. That sum is the
/// requested rate, whatever else runs on the core.
fn pace(rig: &mut Rig, rate: f64) -> f64 {
    let load = Load::of(Work::Cross, Size::Bytes(128), false).at(Some(rate));
    let core = *affinity::available().first().unwrap();
    let bed = &mut rig.bed;
    let paced = bed.generator.while_sending(&bed.generator_space, &[core], &load, |sender| {
        sleep(Duration::from_millis(50));
        let (began, before) = on_its_core(sender);
        sleep(Duration::from_millis(300));
        let (ended, after) = on_its_core(sender);
        Ok((after - before) / ended.duration_since(began).as_secs_f64())
    });
    paced.unwrap()
}

/// Returns a time at which the generator runs, and its count. The generator counts omitted frames only when it has its
/// core again.
fn on_its_core(sender: &Sender<'_>) -> (Instant, f64) {
    let slots = || sender.sent().map(|sent| (sent.frames + sent.late) as f64).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let (before, at, now) = (slots(), Instant::now(), slots());
        if now > before && at.elapsed() < Duration::from_millis(1) {
            return (at, now);
        }
    }
    panic!("the generator does not send");
}

#[test]
#[ignore = "needs root"]
fn a_sink_counts_every_frame_and_every_byte() {
    let Some(mut rig) = rig(&crossing("xdp-redirect")) else { return };
    let load = Load::of(Work::Cross, Size::Imix, false).at(Some(100_000.0));
    let before = rig.bed.sink.received().unwrap();
    let counted = rig.exactly(&load, 12_000).unwrap();
    let after = rig.bed.sink.received().unwrap();
    assert_eq!((counted.sent, counted.received), (12_000, 12_000));
    assert_eq!(after.frames - before.frames, 12_000);
    assert_eq!(after.bytes - before.bytes, 1_000 * (7 * 64 + 4 * 570 + 1500));
}

/// Encapsulation adds 40 bytes and the floor adds none, so the length shows whose turn it is.
#[test]
#[ignore = "needs root"]
fn srv6d_and_the_floor_take_turns_on_the_same_sockets() {
    let Some(mut rig) = rig(&dut::in_turns(Work::Encapsulate)) else { return };
    let load = Load::of(Work::Encapsulate, Size::Bytes(200), false).at(Some(5_000.0));
    for (to_floor, length) in [(false, 240), (true, 200), (false, 240)] {
        rig.change_turn(to_floor);
        let before = rig.bed.sink.received().unwrap();
        let counted = rig.exactly(&load, 100).unwrap();
        assert_eq!((counted.sent, counted.received), (100, 100));
        assert_eq!(rig.bed.sink.received().unwrap().bytes - before.bytes, 100 * length);
    }
    let pairs = rig.turns(&load, Duration::from_millis(20), 3).unwrap();
    assert_eq!(pairs.len(), 3);
}

#[test]
#[ignore = "needs root"]
fn a_sink_behind_the_kernels_receive_path_counts_as_exactly() {
    for name in ["xdp-redirect", "linux-uN"] {
        let Some(mut rig) = rig_with(&crossing(name), SinkKind::Tc) else { return };
        let load = Load::of(crossing(name).work, Size::Imix, true).at(Some(50_000.0));
        let before = rig.bed.sink.received().unwrap();
        let counted = rig.exactly(&load, 1_200).unwrap();
        assert_eq!((counted.sent, counted.received), (1_200, 1_200), "{name}");
        let bytes = rig.bed.sink.received().unwrap().bytes - before.bytes;
        assert_eq!(bytes, 100 * load.frames.iter().map(|frame| frame.len() as u64).sum::<u64>(), "{name}");
        let (counted, samples) = with_its_core(|| rig.timed(&load, SHORT, 1).unwrap());
        assert!(samples.len() > 100, "{name}: {} samples, {counted:?}", samples.len());
    }
}

/// Repeats a trial until enough frames were sent, because other processes may have had the generator's core.
fn with_its_core<T>(mut trial: impl FnMut() -> (Counted, T)) -> (Counted, T) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (counted, more) = trial();
        if counted.sent > 1_000 || Instant::now() > deadline {
            return (counted, more);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_dut_that_drops_one_in_a_thousand_is_found() {
    let Some(mut rig) = rig(&dut::LOSSY) else { return };
    let load = Load::of(Work::Cross, Size::Bytes(64), false).at(Some(100_000.0));
    let counted = rig.exactly(&load, 20_000).unwrap();
    assert_eq!((counted.sent, counted.sent - counted.received), (20_000, 20));
    assert!((counted.loss() - 0.001).abs() < 1e-9, "{counted:?}");
    // There is no rate without loss, however often it is tried.
    rig.put_first().unwrap();
    let range = Range { low: 20_000.0, first: 40_000.0, most: 40_000.0, gap: 0.5 };
    let deadline = Instant::now() + Duration::from_mins(1);
    let found = search::search(search::NDR, range, |rate, _| kept_up(&mut rig, &load.clone().at(Some(rate)), deadline));
    let found = found.unwrap();
    assert_eq!((found.rate, found.limit, found.void), (None, Limit::Loss, 0), "{found:?}");
}

/// Runs trials until the generator keeps up. Waiting for the core is ignored: generator and DUT are on the same core,
/// so that it causes no loss.
fn kept_up(rig: &mut Rig, load: &Load, deadline: Instant) -> Result<Counted, BenchError> {
    loop {
        let counted = rig.trial(load, SHORT)?;
        if counted.verdict() != TrialVerdict::GeneratorLimited || Instant::now() > deadline {
            return Ok(Counted { waited: 0.0, stolen: 0.0, ..counted });
        }
    }
}

/// The sink has a core of its own, and the DUT that of the generator: a frame for which the sink's ring has no room is
/// not lost by the DUT, neither in a flood nor at a rate.
#[test]
#[ignore = "needs root"]
fn a_sink_that_is_overrun_is_called_the_limit_and_not_the_dut() {
    let cores = affinity::available();
    let &[generator, sink, ..] = cores.as_slice() else {
        println!("SKIPPED: generator and sink need a core each, and there is one");
        return;
    };
    let layout = Layout {
        generators: vec![generator],
        ingress: Receive::OnSender,
        workers: vec![sink],
        sink: Receive::Thread(sink),
    };
    let overrun = TrialVerdict::Void { why: Why::SinkLimited };
    // The first row redirects frames into the ring, the second sends them one by one.
    for name in ["xdp-redirect", "linux-forward"] {
        let dut = crossing(name);
        let mut rig = Rig::new(&dut, &layout, Mtu::Standard, SinkKind::Slow, Path::new("not needed")).unwrap();
        for rate in [None, Some(200_000.0)] {
            let load = Load::of(dut.work, Size::Bytes(64), false).at(rate);
            let (counted, ()) = with_its_core(|| (rig.trial(&load, SHORT).unwrap(), ()));
            assert_eq!(counted.verdict(), overrun, "{name}: {counted:?}");
            assert!(counted.received > 0, "{name}: {counted:?}");
            // Each frame is lost at most once; the DUT's own multicast may be added.
            assert!(counted.received + counted.lost_at_sink <= counted.sent + 10, "{name}: {counted:?}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_generator_asked_for_too_much_is_called_the_limit() {
    let Some(mut rig) = rig(&crossing("xdp-redirect")) else { return };
    let load = Load::of(Work::Cross, Size::Bytes(64), false).at(Some(500e6));
    let counted = rig.trial(&load, SHORT).unwrap();
    assert_eq!(counted.verdict(), TrialVerdict::GeneratorLimited, "{counted:?}");
}

#[test]
#[ignore = "needs root"]
fn the_kernel_shifts_encapsulates_and_decapsulates_as_it_is_asked_to() {
    for name in ["linux-forward", "linux-encap.red", "linux-uN", "linux-End.DT6"] {
        // Length and destination of the frames are checked before anything is measured.
        let Some(mut rig) = rig(&crossing(name)) else { return };
        let load = Load::of(crossing(name).work, Size::Bytes(200), false).at(Some(20_000.0));
        let counted = rig.exactly(&load, 1_000).unwrap();
        assert_eq!((counted.sent, counted.received), (1_000, 1_000), "{name}");
    }
}

#[test]
#[ignore = "needs root"]
fn frames_longer_than_a_page_are_sent_and_counted_too() {
    let Ok(layout) = Layout::of(SinkPlacement::Inline, &affinity::available()) else {
        println!("SKIPPED: generator and DUT need a core each, and there is one");
        return;
    };
    let mut rig =
        Rig::new(&crossing("linux-forward"), &layout, Mtu::Jumbo, SinkKind::Xdp, Path::new("not needed")).unwrap();
    let load = Load::of(Work::Forward, Size::Bytes(9000), false).at(Some(5_000.0));
    let before = rig.bed.sink.received().unwrap().bytes;
    let counted = rig.exactly(&load, 300).unwrap();
    assert_eq!((counted.sent, counted.received), (300, 300));
    assert_eq!(rig.bed.sink.received().unwrap().bytes - before, 300 * 9000);
}
