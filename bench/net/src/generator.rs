//! Frames made by a BPF program run with live frames (`BPF_PROG_TEST_RUN`), one core or several.
//!
//! Each run of the program is one frame, redirected into the veth. One call per core for all of a trial: a call costs
//! milliseconds to set up, and bursts between calls would overflow the DUT's rings. It ends by a signal.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, Xdp};
use aya::util::nr_cpus;
use aya::{Ebpf, maps::PerCpuValues};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;

use crate::frames::Work;
use crate::netns::Namespace;
use crate::objects::{self, failed};
use crate::{BenchError, affinity, jumbo, testbed};

/// `struct shape` of bpf/traffic.c: length, then the first 120 bytes.
const HEADER: usize = 120;
/// Frames per batch of a generator without a rate: what one core sends most with.
const BATCH: u32 = 64;
/// Up to this rate of a core every frame leaves by itself. Beyond, those that fell due while the ones before them were
/// handed over leave together: each hand-over wakes the receiving thread, and where a core sleeps as deeply as on a
/// virtual machine that takes 3 to 10 microseconds.
const SINGLY: f64 = 100_000.0;
/// Frames per batch up to [`FAST`]. A batch ends when the program has run so often, whether a frame was due or not, so that
/// a frame waits up to a microsecond for those after it.
const TOGETHER: u32 = 16;
/// From this rate of a core on batches are as large as without a rate.
const FAST: f64 = 1_000_000.0;

/// What to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Frames, one after the other, then from the start.
    pub frames: Vec<Vec<u8>>,
    /// Where their UDP headers are.
    pub udp_offset: usize,
    /// UDP source ports in use; a power of two.
    pub flows: u64,
    /// Packets per second of all cores together; none: as many as possible.
    pub rate: Option<f64>,
    /// More than the DUT can take, whatever the rate: it is judged as a flood.
    pub is_flood: bool,
    /// Frames of all cores together; none: until told to stop.
    pub limit: Option<u64>,
    /// Frames carry the time they were made.
    pub stamped: bool,
}

impl Load {
    /// A load without rate or limit.
    pub fn of(work: Work, size: crate::frames::Size, stamped: bool) -> Self {
        let (frames, udp_offset) = (work.frames(size, stamped), work.udp_offset());
        Self { frames, udp_offset, flows: 1024, rate: None, is_flood: true, limit: None, stamped }
    }

    /// The same at a rate that the DUT is asked to forward.
    #[must_use]
    pub fn at(self, rate: Option<f64>) -> Self {
        Self { rate, is_flood: rate.is_none(), ..self }
    }

    /// The same, with more than the DUT can take and no more than this; none: as much as possible.
    #[must_use]
    pub fn flood(self, rate: Option<f64>) -> Self {
        Self { rate, is_flood: true, ..self }
    }
}

/// What was sent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames handed to the veth.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames given up because the generator did not run in time.
    pub late: u64,
}

/// A generator that sends into one device.
pub struct Generator {
    device: String,
    ifindex: u32,
    jumbo: jumbo::Count,
    plan: Array<MapData, [u64; 8]>,
    shapes: Array<MapData, [u64; 16]>,
    senders: PerCpuArray<MapData, [u64; 4]>,
    ebpf: Ebpf,
    /// The threads that send go before all ordinary ones of the machine.
    pub first: bool,
}

impl Generator {
    /// A generator for a device of the namespace.
    pub fn new(space: &Namespace, device: &str) -> Result<Self, BenchError> {
        interruptible()?;
        let ifindex = space.inside(|| testbed::ifindex(device))?;
        let mut ebpf = objects::load(1)?;
        objects::program(&mut ebpf, "generate")?;
        Ok(Self {
            device: device.to_owned(),
            ifindex,
            jumbo: jumbo::Count::default(),
            plan: objects::map(&mut ebpf, "plans")?,
            shapes: objects::map(&mut ebpf, "shapes")?,
            senders: objects::map(&mut ebpf, "senders")?,
            ebpf,
            first: false,
        })
    }

