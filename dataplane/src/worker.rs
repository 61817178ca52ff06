//! A worker thread: it polls the same queue number of every port, and may be pinned to a core.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use srv6d_srv6::Frames;
use srv6d_wire::{Extent, Packet, checksum};
use srv6d_xsk::{Frame, Socket, Umem, Waker, wait};

use crate::dataplane::Polling;
use crate::io::Io;
use crate::left_right::{Reader, Snapshot};
use crate::step::Step;
use crate::workload::Meter;

/// Number of rounds without a packet after which an adaptive worker sleeps.
const SPIN_ROUNDS: u32 = 64;
/// Longest sleep while packets wait for a next hop, or in a transmit ring that was full.
const SHORT_SLEEP: Duration = Duration::from_millis(20);
/// Longest sleep in all other cases. It is bounded so that deleted devices are noticed.
const LONG_SLEEP: Duration = Duration::from_secs(5);
/// Longest time to drain the rings at the end.
const DRAIN: Duration = Duration::from_millis(300);

/// A command of control to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Use this socket under this number. A former socket of the number is closed first.
    Open(usize, PacketMemory, Box<Socket>),
    /// Close the socket of this number.
    Close(usize),
    /// Use this packet memory for zero-copy ports. All sockets in the former one are closed.
    ZeroCopy(Option<Box<Umem>>),
    /// Finish the packets in the rings, then end.
    Stop,
    /// Panic, so that tests can observe the effect on process and ports.
    #[cfg(feature = "faults")]
    Panic,
}

/// The packet memory that a socket uses. A UMEM is in zero-copy mode for all its ports or for none; its first socket
/// decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketMemory {
    /// The memory of the own veth, and of every port in copy mode.
    Copy,
    /// The memory of ports in zero-copy mode.
    ZeroCopy,
}

/// The AF_XDP sockets of one worker. Frames are handed over without a copy between ports that share a packet memory,
/// and copied between the two memories.
#[derive(Debug)]
pub struct Sockets {
    umem: Umem,
    zero_copy: Option<Box<Umem>>,
    by_number: Vec<Option<(PacketMemory, Box<Socket>)>>,
}

impl Sockets {
    /// Creates an empty set. `umem` is the packet memory of ports in copy mode.
    pub fn new(umem: Umem) -> Self {
        Self { umem, zero_copy: None, by_number: Vec::new() }
    }

    /// Adds a socket. An old socket of the number is closed.
    pub fn open(&mut self, number: usize, memory: PacketMemory, socket: Box<Socket>) {
        self.close(number);
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        if let Some(slot) = self.by_number.get_mut(number) {
            *slot = Some((memory, socket));
        }
    }

    fn close(&mut self, number: usize) {
        let Some((memory, socket)) = self.by_number.get_mut(number).and_then(Option::take) else { return };
        match (memory, self.zero_copy.as_mut()) {
            (PacketMemory::Copy, _) => socket.close(&mut self.umem),
            (PacketMemory::ZeroCopy, Some(umem)) => socket.close(umem),
            (PacketMemory::ZeroCopy, None) => {}
        }
    }

    /// Returns a socket, and the packet memory it is on.
    pub fn at(&mut self, number: usize) -> Option<(&mut Socket, &mut Umem)> {
        let (memory, socket) = self.by_number.get_mut(number)?.as_mut()?;
        let umem = match memory {
            PacketMemory::Copy => &mut self.umem,
            PacketMemory::ZeroCopy => self.zero_copy.as_mut()?,
        };
        Some((socket, umem))
    }

    /// Sends a packet whose frame is in the other packet memory, as a copy.
    fn send_copy(&mut self, number: usize, frame: Frame) -> Result<(), Frame> {
        let Some(zero_copy) = self.zero_copy.as_deref_mut() else { return Err(frame) };
        let (socket, to, from) = match self.by_number.get_mut(number).and_then(Option::as_mut) {
            Some((PacketMemory::Copy, socket)) => (socket, &mut self.umem, zero_copy),
            Some((PacketMemory::ZeroCopy, socket)) => (socket, zero_copy, &mut self.umem),
            None => return Err(frame),
        };
        let Some(copy) = to.copy_of(from, &frame) else { return Err(frame) };
        match socket.tx(copy) {
            Ok(()) => from.recycle(frame).map_or(Ok(()), Err),
            Err(copy) => {
                to.recycle(copy);
                Err(frame)
            }
        }
    }

