//! [`Dataplane`]: the handle through which control uses the packet path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;
use srv6d_balance::FarPorts;
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{Desired, Port, PortId, TableId};
use srv6d_srv6::tally::{ChoiceCount, Count, Tally};
use srv6d_srv6::trail::MatchKind;
use srv6d_srv6::{AdjacencyState, BuildError, PathMtu, Slots};
use srv6d_xsk::arrivals::Arrivals;
use srv6d_xsk::xdp_offload::PacketCount;
use srv6d_xsk::{
    BusyPollWatch, BusyPolling, ClaimProgram, LossWatch, Mode, Program, Rings, Umem, UmemHandle, UmemRings, Waker,
    XskError,
};

use crate::capture::{Capture, Taps};
use crate::counters::{
    ChoiceCounters, Counters, DeviceCounters, MAX_SOCKETS, NextHopCounters, PathCounters, QueueCounters, SidCounters,
    VlanCounters, WorkerCounters,
};
use crate::drops::Dropped;
use crate::explain::{self, Explained};
use crate::left_right::{EmulatedPort, Published, Publisher, Wiring};
use crate::step::Step;
use crate::worker::{self, Command, PacketMemory, Sockets, WorkerLoop};
use crate::workload::Workload;

mod amend;
mod arrivals;
mod attach;
mod delivery;
mod descriptors;
mod hand_over;
mod local;
mod offload;
mod tap;
mod traffic;
mod views;

pub use local::WhyWorker;
pub use offload::{PortOffload, offload_wiring};
pub use traffic::PortTraffic;

/// Largest number of reports that wait for control: wanted next hops, and paths with a smaller MTU.
const WANTED: usize = 1024;
/// Largest number of held packets of one worker, however many chunks it has.
const MOST_HELD: usize = 1024;
/// Smallest fill ring that still takes a burst.
const MIN_RING: u32 = 64;

/// How workers wait for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Workers never sleep. Each needs a core of its own.
    Busy,
    /// Workers spin for a short time, then sleep in poll(2).
    #[default]
    Adaptive,
}

/// Settings with which a [`Dataplane`] is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One worker per item. `Some` pins it to this core.
    pub cores: Vec<Option<usize>>,
    /// How workers wait.
    pub polling: Polling,
    /// Number of packets that a driver may receive in one system call of a worker (preferred busy polling). 0 means
    /// that drivers receive in interrupts.
    pub busy_budget: u32,
    /// UMEM chunks of 4 KiB per worker. The first port in zero-copy mode adds the same number.
    pub frames: u32,
    /// Descriptors per ring, a power of two. The rings are smaller if `frames` does not suffice for all ports.
    pub ring: u32,
    /// Expected number of ports, the veth of srv6d included. The chunks are divided among them.
    pub ports: u32,
    /// Function that each worker's thread calls first. It needs no privileges.
    pub worker_start: fn(),
}

/// Number of a published state of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Generation(pub u64);

/// An error outside of the packet path.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// AF_XDP failed.
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
        /// Name of the device.
        device: String,
        /// Number of queues of the device.
        queues: u32,
        /// Number of workers.
        workers: usize,
    },
    /// The system refused a thread or an event descriptor.
    #[error("cannot {what}: {why}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        why: std::io::Error,
    },
    /// There are more devices than are supported.
    #[error("{0}: more than {MAX_SOCKETS} devices")]
    TooManyDevices(String),
    /// The process may not open as many files as the port needs.
    #[error(
        "{device}: too few file descriptors: {in_use} of {limit} are in use, and a port takes up to {needed}. Fix: raise the \
         limit (`LimitNOFILE=` in the unit, `ulimit -Hn` in the shell that starts srv6d, `--ulimit nofile=` of a container), \
         or configure fewer ports"
    )]
    TooFewDescriptors {
        /// Name of the device.
        device: String,
        /// Descriptors in use.
        in_use: u64,
        /// Soft limit of the process (`RLIMIT_NOFILE`).
        limit: u64,
        /// Number of descriptors that one more port may need.
        needed: u64,
    },
}

