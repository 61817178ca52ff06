//! The handle that control holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{Desired, Port, PortId, TableId};
use srv6d_srv6::tally::{Count, Tally};
use srv6d_srv6::{AdjacencyState, BuildError, PathMtu, Slots};
use srv6d_xsk::xdp_offload::PacketCount;
use srv6d_xsk::{
    BusyPollWatch, BusyPolling, ClaimProgram, LossWatch, Program, Rings, Umem, UmemHandle, UmemRings, Waker, XskError,
};

use crate::capture::{Capture, Taps};
use crate::counters::{
    Counters, DeviceCounters, MAX_SOCKETS, NextHopCounters, PathCounters, SidCounters, VlanCounters, WorkerCounters,
};
use crate::publish::{Published, Publisher};
use crate::snapshot::Wiring;
use crate::step::Step;
use crate::worker::{self, Command, PacketMemory, Rounds, Sockets};

mod amend;
mod attach;
mod descriptors;
mod offload;
mod views;

pub use offload::{PortOffload, forwarding};

/// Next hops that may be asked for, and smaller paths that may be told of, and not yet be taken by control.
const WANTED: usize = 1024;
/// Packets of one worker that may wait for their next hops, however many chunks it has.
const MOST_HELD: usize = 1024;
/// Smallest fill ring that still takes a burst.
const MIN_RING: u32 = 64;

/// How workers wait for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Spin for ever: a core for each worker.
    Busy,
    /// Spin a little, then sleep in poll(2).
    #[default]
    Adaptive,
}

/// How to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One worker each; `Some`: pinned to this core.
    pub cores: Vec<Option<usize>>,
    /// How workers wait.
    pub polling: Polling,
    /// Packets that a worker lets a driver receive in one system call of its own (preferred busy polling); 0: drivers
    /// receive in interrupts.
    pub busy_budget: u32,
    /// UMEM chunks of 4 KiB per worker; as many again once a port is in zero-copy mode.
    pub frames: u32,
    /// Descriptors per ring, a power of two; fewer where `frames` does not suffice for all ports.
    pub ring: u32,
    /// Ports to expect, srv6d's own veth included: the chunks are divided among them.
    pub ports: u32,
    /// What each worker's thread does first: it needs no privileges.
    pub worker_start: fn(),
}

/// Number of a published state of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Generation(pub u64);

/// What went wrong outside the packet path.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// AF_XDP.
    #[error(transparent)]
    Xsk(#[from] XskError),
    /// The tables cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A port has too few queues.
    #[error(
        "{device} has {queues} queue(s) for {workers} workers: give it as many (`ethtool -L {device} combined {workers}`, \
         or `ip link add ... numrxqueues {workers} numtxqueues {workers}` for a veth), or configure fewer cores"
    )]
    TooFewQueues {
        /// The port.
        device: String,
        /// Queues it has.
        queues: u32,
        /// Workers there are.
        workers: usize,
    },
    /// The system refused a thread or an event descriptor.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: std::io::Error,
    },
    /// More devices than are supported.
    #[error("{0}: more than {MAX_SOCKETS} devices")]
    TooManyDevices(String),
    /// The process may not open as many files as the port needs.
    #[error(
        "{device}: too few file descriptors: {in_use} of {limit} are in use, and a port takes up to {needed}. Fix: raise the \
         limit (`LimitNOFILE=` in the unit, `ulimit -Hn` in the shell that starts srv6d, `--ulimit nofile=` of a container), \
         or configure fewer ports"
    )]
    TooFewDescriptors {
        /// The port.
        device: String,
        /// Descriptors in use.
        in_use: u64,
        /// Soft limit of the process (`RLIMIT_NOFILE`).
        limit: u64,
        /// Descriptors that one more port may take.
        needed: u64,
    },
}

/// What is known of an attached device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedPort {
    /// Device.
    pub device: String,
    /// `zero-copy`, `native` or `generic`.
    pub mode: String,
    /// Why not a better one.
    pub reason: String,
    /// Queues that have a socket.
    pub queues: u32,
    /// Packets longer than one chunk can be received and sent.
    pub multi_buffer: bool,
    /// Plain shifts in the XDP program. `None`: not asked for.
    pub offload: Option<PortOffload>,
}