    fn present(&self) -> impl Iterator<Item = &Socket> {
        self.by_number.iter().flatten().map(|(_, socket)| socket.as_ref())
    }

    fn is_sending(&self) -> bool {
        self.present().any(Socket::tx_pending)
    }
}

impl Frames for Sockets {
    type Frame = Frame;

    fn packet<'f>(&self, frame: &'f mut Frame) -> Packet<'f> {
        let (at, tail) = (Extent { start: frame.start(), len: frame.head_len() }, frame.tail_len());
        Packet::at(frame.chunk_mut(), at, tail)
    }

    fn place(&self, frame: &mut Frame, at: Extent, keep_tail: bool) {
        frame.place(at.start, at.len);
        if !keep_tail {
            frame.drop_tail();
        }
    }
}

impl Io for Sockets {
    fn sockets(&self) -> usize {
        self.by_number.len()
    }

    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<Frame>) {
        if let Some((socket, umem)) = self.at(socket) {
            socket.rx_burst(umem, max, out);
        }
    }

    fn packet_and_further<'f>(&'f self, frame: &'f mut Frame) -> (Packet<'f>, impl Fn(usize) -> u64 + 'f) {
        let (at, tail) = (Extent { start: frame.start(), len: frame.head_len() }, frame.tail_len());
        let umem = self.zero_copy.as_deref().filter(|umem| umem.owns(frame)).unwrap_or(&self.umem);
        let (chunk, further) = frame.split();
        (Packet::at(chunk, at, tail), move |len| checksum::sum_of_segments(umem.further_segments(further), len))
    }

    fn packet_len(&self, frame: &Frame) -> usize {
        frame.packet_len()
    }

    fn send(&mut self, number: usize, frames: &mut impl Iterator<Item = Frame>) -> Result<(), Frame> {
        for frame in frames {
            match self.at(number) {
                Some((socket, umem)) if umem.owns(&frame) => socket.tx(frame)?,
                Some(_) => self.send_copy(number, frame)?,
                None => return Err(frame),
            }
        }
        Ok(())
    }

    fn recycle(&mut self, frame: Frame) {
        if let (Some(frame), Some(zero_copy)) = (self.umem.recycle(frame), self.zero_copy.as_mut()) {
            zero_copy.recycle(frame);
        }
    }

    fn flush(&mut self, socket: usize) {
        if let Some((socket, umem)) = self.at(socket)
            && socket.tx_pending()
        {
            socket.flush(umem);
        }
    }

    fn finish(&mut self, number: u32) {
        if !self.is_sending() {
            self.by_number.iter_mut().flatten().for_each(|(_, socket)| socket.finish(number));
        }
    }
}

/// The rounds of a worker, without its thread.
pub struct WorkerLoop {
    /// The ports of the worker.
    pub io: Sockets,
    step: Step<Sockets>,
    reader: Reader,
    commands: Receiver<Command>,
    start: Instant,
    meter: Meter,
}

impl WorkerLoop {
    /// Creates a worker that gets no commands.
    pub fn alone(io: Sockets, step: Step<Sockets>, reader: Reader) -> Self {
        Self::new(io, step, reader, crossbeam::channel::unbounded().1)
    }

    pub(crate) fn new(io: Sockets, step: Step<Sockets>, reader: Reader, commands: Receiver<Command>) -> Self {
        Self { io, step, reader, commands, start: Instant::now(), meter: Meter::default() }
    }

    /// Makes one round. Returns the number of packets received, or `None` if the worker was told to stop.
    pub fn round(&mut self) -> Option<usize> {
        let now = nanoseconds(self.start);
        self.meter.round_begins(now, self.step.counters().workload());
        if !obey(&mut self.io, &mut self.step, &self.commands, now) {
            return None;
        }
        let received = self.step.round(&mut self.io, self.reader.current(), now);
        self.meter.round_ends(received > 0);
        if received == 0 && self.io.is_sending() {
            (0..self.io.sockets()).for_each(|socket| self.io.flush(socket));
        }
        Some(received)
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, waker: &Waker) {
        let longest = self.longest_sleep();
        let begin = nanoseconds(self.start);
        sleep(&self.io, waker, longest);
        let now = nanoseconds(self.start);
        self.meter.slept(now.saturating_sub(begin), now, self.step.counters().workload());
    }