/// The state of an attached device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedPort {
    /// Name of the device.
    pub device: String,
    /// `zero-copy`, `native` or `generic`; `tc` if a tc program claims packets in place of the XDP program.
    pub mode: String,
    /// The reason why the mode is not a faster one.
    pub reason: String,
    /// Queues that have a socket.
    pub queues: u32,
    /// Whether packets longer than one chunk can be received and sent.
    pub multi_buffer: bool,
    /// State of the offload on this device. `None` means that it was not requested.
    pub offload: Option<PortOffload>,
}

struct WorkerHandle {
    thread: Option<JoinHandle<()>>,
    commands: Sender<Command>,
    waker: Waker,
    umem: UmemHandle,
    zero_copy: Option<UmemHandle>,
    counters: Arc<WorkerCounters>,
}

impl WorkerHandle {
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
    /// Busy polling by queue. It is empty if busy polling was not requested.
    busy_polls: Vec<BusyPollWatch>,
    vlans: Vec<u16>,
    /// The mode that was asked for.
    asked_mode: Mode,
    /// The tc program that claims packets in place of the XDP program.
    arrivals: Option<Arrivals>,
}

/// Packets that the sockets of a device have lost.
#[derive(Debug, Default)]
struct Losses {
    /// Packets lost by sockets that are closed by now.
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
    workers: Vec<WorkerHandle>,
    tables: Publisher,
    generation: u64,
    /// Socket numbers by device name. A device that comes back gets its old number, and so its counters.
    numbers: BTreeMap<String, usize>,
    devices: BTreeMap<String, Device>,
    /// Losses by device. They continue to count when a device comes back.
    losses: BTreeMap<String, Losses>,
    /// The XDP program, which is loaded with the first port.
    claim_program: Option<ClaimProgram>,
    views: views::Views,
    own_sources: views::OwnSourceSets,
    /// The device whose sockets were the first in the zero-copy memory. When this device is detached, the memory is
    /// freed.
    zero_copy_first: Option<String>,
    in_front: offload::InFront,
    /// The reason why the tc program is not used in place of the XDP program. It is tried again when a port is
    /// attached.
    arrivals_refused: Option<String>,
    /// Name of the kernel's end of the own veth.
    kernel_end: String,
    wanted: Receiver<(PortId, IpAddr)>,
    smaller_paths: Receiver<PathMtu>,
    /// Reports that were taken from `smaller_paths` before counters were reused, and that control has not fetched yet.
    told_paths: Vec<PathMtu>,
    used: BTreeMap<usize, u64>,
    event: Arc<EventFd>,
    failed: Arc<AtomicBool>,
    taps: Arc<Taps>,
    far: Arc<FarPorts>,
}