struct Worker {
    thread: Option<JoinHandle<()>>,
    commands: Sender<Command>,
    waker: Waker,
    umem: UmemHandle,
    zero_copy: Option<UmemHandle>,
    counters: Arc<WorkerCounters>,
}

impl Worker {
    fn tell(&self, command: Command) {
        let _ = self.commands.send(command); // a dead worker ends the process by itself
        self.waker.wake();
    }

    fn memory(&self, memory: PacketMemory) -> Option<&UmemHandle> {
        match memory {
            PacketMemory::Copy => Some(&self.umem),
            PacketMemory::ZeroCopy => self.zero_copy.as_ref(),
        }
    }
}

struct Device {
    program: Program,
    memory: PacketMemory,
    claim_all: bool,
    port: AttachedPort,
    /// By queue; empty: busy polling was not asked for.
    busy_polls: Vec<BusyPollWatch>,
    vlans: Vec<u16>,
}

/// What the sockets of a device have lost.
#[derive(Debug, Default)]
struct Losses {
    /// Those that are closed.
    before: u64,
    sockets: Vec<LossWatch>,
}

impl Losses {
    fn add(&mut self, sockets: impl Iterator<Item = LossWatch>) {
        let closed = self.sockets.extract_if(.., |socket| socket.is_closed());
        self.before += closed.map(|socket| socket.lost()).sum::<u64>();
        self.sockets.extend(sockets);
    }

    fn total(&self) -> u64 {
        self.before + self.sockets.iter().map(LossWatch::lost).sum::<u64>()
    }
}

/// Workers, ports and tables.
pub struct Dataplane {
    settings: Settings,
    rings: Rings,
    workers: Vec<Worker>,
    tables: Publisher,
    generation: u64,
    /// Socket numbers by device name; a device that comes back gets its number, and so its counters.
    numbers: BTreeMap<String, usize>,
    devices: BTreeMap<String, Device>,
    /// By device; they go on counting when it comes back.
    losses: BTreeMap<String, Losses>,
    /// Loaded with the first port.
    claim_program: Option<ClaimProgram>,
    views: views::Views,
    /// The device whose sockets were the first on the packet memory of zero-copy ports. The memory goes with it.
    zero_copy_first: Option<String>,
    in_front: offload::InFront,
    wanted: Receiver<(PortId, IpAddr)>,
    smaller_paths: Receiver<PathMtu>,
    /// Taken from there already.
    told_paths: Vec<PathMtu>,
    used: BTreeMap<usize, u64>,
    event: Arc<EventFd>,
    failed: Arc<AtomicBool>,
    taps: Arc<Taps>,
}