    /// Sends from these cores while `body` runs. It is given the threads that send.
    pub fn while_sending<T>(
        &mut self,
        space: &Namespace,
        cores: &[usize],
        load: &Load,
        body: impl FnOnce(&Sender<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let longest = self.prepare(cores.len(), load)?;
        let batch = batch(load.rate.map(|rate| rate / cores.len() as f64), load.stamped);
        let program: &Xdp = self
            .ebpf
            .program("generate")
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| BenchError("the BPF object has no program generate".to_owned()))?;
        let stop = AtomicBool::new(false);
        let (plan, senders, stop, first) = (&mut self.plan, &self.senders, &stop, self.first);
        let (device, count) = (self.device.as_str(), &self.jumbo);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let threads: Vec<_> = (0..)
                .zip(cores)
                .map(|(queue, &core)| {
                    let tell = tell.clone();
                    scope.spawn(move || {
                        space.enter()?;
                        let number = nix::unistd::gettid().as_raw();
                        affinity::pin(number, core)?;
                        if first {
                            affinity::put_first(number)?;
                        }
                        let _ = tell.send((pthread_self(), number));
                        // Whoever waits for all threads to start must not wait for one that could not.
                        drop(tell);
                        if longest.len() > jumbo::LONGEST_LIVE {
                            return jumbo::send(device, queue, load, cores.len() as u64, count, stop);
                        }
                        send(program, longest, batch, stop)
                    })
                })
                .collect();
            drop(tell);
            let started: Vec<(Pthread, i32)> = told.iter().take(cores.len()).collect();
            let sender = Sender { senders, count, threads: started.iter().map(|&(_, thread)| thread).collect() };
            let done = body(&sender);
            stop.store(true, Ordering::Relaxed);
            // Whatever the kernel still runs of the call sends nothing any more.
            let halted = plan.set(0, [0; 8], 0).map_err(|why| failed("stop the generator", &why));
            let ended = end(threads, &started);
            done.and_then(|value| halted.and(ended).map(|()| value))
        })
    }

    /// What was sent since the last call of [`while_sending`](Self::while_sending) began.
    pub fn sent(&self) -> Result<Sent, BenchError> {
        sent(&self.senders, &self.jumbo)
    }

    /// Writes what to send; the longest frame is what the kernel is given.
    fn prepare<'l>(&mut self, cores: usize, load: &'l Load) -> Result<&'l [u8], BenchError> {
        let cores = cores as u64;
        self.jumbo = jumbo::Count::default();
        let longest = load.frames.iter().max_by_key(|frame| frame.len()).map_or(&[][..], Vec::as_slice);
        for (index, frame) in (0..).zip(&load.frames).filter(|(_, frame)| frame.len() <= jumbo::LONGEST_LIVE) {
            self.shapes.set(index, shape(frame), 0).map_err(|why| failed("write a frame", &why))?;
        }
        let none = PerCpuValues::try_from(vec![[0; 4]; nr_cpus().map_err(|(what, why)| BenchError::of(what, why))?]);
        let none = none.map_err(|why| BenchError::of("clear the generator", why))?;
        self.senders.set(0, none, 0).map_err(|why| failed("clear the generator", &why))?;
        let plan = [
            u64::from(self.ifindex),
            load.rate.map_or(0, |rate| gap_q8(rate / cores as f64)),
            load.limit.map_or(u64::MAX, |limit| limit / cores),
            load.frames.len() as u64,
            load.flows,
            load.udp_offset as u64,
            u64::from(load.stamped),
            longest.len() as u64,
        ];
        self.plan.set(0, plan, 0).map_err(|why| failed("write the generator's plan", &why))?;
        Ok(longest)
    }
}

/// A generator at work.
pub struct Sender<'a> {
    senders: &'a PerCpuArray<MapData, [u64; 4]>,
    count: &'a jumbo::Count,
    /// Numbers of the threads that send.
    pub threads: Vec<i32>,
}