impl Dataplane {
    /// Starts the workers with empty tables and without ports.
    ///
    /// # Errors
    /// Returns an error if there is no memory for packets, no thread, or no privilege for either.
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
            own_sources: views::OwnSourceSets::default(),
            zero_copy_first: None,
            in_front: offload::InFront::default(),
            arrivals_refused: None,
            kernel_end: String::new(),
            wanted,
            smaller_paths,
            told_paths: Vec::new(),
            used: BTreeMap::new(),
            event: Arc::new(event),
            failed: Arc::new(AtomicBool::new(false)),
            taps: Arc::default(),
            far: Arc::default(),
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
    ) -> Result<WorkerHandle, DataplaneError> {
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
        let step = step.holding(held_packets(self.settings.frames)).seeing_far(Arc::clone(&self.far));
        let step = step.handing_over(self.in_front.hand_over.told()).tapped(Arc::clone(&self.taps)).on_smaller_path(
            move |path| {
                if smaller_path.try_send(path).is_ok() {
                    let _ = bell.write(1); // EAGAIN: control is awake already
                }
            },
        );
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
                worker::run(WorkerLoop::new(Sockets::new(umem), step, reader, commands), &own_waker, polling);
                drop(alarm);
            })
            .map_err(|why| DataplaneError::System { what: "start a worker thread", why })?;
        Ok(WorkerHandle { thread: Some(thread), commands: sender, waker, umem: handle, zero_copy: None, counters })
    }

    /// Returns core and workload of each worker.
    pub fn workloads(&self) -> impl Iterator<Item = (Option<usize>, Workload)> {
        let workloads = self.workers.iter().map(|worker| worker.counters.read_workload());
        self.settings.cores.iter().copied().zip(workloads)
    }

    /// Returns how workers wait.
    pub const fn polling(&self) -> Polling {
        self.settings.polling
    }

    /// Returns the attached devices.
    pub fn attached(&self) -> impl Iterator<Item = &AttachedPort> {
        self.devices.values().map(|device| &device.port)
    }

    /// Returns the state of busy polling of a device, by queue. It is empty if busy polling was not requested.
    pub fn busy_polling(&self, device: &str) -> Vec<BusyPolling> {
        let watches = self.devices.get(device).map(|device| device.busy_polls.as_slice());
        watches.unwrap_or_default().iter().map(BusyPollWatch::now).collect()
    }

    /// Starts a capture of devices, those that were never attached left out. Returns also the devices by socket number. The XDP
    /// program goes on to forward, and copies what it does. The tc program of srv6d's own veth rests while a capture is open.
    pub fn capture(&mut self, devices: &[String]) -> (Capture, BTreeMap<usize, String>) {
        let capture = self.taps.open(devices.iter().filter_map(|device| self.numbers.get(device)).copied());
        self.refresh_offload();
        (capture, self.numbers.iter().map(|(device, number)| (*number, device.clone())).collect())
    }

    /// Compiles `desired` and puts it in force: every packet sees all of it or none. Counters of SIDs and paths
    /// continue.
    ///
    /// # Errors
    /// Returns [`BuildError`] if it cannot be compiled. The old state stays in force.
    pub fn publish(&mut self, desired: &Desired) -> Result<Generation, DataplaneError> {
        self.publish_snapshot(Some(Arc::new(desired.clone())))?;
        self.generation += 1;
        // In front of the rules of ports, which only the XDP program keeps.
        self.sync_arrivals();
        self.claim()?;
        self.sync_offload();
        Ok(Generation(self.generation))
    }

    /// Compiles and publishes `desired`, or the state in force again with the present ports if it is `None`.
    fn publish_snapshot(&mut self, desired: Option<Arc<Desired>>) -> Result<(), BuildError> {
        self.reuse_slots();
        let (tables, numbers, devices) = (&mut self.tables, &self.numbers, &self.devices);
        tables.publish(desired, |desired, slots| wiring(desired, slots, numbers, devices))
    }

    /// Assigns the counters of removed entries to new ones, if neither a worker nor the XDP program writes to them any
    /// more.
    fn reuse_slots(&mut self) {
        if !self.tables.has_released() || !self.in_front.settle() {
            return;
        }
        let Some(released) = self.tables.take_released() else { return };
        self.in_front.clear(&released);
        // Reports about paths that have been removed are left out.
        let is_of_present = |told: &PathMtu| !released.paths.contains(&told.path);
        self.told_paths.extend(self.smaller_paths.try_iter().filter(is_of_present));
        self.used.retain(|&slot, _| u32::try_from(slot).is_ok_and(|slot| !released.adjacencies.contains(&slot)));
        self.tables.reuse_slots(released);
    }

    /// Returns the desired state in force.
    pub fn desired(&self) -> &Desired {
        self.tables.desired()
    }

    /// Returns how many tables have come into force so far, and by which means.
    pub fn published(&self) -> Published {
        self.tables.published()
    }

    /// Returns the number of the generation in force.
    pub fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Explains what the tables in force do with a frame that is received on a port.
    pub fn explain(&self, port: PortId, frame: &[u8]) -> Explained {
        explain::explain(&self.tables.current().tables, self.tables.slots(), port.0, frame)
    }

    /// Returns the last packets that were dropped for each reason, each with its worker and the name of its device.
    pub fn last_drops(&self) -> Vec<(usize, String, Dropped)> {
        let name =
            |socket: usize| self.numbers.iter().find(|(_, number)| **number == socket).map(|(name, _)| name.clone());
        let of_worker = |(number, worker): (usize, &WorkerHandle)| {
            let dropped = worker.counters.last_drops();
            dropped.into_iter().map(move |dropped| (number, name(dropped.socket).unwrap_or_default(), dropped))
        };
        self.workers.iter().enumerate().flat_map(of_worker).collect()
    }

    /// Explains what the tables in force do with a dropped packet, of which only the first bytes are known. Returns `None`
    /// if it was about to leave, or the device is no port any more.
    pub fn explain_dropped(&self, dropped: &Dropped) -> Option<Explained> {
        let snapshot = self.tables.current();
        let port = snapshot.wiring.port_of.get(dropped.socket).copied().flatten().filter(|_| !dropped.is_leaving)?;
        Some(explain::explain_head(&snapshot.tables, self.tables.slots(), port, &dropped.head, dropped.length))
    }

    /// Returns what the longest match of an address leads to, in the tables in force.
    pub fn longest_match(&self, table: TableId, address: IpAddr) -> Option<MatchKind> {
        self.tables.current().tables.longest_match(table, address)
    }

    /// Returns the next hops of the tables in force, with their state.
    pub fn next_hops(&self) -> Vec<(PortId, IpAddr, AdjacencyState)> {
        self.tables.current().tables.next_hops().collect()
    }

    /// Returns the present values of all counters.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for worker in &self.workers {
            worker.counters.add_to(&mut counters.total);
        }
        // The delivered packets are part of the received ones, so their counter is read first.
        let delivered = self.in_front.delivered();
        for (name, &number) in &self.numbers {
            let device = self.device_counters(name, number);
            counters.total.rx += device.offloaded;
            counters.total.tx += device.offloaded;
            counters.total.offloaded += device.offloaded;
            counters.devices.push(device);
        }
        counters.total.tx -= delivered;
        counters.total.kernel += delivered;
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
            let choices = choices(&tallies, slot, |tally| &tally.path_choices);
            counters.paths.push(PathCounters { path: path.clone(), packets, bytes, choices });
        }
        for (port, slot) in self.tables.slots().vlans.iter() {
            let received = sum(slot, |tally| &tally.vlans_rx);
            let (rx_packets, rx_bytes) = with(received, self.in_front.vlan_received(slot));
            let (tx_packets, tx_bytes) = with(sum(slot, |tally| &tally.vlans_tx), self.in_front.vlan_sent(slot));
            counters.vlans.push(VlanCounters { port: port.clone(), rx_packets, rx_bytes, tx_packets, tx_bytes });
        }
        for ((port, address), slot) in self.tables.slots().adjacencies.iter() {
            let (packets, bytes) = with(sum(slot, |tally| &tally.adjacencies), self.in_front.hop(slot));
            counters.next_hops.push(NextHopCounters {
                port: port.clone(),
                address: address.to_string(),
                packets,
                bytes,
                choices: choices(&tallies, slot, |tally| &tally.hop_choices),
            });
        }
        counters.evicted_flows = tallies.iter().map(|tally| tally.evicted.read().0).sum();
        counters.ecn_unused = tallies.iter().map(|tally| tally.ecn_unused.read().0).sum();
        counters
    }

    fn device_counters(&self, name: &str, number: usize) -> DeviceCounters {
        let mut counters = DeviceCounters { name: name.to_owned(), ..DeviceCounters::default() };
        for worker in &self.workers {
            worker.counters.add_socket_to(number, &mut counters);
        }
        counters.queue = self.is_emulated(name).then(|| self.queue_counters(number));
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

    fn queue_counters(&self, number: usize) -> QueueCounters {
        let mut counters = QueueCounters::default();
        self.workers.iter().for_each(|worker| worker.counters.add_queue_to(number, &mut counters));
        counters
    }

    /// Returns true if the device is an emulated port.
    fn is_emulated(&self, name: &str) -> bool {
        let desired = self.tables.desired();
        let ports = desired.emulated.keys().filter_map(|port| desired.ports.get(usize::from(port.0)));
        ports.map(device_name).any(|device| device == name)
    }

    /// Returns why the workers send everything that leaves through a device. `None`: XDP programs may send, too.
    fn why_workers_send(&self, name: &str) -> Option<&'static str> {
        if self.is_emulated(name) {
            return Some("the port is emulated");
        }
        let desired = self.tables.desired();
        let rates = desired.balance.settings.rates.keys().filter(|_| desired.balance.settings.needs_samples());
        let mut ports = rates.filter_map(|port| desired.ports.get(usize::from(port.0)));
        ports.any(|port| device_name(port) == name).then_some("a policy of [[balance]] judges its load")
    }

    /// Returns the next hops that packets wait for, each once, and forgets them.
    pub fn wanted_neighbors(&self) -> Vec<(PortId, IpAddr)> {
        let _ = self.event.read(); // EAGAIN: nobody rang
        let wanted: BTreeSet<_> = self.wanted.try_iter().collect();
        wanted.into_iter().collect()
    }

    /// Returns the path MTUs that routers have reported since the last call: segments, and the largest outer packet
    /// in bytes.
    pub fn smaller_paths(&mut self) -> BTreeMap<SegmentList, u32> {
        let told = std::mem::take(&mut self.told_paths).into_iter().chain(self.smaller_paths.try_iter());
        PathMtu::by_segments(told, self.tables.slots(), self.tables.desired())
    }

    /// Returns the next hops that packets went to since the last call.
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

    /// Returns false if a worker has died. Then nothing forwards any more, and the process must end.
    pub fn healthy(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }

    /// Makes one worker panic, so that tests can observe the effect.
    #[cfg(feature = "faults")]
    pub fn break_a_worker(&self) {
        if let Some(worker) = self.workers.last() {
            worker.tell(Command::Panic);
        }
    }

    /// Returns a descriptor that is readable when [`wanted_neighbors`](Self::wanted_neighbors) or
    /// [`smaller_paths`](Self::smaller_paths) has something, or a worker has died.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Gives the ports back to the kernel, forwards the packets in the rings, and ends the workers.
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

