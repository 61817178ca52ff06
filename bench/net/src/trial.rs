//! A DUT between generator and sink, and trials with it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu::{Snapshot, Use};
use crate::dut::{Dut, Running};
use crate::frames::{Size, Work};
use crate::generator::{Load, Sender, Sent};
use crate::layout::{Layout, Receive};
use crate::results::CoreUse;
use crate::sink::{Received, SinkKind};
use crate::testbed::{Mtu, Testbed};
use crate::verdict::Counted;
use crate::{BenchError, affinity};

/// Number of frames that have to arrive correctly before anything is measured.
const PREFLIGHT: u64 = 10;
/// Rate of these frames in packets per second.
const PREFLIGHT_RATE: f64 = 2000.0;
/// Limit on waiting for frames: after this time nothing more is forwarded, whatever happened.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time of traffic before the first turn.
const WARM_UP: Duration = Duration::from_millis(100);
/// Time without arriving frames after which rings are considered empty.
const QUIET: Duration = Duration::from_millis(60);

/// Time longer than a thread waits for its core on a busy machine.
const STARVED: Duration = Duration::from_secs(1);

/// A running DUT with generator and sink.
pub struct Rig {
    /// The running DUT. Declared first, so that it ends before its devices are removed.
    running: Running,
    /// Namespaces, devices, generator and sink.
    pub bed: Testbed,
    layout: Layout,
    work: Work,
    /// Kernel ids of the kernel threads that receive.
    receivers: Vec<i32>,
    /// Ordinary threads that get nearly all of their core.
    eager: Option<affinity::Eager>,
    /// Load of each core in the last trial.
    pub cores: Vec<CoreUse>,
}

/// Length of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time of traffic before the measured part.
    pub before: Duration,
    /// Length of the measured part.
    pub measured: Duration,
}

impl Timing {
    /// Returns a timing whose measured part is twice as long.
    #[must_use]
    pub fn twice(self) -> Self {
        Self { measured: self.measured * 2, ..self }
    }
}

/// Counters at one point in time.
struct Moment {
    at: Instant,
    sent: Sent,
    received: Received,
    cpu: Snapshot,
}

impl Rig {
    /// Creates the testbed, starts the DUT, places the work on cores, and checks that ten frames pass correctly.
    pub fn new(dut: &Dut, layout: &Layout, mtu: Mtu, sink: SinkKind, srv6d: &Path) -> Result<Self, BenchError> {
        let mut bed = Testbed::new(layout.workers.len(), mtu, sink)?;
        let running = dut.start(&bed, srv6d, layout)?;
        let receivers = bed.place(layout)?;
        let layout = if dut.has_worker() { layout.clone() } else { layout.clone().without_workers() };
        let mut rig = Self { running, bed, layout, work: dut.work, receivers, eager: None, cores: Vec::new() };
        rig.settle_deferred()?;
        rig.preflight().map_err(|why| BenchError::of(dut.name, why))?;
        Ok(rig)
    }

    /// Gives the threads that carry packets priority over all ordinary threads of the machine.
    pub fn put_first(&mut self) -> Result<(), BenchError> {
        self.bed.generator.first = true;
        let Receive::Deferred(core) = self.layout.ingress else {
            let threads = self.receivers.iter().copied().chain(self.running.threads());
            return threads.into_iter().try_for_each(affinity::put_first);
        };
        // Receive work and worker share a core. Both have to stay ordinary threads, because otherwise one would starve
        // the other.
        let threads = self.running.threads().into_iter().chain(affinity::softirq_thread(core));
        self.eager = Some(affinity::Eager::make(threads)?);
        Ok(())
    }

    /// Sends one frame from the core that deferred NAPI is to use, because deferred NAPI stays on the core that polls
    /// first.
    fn settle_deferred(&mut self) -> Result<(), BenchError> {
        let Receive::Deferred(core) = self.layout.ingress else { return Ok(()) };
        let first = Load { limit: Some(1), ..Load::of(self.work, Size::Bytes(64), false) };
        self.send_all(&[core], &first, 1)
    }