impl Dataplane {
    /// Starts the workers, on empty tables and without ports.
    ///
    /// # Errors
    /// No memory for packets, no thread, or no privilege for either.
    pub fn start(settings: Settings) -> Result<Self, DataplaneError> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|why| DataplaneError::System { what: "make an eventfd", why: why.into() })?;
        let (wanted_sender, wanted) = bounded(WANTED);
        let (smaller_path_sender, smaller_paths) = bounded(WANTED);
        let ring = ring_size(&settings);
        let mut dataplane = Self {
            rings: Rings { rx: ring, tx: ring },
            workers: Vec::new(),
            tables: Publisher::new(settings.cores.len()),
            generation: 0,
            numbers: BTreeMap::new(),
            devices: BTreeMap::new(),
            losses: BTreeMap::new(),
            claim_program: None,
            views: views::Views::default(),
            zero_copy_first: None,
            in_front: offload::InFront::default(),
            wanted,
            smaller_paths,
            told_paths: Vec::new(),
            used: BTreeMap::new(),
            event: Arc::new(event),
            failed: Arc::new(AtomicBool::new(false)),
            taps: Arc::default(),
            settings,
        };
        for worker in 0..dataplane.settings.cores.len() {
            let started = dataplane.start_worker(worker, wanted_sender.clone(), smaller_path_sender.clone())?;
            dataplane.workers.push(started);
        }
        let wakers: Vec<Waker> = dataplane.workers.iter().map(|worker| worker.waker.clone()).collect();
        dataplane.tables.on_change(move || wakers.iter().for_each(Waker::wake));
        Ok(dataplane)
    }

    fn umem(&self) -> Result<Umem, XskError> {
        let ring = ring_size(&self.settings);
        Umem::with_rings(self.settings.frames, UmemRings { fill: ring, completion: ring })
    }

    fn start_worker(
        &self,
        index: usize,
        wanted: Sender<(PortId, IpAddr)>,
        smaller_path: Sender<PathMtu>,
    ) -> Result<Worker, DataplaneError> {
        let umem = self.umem()?;
        let handle = umem.handle();
        let waker = Waker::new().map_err(|why| DataplaneError::System { what: "make an eventfd", why })?;
        let counters = Arc::new(WorkerCounters::default());
        let (sender, commands) = unbounded();
        let (event, bell) = (Arc::clone(&self.event), Arc::clone(&self.event));
        let step = Step::new(index, Arc::clone(&counters), move |port, neighbor| {
            if wanted.try_send((port, neighbor)).is_ok() {
                let _ = event.write(1); // EAGAIN: control is awake already
            }
        });
        let step = step.holding(held_packets(self.settings.frames));
        let step = step.tapped(Arc::clone(&self.taps)).on_smaller_path(move |path| {
            if smaller_path.try_send(path).is_ok() {
                let _ = bell.write(1); // EAGAIN: control is awake already
            }
        });
        let core = self.settings.cores.get(index).copied().flatten();
        let worker_start = self.settings.worker_start;
        let (reader, polling, own_waker) = (self.tables.reader(), self.settings.polling, waker.clone());
        let alarm = Alarm { failed: Arc::clone(&self.failed), event: Arc::clone(&self.event) };
        let thread = std::thread::Builder::new()
            .name(format!("srv6d-worker-{index}"))
            .spawn(move || {
                let alarm = alarm;
                worker_start();
                if let Some(core) = core
                    && !core_affinity::set_for_current(core_affinity::CoreId { id: core })
                {
                    tracing::warn!("worker {index}: cannot be pinned to core {core}");
                }
                worker::run(Rounds::new(Sockets::new(umem), step, reader, commands), &own_waker, polling);
                drop(alarm);
            })
            .map_err(|why| DataplaneError::System { what: "start a worker thread", why })?;
        Ok(Worker { thread: Some(thread), commands: sender, waker, umem: handle, zero_copy: None, counters })
    }

    /// Attached devices.
    pub fn attached(&self) -> impl Iterator<Item = &AttachedPort> {
        self.devices.values().map(|device| &device.port)
    }

    /// What has become of the busy polling of a device, by queue. Empty: it was not asked for.
    pub fn busy_polling(&self, device: &str) -> Vec<BusyPolling> {
        let watches = self.devices.get(device).map(|device| device.busy_polls.as_slice());
        watches.unwrap_or_default().iter().map(BusyPollWatch::now).collect()
    }

    /// Copies of what workers receive and send on a device, from now on; `None`: it has never been attached. Meanwhile
    /// workers have all packets, also those of `offload = "xdp"`.
    pub fn capture(&mut self, device: &str) -> Option<Capture> {
        let capture = self.numbers.get(device).map(|&number| self.taps.open(number))?;
        self.refresh_offload();
        Some(capture)
    }

    /// Compiles `desired` and puts it in force: every packet sees all of it or none. Counters of SIDs and paths go on.
    ///
    /// # Errors
    /// [`BuildError`]: the old state stays in force.
    pub fn publish(&mut self, desired: &Desired) -> Result<Generation, DataplaneError> {
        self.publish_shared(Arc::new(desired.clone()))
    }

    /// The same without a copy of `desired`.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_shared(&mut self, desired: Arc<Desired>) -> Result<Generation, DataplaneError> {
        self.publish_snapshot(Some(desired))?;
        self.generation += 1;
        self.claim()?;
        self.sync_offload();
        Ok(Generation(self.generation))
    }

    /// A snapshot of `desired`, or of what is in force with the ports as they are now.
    fn publish_snapshot(&mut self, desired: Option<Arc<Desired>>) -> Result<(), BuildError> {
        self.reuse_slots();
        let (tables, numbers, devices) = (&mut self.tables, &self.numbers, &self.devices);
        tables.publish(desired, |desired, slots| wiring(desired, slots, numbers, devices))
    }

    /// Gives counters of what is gone to what comes, if neither a worker nor the XDP program writes to them any more.
    fn reuse_slots(&mut self) {
        if !self.tables.has_released() || !self.in_front.settle() {
            return;
        }
        let Some(released) = self.tables.take_released() else { return };
        self.in_front.clear(&released);
        // What routers have said about paths that are gone.
        let is_of_present = |told: &PathMtu| !released.paths.contains(&told.path);
        self.told_paths.extend(self.smaller_paths.try_iter().filter(is_of_present));
        self.used.retain(|&slot, _| u32::try_from(slot).is_ok_and(|slot| !released.adjacencies.contains(&slot)));
        self.tables.reuse_slots(released);
    }

    /// What is in force.
    pub fn desired(&self) -> &Desired {
        self.tables.desired()
    }

    /// The same, to be kept. While anybody keeps it, an amendment has to copy it first.
    pub fn desired_shared(&self) -> Arc<Desired> {
        Arc::clone(self.tables.desired())
    }

    /// How tables have come into force so far.
    pub fn published(&self) -> Published {
        self.tables.published()
    }

    /// Its number.
    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Next hops of the tables in force, and how they stand.
    pub fn next_hops(&self) -> Vec<(PortId, IpAddr, AdjacencyState)> {
        self.tables.current().tables.next_hops().collect()
    }

    /// Bytes held by the prefix tables, and the number of prefixes.
    pub fn table_size(&self) -> (usize, usize) {
        let snapshot = self.tables.current();
        (snapshot.tables.memory(), snapshot.tables.prefixes())
    }

    /// All counters now.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for worker in &self.workers {
            worker.counters.add_to(&mut counters.total);
        }
        for (name, &number) in &self.numbers {
            let device = self.device_counters(name, number);
            counters.total.rx += device.offloaded;
            counters.total.tx += device.offloaded;
            counters.total.offloaded += device.offloaded;
            counters.devices.push(device);
        }
        let tallies = self.tables.all_tallies();
        let sum = |slot: usize, pick: fn(&Tally) -> &[Count]| {
            tallies
                .iter()
                .filter_map(|tally| pick(tally).get(slot))
                .map(Count::read)
                .fold((0, 0), |(packets, bytes), (p, b)| (packets + p, bytes + b))
        };
        for (sid, slot) in self.tables.slots().sids.iter() {
            let (packets, bytes) = with(sum(slot, |tally| &tally.sids), self.in_front.sid(slot));
            counters.sids.push(SidCounters { sid: sid.to_string(), packets, bytes });
        }
        for (path, slot) in self.tables.slots().paths.iter() {
            let (packets, bytes) = with(sum(slot, |tally| &tally.paths), self.in_front.path(slot));
            counters.paths.push(PathCounters { path: path.clone(), packets, bytes });
        }
        for (port, slot) in self.tables.slots().vlans.iter() {
            let (rx_packets, rx_bytes) = sum(slot, |tally| &tally.vlans_rx);
            let (tx_packets, tx_bytes) = sum(slot, |tally| &tally.vlans_tx);
            counters.vlans.push(VlanCounters { port: port.clone(), rx_packets, rx_bytes, tx_packets, tx_bytes });
        }
        for ((port, address), slot) in self.tables.slots().adjacencies.iter() {
            let (packets, bytes) = with(sum(slot, |tally| &tally.adjacencies), self.in_front.hop(slot));
            counters.next_hops.push(NextHopCounters {
                port: port.clone(),
                address: address.to_string(),
                packets,
                bytes,
            });
        }
        counters.ecn_unused = tallies.iter().map(|tally| tally.ecn_unused.read().0).sum();
        counters
    }

    fn device_counters(&self, name: &str, number: usize) -> DeviceCounters {
        let mut counters = DeviceCounters { name: name.to_owned(), ..DeviceCounters::default() };
        for worker in &self.workers {
            worker.counters.add_socket_to(number, &mut counters);
        }
        let of_program = self.claim_program.as_ref().zip(u32::try_from(number).ok());
        let counts = of_program.and_then(|(program, number)| program.counts(number).ok()).unwrap_or_default();
        counters.to_kernel = counts.passed;
        counters.rx_refused += counts.dropped;
        counters.rx_dropped = self.losses.get(name).map_or(0, Losses::total);
        let (received, sent) = (self.in_front.received(number), self.in_front.sent(number));
        counters.offloaded = received.packets;
        counters.rx_packets += received.packets;
        counters.rx_bytes += received.bytes;
        counters.tx_packets += sent.packets;
        counters.tx_bytes += sent.bytes;
        counters
    }

    /// Takes the next hops that packets wait for, each once.
    pub fn wanted_neighbors(&self) -> Vec<(PortId, IpAddr)> {
        let _ = self.event.read(); // EAGAIN: nobody rang
        let wanted: BTreeSet<_> = self.wanted.try_iter().collect();
        wanted.into_iter().collect()
    }

    /// Takes what routers have said about paths since the last call: segments, and the largest outer packet in bytes.
    pub fn smaller_paths(&mut self) -> BTreeMap<SegmentList, u32> {
        let told = std::mem::take(&mut self.told_paths).into_iter().chain(self.smaller_paths.try_iter());
        PathMtu::by_segments(told, self.tables.slots(), self.tables.desired())
    }

    /// Next hops that packets went to since the last call.
    pub fn used_neighbors(&mut self) -> Vec<(PortId, IpAddr)> {
        self.tables.free_retired();
        let tallies = self.tables.all_tallies();
        let mut used = Vec::new();
        for (port, address, _) in self.next_hops() {
            let Some(name) = self.tables.desired().ports.get(usize::from(port.0)).map(|port| port.name.clone()) else {
                continue;
            };
            let Some(slot) = self.tables.slots().adjacencies.find(&(name, address)) else { continue };
            let by_workers: u64 =
                tallies.iter().filter_map(|tally| tally.adjacencies.get(slot)).map(|count| count.read().0).sum();
            let packets = by_workers + self.in_front.hop(slot).packets;
            if self.used.insert(slot, packets) != Some(packets) && packets > 0 {
                used.push((port, address));
            }
        }
        used
    }

    /// False once a worker has died: nothing forwards any more, and the process must end.
    pub fn healthy(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }

    /// Makes one worker panic, so that what follows from that can be tested.
    pub fn break_a_worker(&self) {
        if let Some(worker) = self.workers.last() {
            worker.tell(Command::Panic);
        }
    }

    /// Readable when [`wanted_neighbors`](Self::wanted_neighbors) or [`smaller_paths`](Self::smaller_paths) has
    /// something, or a worker has died.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Gives the ports back to the kernel, forwards what is in the rings, and ends the workers.
    pub fn stop(mut self) -> Counters {
        self.end_workers();
        self.counters()
    }

    fn end_workers(&mut self) {
        self.devices.clear();
        self.workers.iter().for_each(|worker| worker.tell(Command::Stop));
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join(); // its panic is known by `failed`
            }
        }
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        self.end_workers();
    }
}

