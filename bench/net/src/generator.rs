//! Sends frames from a BPF program that the kernel runs with live frames (`BPF_PROG_TEST_RUN`), on one core or several.
//!
//! Each run of the program is one frame, which is redirected into the veth. There is one call per core for the whole
//! trial: a call takes milliseconds to set up, and bursts between calls would overflow the DUT's rings. A signal ends
//! the call.

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

/// Length of the header in `struct shape` of bpf/traffic.c, which consists of the frame length and the first 120 bytes.
const HEADER: usize = 120;
/// Frames per batch of a generator without a rate: the number with which one core sends most.
const BATCH: u32 = 64;
/// Highest rate of a core at which each frame is handed over separately. Above it, frames that became due during the
/// previous hand-over are handed over together, because each hand-over wakes the receiving thread, which takes 3 to 10
/// microseconds if the core sleeps as deeply as on a virtual machine.
const SINGLY: f64 = 100_000.0;
/// Frames per batch at rates up to [`FAST`]. A batch ends after this number of runs of the program, whether or not a
/// frame was due in each, so that a frame waits up to a microsecond for those after it.
const TOGETHER: u32 = 16;
/// Rate of a core above which batches are as large as without a rate.
const FAST: f64 = 1_000_000.0;

/// Traffic to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Frames, sent in this order and repeated from the start.
    pub frames: Vec<Vec<u8>>,
    /// Offset of the UDP header in these frames.
    pub udp_offset: usize,
    /// Number of UDP source ports in use; a power of two.
    pub flows: u64,
    /// Packets per second of all cores together; `None`: as many as possible.
    pub rate: Option<f64>,
    /// Whether the load exceeds what the DUT can take, so that the trial is judged as a flood, even if it has a rate.
    pub is_flood: bool,
    /// Number of frames of all cores together; `None`: until told to stop.
    pub limit: Option<u64>,
    /// Whether frames contain the time at which they were made.
    pub stamped: bool,
}

impl Load {
    /// Creates a flood without rate or limit.
    pub fn of(work: Work, size: crate::frames::Size, stamped: bool) -> Self {
        let (frames, udp_offset) = (work.frames(size, stamped), work.udp_offset());
        Self { frames, udp_offset, flows: 1024, rate: None, is_flood: true, limit: None, stamped }
    }

    /// Returns the load with a rate that the DUT is expected to forward. `None`: a flood.
    #[must_use]
    pub fn at(self, rate: Option<f64>) -> Self {
        Self { rate, is_flood: rate.is_none(), ..self }
    }

    /// Returns the load as a flood with at most this rate; `None`: as much as possible.
    #[must_use]
    pub fn flood(self, rate: Option<f64>) -> Self {
        Self { rate, is_flood: true, ..self }
    }
}

/// Frames sent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of frames handed to the veth.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
    /// Number of frames that were omitted because the generator did not run in time.
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
    /// Whether the sending threads get priority over all ordinary threads of the machine.
    pub first: bool,
}

impl Generator {
    /// Creates a generator for a device of the namespace.
    pub fn new(space: &Namespace, device: &str) -> Result<Self, BenchError> {
        interruptible()?;
        let ifindex = srv6d_netns::enter(space, || testbed::ifindex(device))?;
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

    /// Sends from these cores while `body` runs. `body` gets access to the counters and the threads.
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
                        srv6d_netns::move_thread(space)?;
                        let number = nix::unistd::gettid().as_raw();
                        affinity::pin(number, core)?;
                        if first {
                            affinity::put_first(number)?;
                        }
                        let _ = tell.send((pthread_self(), number));
                        // The sender of the channel is dropped so that nobody waits for a thread that could not start.
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
            // With an empty plan, a call that is still running in the kernel sends nothing more.
            let halted = plan.set(0, [0; 8], 0).map_err(|why| failed("stop the generator", &why));
            let ended = end(threads, &started);
            done.and_then(|value| halted.and(ended).map(|()| value))
        })
    }

    /// Returns what was sent since the last call of [`while_sending`](Self::while_sending) began.
    pub fn sent(&self) -> Result<Sent, BenchError> {
        sent(&self.senders, &self.jumbo)
    }

    /// Writes the load into the BPF maps and returns the longest frame, which the kernel gets as its input.
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

/// A generator that is sending.
pub struct Sender<'a> {
    senders: &'a PerCpuArray<MapData, [u64; 4]>,
    count: &'a jumbo::Count,
    /// Kernel ids of the threads that send.
    pub threads: Vec<i32>,
}

impl Sender<'_> {
    /// Returns what was sent so far.
    pub fn sent(&self) -> Result<Sent, BenchError> {
        sent(self.senders, self.count)
    }
}

fn sent(senders: &PerCpuArray<MapData, [u64; 4]>, jumbo: &jumbo::Count) -> Result<Sent, BenchError> {
    let [_, frames, bytes, late] = objects::sum(senders)?;
    let (jumbo_frames, jumbo_bytes) = (jumbo.frames.load(Ordering::Relaxed), jumbo.bytes.load(Ordering::Relaxed));
    Ok(Sent { frames: frames + jumbo_frames, bytes: bytes + jumbo_bytes, late })
}

/// Returns the nanoseconds between two frames, times 256.
fn gap_q8(rate: f64) -> u64 {
    (256e9 / rate).round().max(1.0) as u64
}

/// Returns the frames per batch. Frames with time stamps use batches no larger than needed, because waiting in a batch
/// counts as latency.
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

/// Work of one thread: the kernel sends until a signal arrives.
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

/// Interrupts the threads repeatedly until all have ended, because a thread may have been about to call the kernel when
/// a signal arrived.
fn end(
    threads: Vec<ScopedJoinHandle<'_, Result<(), BenchError>>>,
    started: &[(Pthread, i32)],
) -> Result<(), BenchError> {
    while threads.iter().any(|thread| !thread.is_finished()) {
        for &(thread, _) in started {
            // A thread that has ended but is not joined can still be given a signal.
            let _ = pthread_kill(thread, Signal::SIGUSR2);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let died = |_| Err(BenchError("a generator thread died".to_owned()));
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(died))
}

/// Installs a handler for SIGUSR2 that does nothing, so that the signal only interrupts a system call.
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