    /// Checks that frames arrive without loss, with the length and the destination that result from the DUT's work.
    fn preflight(&mut self) -> Result<(), BenchError> {
        let load =
            Load { limit: Some(PREFLIGHT), rate: Some(PREFLIGHT_RATE), ..Load::of(self.work, Size::Bytes(256), false) };
        let first: Vec<usize> = self.layout.generators.iter().copied().take(1).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.drained()?.frames;
            self.bed.sink.first_frame()?;
            self.send_all(&first, &load, PREFLIGHT)?;
            let arrived = self.drained()?.frames - before;
            if arrived == PREFLIGHT {
                return self.check_first_frame();
            }
            // A daemon that has just started may not know its neighbour yet.
            if Instant::now() > deadline {
                return Err(BenchError(format!("of {PREFLIGHT} frames only {arrived} came through")));
            }
        }
    }

    fn check_first_frame(&mut self) -> Result<(), BenchError> {
        let expected = (256_isize + self.work.growth(), self.work.comes_out_for());
        match self.bed.sink.first_frame()? {
            Some(seen) if (seen.bytes.cast_signed(), seen.destination) == expected => Ok(()),
            seen => Err(BenchError(format!(
                "what comes out is not what should: {seen:?}, expected {} bytes for {}",
                expected.0, expected.1
            ))),
        }
    }

    /// Sends until the limit of the load is reached.
    fn send_all(&mut self, cores: &[usize], load: &Load, limit: u64) -> Result<(), BenchError> {
        let Testbed { generator, generator_space, .. } = &mut self.bed;
        generator.while_sending(generator_space, cores, load, |sender| {
            let deadline = Instant::now() + PATIENCE;
            while sender.sent()?.frames < limit {
                if Instant::now() > deadline {
                    return Err(BenchError("the generator does not send".to_owned()));
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    }

    /// Returns what the sink has received, once no more frames arrive.
    fn drained(&self) -> Result<Received, BenchError> {
        self.drained_after(QUIET)
    }

    /// Like [`Rig::drained`], but waits until no frame has arrived for the time `quiet`.
    fn drained_after(&self, quiet: Duration) -> Result<Received, BenchError> {
        let mut last = (self.bed.sink.received()?, Instant::now());
        let deadline = Instant::now() + PATIENCE;
        while last.1.elapsed() < quiet && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            let now = self.bed.sink.received()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
        }
        Ok(last.0)
    }

    /// Sends this number of frames, however long it takes, and counts those that arrive.
    pub fn exactly(&mut self, load: &Load, frames: u64) -> Result<Counted, BenchError> {
        let before = self.drained()?;
        let load = Load { limit: Some(frames), ..load.clone() };
        self.send_all(&self.layout.generators.clone(), &load, frames)?;
        let mut received = self.drained()?.frames - before.frames;
        if received < frames {
            // The missing frames are either lost or held by a DUT that waits for its core.
            received = self.drained_after(STARVED)?.frames - before.frames;
        }
        let sent = self.bed.generator.sent()?.frames;
        Ok(Counted { requested: load.rate, sent, received, ..Counted::default() })
    }

    /// Runs one trial.
    pub fn trial(&mut self, load: &Load, timing: Timing) -> Result<Counted, BenchError> {
        let (before, lost_before) = (self.drained()?, self.bed.lost_at_sink()?);
        let cores = self.layout.generators.clone();
        let watched = self.watched();
        let Testbed { generator, generator_space, sink, .. } = &mut self.bed;
        let (from, to) = generator.while_sending(generator_space, &cores, load, |sender| {
            let threads = [watched.as_slice(), &sender.threads].concat();
            let moment = || Moment::take(sender, sink, &threads);
            thread::sleep(timing.before);
            let from = moment()?;
            thread::sleep(timing.measured);
            Ok((from, moment()?))
        })?;
        let sent = self.bed.generator.sent()?;
        let received = self.drained()?.frames - before.frames;
        let lost_at_sink = self.bed.lost_at_sink()? - lost_before;
        let requested = load.rate.filter(|_| !load.is_flood);
        self.cores = self.cores_between(&from, &to);
        let totals = Counted { requested, sent: sent.frames, received, lost_at_sink, ..Counted::default() };
        Ok(self.counted(&from, &to, totals))
    }

    /// Starts the turn of the floor or of srv6d, if the DUT takes turns.
    pub fn change_turn(&self, to_floor: bool) {
        if let Running::Turns(turns) = &self.running {
            turns.change(to_floor);
        }
    }

    /// Runs pairs of turns and returns the packets per second at the sink in each: first srv6d, then the floor. The DUT
    /// must be one that takes turns.
    pub fn turns(&mut self, load: &Load, turn: Duration, pairs: usize) -> Result<Vec<[f64; 2]>, BenchError> {
        self.drained()?;
        let cores = self.layout.generators.clone();
        let Running::Turns(turns) = &self.running else {
            return Err(BenchError("this row takes no turns".to_owned()));
        };
        let Testbed { generator, generator_space, sink, .. } = &mut self.bed;
        let rate = |to_floor: bool| {
            turns.change(to_floor);
            // Frames that were sent in the previous turn arrive during this time.
            thread::sleep(turn / 10);
            let (began, before) = (Instant::now(), sink.received()?.frames);
            thread::sleep(turn);
            let arrived = sink.received()?.frames - before;
            Ok::<f64, BenchError>(arrived as f64 / began.elapsed().as_secs_f64())
        };
        let done = generator.while_sending(generator_space, &cores, load, |_| {
            thread::sleep(WARM_UP);
            (0..pairs).map(|_| Ok([rate(false)?, rate(true)?])).collect()
        });
        turns.change(false);
        done
    }

    /// Runs one trial in which every `every`-th frame is timed. The frames of the load must have time stamps.
    pub fn timed(&mut self, load: &Load, timing: Timing, every: u64) -> Result<(Counted, Vec<Duration>), BenchError> {
        self.bed.sink.sample(every)?;
        let counted = self.trial(load, timing)?;
        let samples = self.bed.sink.samples()?;
        self.bed.sink.sample(0)?;
        Ok((counted, samples))
    }

    /// Returns the threads that have a core of their own. If such a thread waits, another process has used its core.
    fn watched(&self) -> Vec<i32> {
        let alone = !matches!(self.layout.ingress, Receive::Deferred(_));
        let workers = if alone { self.running.threads() } else { Vec::new() };
        self.receivers.iter().copied().chain(workers).collect()
    }

    fn cores_between(&self, from: &Moment, to: &Moment) -> Vec<CoreUse> {
        let seconds = to.at.duration_since(from.at).as_secs_f64();
        let used = to.cpu.since(&from.cpu, seconds);
        let of = |(core, role): (usize, String)| {
            let busy = used.busy.get(&core).copied().unwrap_or_default().share_of(seconds);
            CoreUse { core, role, busy }
        };
        self.layout.roles().into_iter().map(of).collect()
    }

    fn counted(&self, from: &Moment, to: &Moment, totals: Counted) -> Counted {
        let seconds = to.at.duration_since(from.at).as_secs_f64();
        let used: Use = to.cpu.since(&from.cpu, seconds);
        let measured = self.layout.measured();
        let generators: Vec<usize> =
            self.layout.generators.iter().copied().filter(|core| !measured.contains(core)).collect();
        let forwarded = to.received.frames - from.received.frames;
        let cpu = used.of(&measured);
        Counted {
            offered: (to.sent.frames - from.sent.frames) as f64 / seconds,
            forwarded: forwarded as f64 / seconds,
            seconds,
            waited: used.longest_wait / seconds,
            stolen: used.stolen / seconds,
            cpu: cpu / seconds,
            cpu_generator: used.of(&generators) / seconds,
            per_cpu_second: if cpu > 0.0 { forwarded as f64 / cpu } else { 0.0 },
            ..totals
        }
    }
}

impl Moment {
    fn take(sender: &Sender<'_>, sink: &crate::sink::Sink, threads: &[i32]) -> Result<Self, BenchError> {
        Ok(Self { at: Instant::now(), sent: sender.sent()?, received: sink.received()?, cpu: Snapshot::take(threads)? })
    }
}