fn with((packets, bytes): (u64, u64), offloaded: PacketCount) -> (u64, u64) {
    (packets + offloaded.packets, bytes + offloaded.bytes)
}

/// Tables that packets of a device's ports are looked up in.
fn tables_of(desired: &Desired, name: &str) -> BTreeSet<TableId> {
    let is_of_device =
        |port: &&Port| desired.ports.get(usize::from(port.device)).is_some_and(|device| device_name(device) == name);
    desired.ports.iter().filter(is_of_device).map(|port| port.table).collect()
}

fn wiring(
    desired: &Desired,
    slots: &Slots,
    numbers: &BTreeMap<String, usize>,
    devices: &BTreeMap<String, Device>,
) -> Wiring {
    let attached = |name: &str| numbers.get(name).copied().filter(|_| devices.contains_key(name));
    let device = |port: &Port| desired.ports.get(usize::from(port.device)).map(device_name);
    let socket_of: Vec<Option<usize>> = desired.ports.iter().map(|port| device(port).and_then(attached)).collect();
    let mut port_of = vec![None; numbers.len()];
    for (index, port) in (0u16..).zip(&desired.ports) {
        let socket = socket_of.get(usize::from(index)).copied().flatten();
        if let (true, Some(slot)) = (port.device == index, socket.and_then(|socket| port_of.get_mut(socket))) {
            *slot = Some(index);
        }
    }
    let vlans = vlans(desired, &socket_of, slots, numbers.len());
    Wiring { socket_of, port_of, vlans }
}