/// Returns the tables in which packets from a device's ports are looked up.
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
    let emulated = emulated(desired, &socket_of, numbers.len());
    let own_veth = devices.iter().find(|(_, device)| device.claim_all).and_then(|(name, _)| attached(name));
    Wiring { socket_of, port_of, vlans, emulated, own_veth }
}

/// Returns the name of the network device: that of its untagged port, or the parent part of `device.vid`.
fn device_name(port: &srv6d_srv6::desired::Port) -> &str {
    match port.vlan {
        Some(vid) => port.name.strip_suffix(&format!(".{vid}")).unwrap_or(&port.name),
        None => &port.name,
    }
}

/// Returns the choices of a member, by the slot of its counters.
fn choices(tallies: &[Arc<Tally>], slot: usize, pick: fn(&Tally) -> &[ChoiceCount]) -> ChoiceCounters {
    let mut sum = ChoiceCounters::default();
    for (flowlets, moves) in tallies.iter().filter_map(|tally| pick(tally).get(slot)).map(ChoiceCount::read) {
        sum.flowlets += flowlets;
        sum.moves.iter_mut().zip(moves).for_each(|(sum, moves)| *sum += moves);
    }
    sum
}

/// Returns the emulated ports by socket. The list is empty if there are none.
fn emulated(desired: &Desired, socket_of: &[Option<usize>], sockets: usize) -> Vec<Option<EmulatedPort>> {
    let mut emulated = Vec::new();
    for (port, &emulation) in &desired.emulated {
        let index = usize::from(port.0);
        let (Some(port), Some(socket)) = (desired.ports.get(index), socket_of.get(index).copied().flatten()) else {
            continue;
        };
        emulated.resize(sockets, None);
        if let Some(place) = emulated.get_mut(socket) {
            *place = Some(EmulatedPort { device: device_name(port).to_owned(), emulation, is_up: port.up });
        }
    }
    emulated
}

/// Returns the tagged ports by socket, with the slots of their counters. The list is empty if no port is tagged.
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

/// Returns the ring size: the largest power of two with which half of the chunks stay in the pool when every port has
/// filled its ring.
fn ring_size(settings: &Settings) -> u32 {
    let share = settings.frames / (2 * (settings.ports.max(1) + 1));
    let power = 1 << share.max(1).ilog2();
    power.clamp(MIN_RING, settings.ring.max(MIN_RING))
}

/// Returns the largest number of held packets of one worker: an eighth of its chunks in one memory.
fn held_packets(frames: u32) -> usize {
    usize::try_from(frames / 8).unwrap_or(usize::MAX).clamp(1, MOST_HELD)
}

/// Tells control when a worker has panicked.
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