    fn longest_sleep(&self) -> Duration {
        let waits = self.step.held() > 0 || self.io.is_sending();
        longest_sleep(waits, self.step.next_event(), nanoseconds(self.start))
    }
}

/// Returns how long a worker may sleep if nothing is received: until a packet leaves an emulated port, or until it looks
/// again at packets that wait, and at its devices. Event and present are in nanoseconds.
fn longest_sleep(waits: bool, event: Option<u64>, now: u64) -> Duration {
    let longest = if waits { SHORT_SLEEP } else { LONG_SLEEP };
    event.map_or(longest, |event| longest.min(Duration::from_nanos(event.saturating_sub(now))))
}

/// Runs until it is told to stop.
pub(crate) fn run(mut rounds: WorkerLoop, waker: &Waker, polling: Polling) {
    let mut idle = 0;
    while let Some(received) = rounds.round() {
        if received > 0 {
            idle = 0;
            continue;
        }
        idle += 1;
        if polling == Polling::Adaptive && idle > SPIN_ROUNDS {
            rounds.sleep(waker);
        } else {
            std::hint::spin_loop();
        }
    }
    let WorkerLoop { mut io, mut step, mut reader, start, .. } = rounds;
    drain(&mut io, &mut step, reader.current(), start);
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Carries out the commands of control. Returns false if the worker is to stop.
#[cfg_attr(feature = "faults", allow(clippy::panic, reason = "it is what the command says"))]
fn obey(io: &mut Sockets, step: &mut Step<Sockets>, commands: &Receiver<Command>, now: u64) -> bool {
    while let Ok(command) = commands.try_recv() {
        match command {
            Command::Open(number, memory, socket) => io.open(number, memory, socket),
            Command::Close(number) => {
                step.close_queue(io, number, now);
                io.close(number);
            }
            Command::ZeroCopy(umem) => {
                // Held and queued packets may lie in the memory that is removed.
                if io.zero_copy.is_some() {
                    step.abandon_held(io);
                    step.abandon_queued(io, now);
                }
                io.zero_copy = umem;
            }
            Command::Stop => return false,
            #[cfg(feature = "faults")]
            Command::Panic => panic!("asked to by a test"),
        }
    }
    true
}

fn sleep(io: &Sockets, waker: &Waker, longest: Duration) {
    let fds: Vec<BorrowedFd<'_>> = io.present().filter(|socket| !socket.is_gone()).map(AsFd::as_fd).collect();
    match wait(&fds, waker, Some(longest)) {
        // A deleted device makes poll(2) return at once until its socket is closed.
        Ok(woken) if woken.error => std::thread::sleep(Duration::from_millis(1)),
        Ok(_) => {}
        Err(why) => {
            tracing::warn!("poll: {why}");
            std::thread::sleep(SHORT_SLEEP);
        }
    }
}

/// Forwards the packets that the kernel has already handed over, and sends those that are queued.
fn drain(io: &mut Sockets, step: &mut Step<Sockets>, snapshot: &Snapshot, start: Instant) {
    let end = Instant::now() + DRAIN;
    let mut quiet = 0;
    while quiet < 3 && Instant::now() < end {
        let received = step.round(io, snapshot, nanoseconds(start));
        (0..io.sockets()).for_each(|socket| io.flush(socket));
        quiet = if received == 0 && !io.is_sending() && step.queued() == 0 { quiet + 1 } else { 0 };
    }
    step.abandon_held(io);
    step.abandon_queued(io, nanoseconds(start));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sleeps_until_something_has_to_be_done() {
        let now = 1_000_000_000;
        assert_eq!(longest_sleep(false, None, now), LONG_SLEEP);
        assert_eq!(longest_sleep(true, None, now), SHORT_SLEEP);
        assert_eq!(longest_sleep(true, Some(now + 123_456), now), Duration::from_nanos(123_456));
        assert_eq!(longest_sleep(true, Some(now * 10), now), SHORT_SLEEP);
        assert_eq!(longest_sleep(false, Some(now - 1), now), Duration::ZERO, "it is late");
    }
}