/// Name of the network device: that of its untagged port, or the parent part of `device.vid`.
fn device_name(port: &srv6d_srv6::model::Port) -> &str {
    match port.vlan {
        Some(vid) => port.name.strip_suffix(&format!(".{vid}")).unwrap_or(&port.name),
        None => &port.name,
    }
}

/// Tagged ports by socket, with the slots of their counters; nothing at all where no port is tagged.
fn vlans(desired: &Desired, socket_of: &[Option<usize>], slots: &Slots, sockets: usize) -> Vec<Vec<(u16, usize)>> {
    let mut vlans = Vec::new();
    for (port, socket) in desired.ports.iter().zip(socket_of) {
        let (Some(vid), Some(socket), Some(slot)) = (port.vlan, *socket, slots.vlans.find(&port.name)) else {
            continue;
        };
        vlans.resize(sockets, Vec::new());
        if let Some(vlans) = vlans.get_mut(socket) {
            vlans.push((vid, slot));
        }
    }
    vlans
}

/// Largest power of two that leaves half of the chunks to the pool when every port has filled its ring.
fn ring_size(settings: &Settings) -> u32 {
    let share = settings.frames / (2 * (settings.ports.max(1) + 1));
    let power = 1 << share.max(1).ilog2();
    power.clamp(MIN_RING, settings.ring.max(MIN_RING))
}