impl Sender<'_> {
    /// What was sent so far.
    pub fn sent(&self) -> Result<Sent, BenchError> {
        sent(self.senders, self.count)
    }
}

fn sent(senders: &PerCpuArray<MapData, [u64; 4]>, jumbo: &jumbo::Count) -> Result<Sent, BenchError> {
    let [_, frames, bytes, late] = objects::sum(senders)?;
    let (jumbo_frames, jumbo_bytes) = (jumbo.frames.load(Ordering::Relaxed), jumbo.bytes.load(Ordering::Relaxed));
    Ok(Sent { frames: frames + jumbo_frames, bytes: bytes + jumbo_bytes, late })
}

/// Nanoseconds between two frames, times 256.
fn gap_q8(rate: f64) -> u64 {
    (256e9 / rate).round().max(1.0) as u64
}

/// Frames that carry the time go in no larger batches than they need: their waiting is in what they measure.
fn batch(rate_of_core: Option<f64>, stamped: bool) -> u32 {
    match rate_of_core {
        Some(rate) if rate <= SINGLY => 1,
        Some(rate) if stamped => ((rate / SINGLY).ceil() as u32).min(TOGETHER),
        Some(rate) if rate <= FAST => TOGETHER,
        Some(_) | None => BATCH,
    }
}

fn shape(frame: &[u8]) -> [u64; 16] {
    let mut header = [0; HEADER];
    for (to, from) in header.iter_mut().zip(frame) {
        *to = *from;
    }
    let mut words = [0; 16];
    words[0] = frame.len() as u64;
    for (word, bytes) in words.iter_mut().skip(1).zip(header.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
}

/// One thread's work: the kernel sends until a signal comes.
fn send(program: &Xdp, frame: &[u8], batch: u32, stop: &AtomicBool) -> Result<(), BenchError> {
    while !stop.load(Ordering::Relaxed) {
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = i32::MAX as u32;
        options.attrs = TestRunAttrs::new().xdp_live_frames(batch);
        match program.test_run(options) {
            Ok(_) => {}
            Err(ProgramError::SyscallError(why)) if why.io_error.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => {
                let length = frame.len();
                return Err(failed(&format!("send live frames of {length} bytes (Linux 5.18 or newer)"), &why));
            }
        }
    }
    Ok(())
}

/// Interrupts the threads until all have ended: one may have been about to call the kernel when the signal came.
fn end(
    threads: Vec<ScopedJoinHandle<'_, Result<(), BenchError>>>,
    started: &[(Pthread, i32)],
) -> Result<(), BenchError> {
    while threads.iter().any(|thread| !thread.is_finished()) {
        for &(thread, _) in started {
            // One that has ended but is not joined yet is still a thread to ask for.
            let _ = pthread_kill(thread, Signal::SIGUSR2);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let died = |_| Err(BenchError("a generator thread died".to_owned()));
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(died))
}

/// SIGUSR2 interrupts a call and does nothing else.
fn interruptible() -> Result<(), BenchError> {
    let nothing = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR2, nothing)
        .map(drop)
        .map_err(|why| BenchError::of("catch SIGUSR2", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_becomes_a_gap_finer_than_a_nanosecond() {
        assert_eq!(gap_q8(1_000_000.0), 256_000);
        assert_eq!(gap_q8(3_000_000.0), 85_333);
        assert_eq!(gap_q8(1e12), 1);
    }

    #[test]
    fn frames_leave_singly_as_long_as_that_is_fast_enough() {
        let batches = |stamped| [Some(100e3), Some(300e3), Some(3e7), None].map(|rate| batch(rate, stamped));
        assert_eq!(batches(false), [1, 16, 64, 64]);
        assert_eq!(batches(true), [1, 3, 16, 64]);
    }

    #[test]
    fn a_shape_is_length_and_header() {
        let words = shape(&[1; 64]);
        assert_eq!((words[0], words[1], words[8], words[9]), (64, 0x0101_0101_0101_0101, 0x0101_0101_0101_0101, 0));
    }
}