/// Packets of one worker that may wait for their next hops: an eighth of its chunks, all of which are in one memory.
fn held_packets(frames: u32) -> usize {
    usize::try_from(frames / 8).unwrap_or(usize::MAX).clamp(1, MOST_HELD)
}

/// Tells control when a worker ends by a panic.
struct Alarm {
    failed: Arc<AtomicBool>,
    event: Arc<EventFd>,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed.store(true, Ordering::Release);
            let _ = self.event.write(1); // EAGAIN: control is awake already
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // a failed test may panic, and one panics on purpose
mod tests {
    use super::*;

    #[test]
    fn a_panic_rings_the_alarm_and_a_quiet_end_does_not() {
        for panics in [true, false] {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let event = Arc::new(EventFd::from_value_and_flags(0, flags).unwrap());
            let failed = Arc::new(AtomicBool::new(false));
            let alarm = Alarm { failed: Arc::clone(&failed), event: Arc::clone(&event) };
            let worker = std::thread::spawn(move || {
                let _alarm = alarm;
                assert!(!panics, "on purpose");
            });
            assert_eq!(worker.join().is_err(), panics);
            assert_eq!((failed.load(Ordering::Acquire), event.read().is_ok()), (panics, panics));
        }
    }

    #[test]
    fn rings_leave_half_of_the_chunks_to_the_pool() {
        let settings = |frames, ports, ring| Settings {
            cores: vec![None],
            polling: Polling::Busy,
            busy_budget: 0,
            frames,
            ring,
            ports,
            worker_start: || {},
        };
        for (frames, ports, ring) in [(8192, 3, 2048), (8192, 33, 2048), (4096, 9, 256)] {
            let size = ring_size(&settings(frames, ports, ring));
            assert!(size.is_power_of_two() && size <= ring && size * ports <= frames / 2, "{size}");
        }
        assert_eq!(ring_size(&settings(64, 9, 2048)), MIN_RING);
    }
}
