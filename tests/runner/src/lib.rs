//! Runs conformance cases: through the real worker step over ports in memory (without root and sockets), through a real
//! `srv6d`, and through a Linux kernel, the last two in network namespaces.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod front;
pub mod gaps;
pub mod kernel;
pub mod namespace;
pub mod sonic;
pub mod tagged;
pub mod wires;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use srv6d_config as config;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{EmulatedPort, Snapshot, Step, Totals, WorkerCounters};
use srv6d_pack::{Case, Event, Setup};
use srv6d_plan::{self as plan, Device, Environment, HostVeth, KernelNeighbor};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::desired::{Desired, Emulation, Mac, Port, PortId, Role};
use srv6d_srv6::{PathMtu, Slots, Tables, Tally, Verdict};

use front::{Applications, Front};

/// Number of times that a case is run, so that the destination cache is in different states. The first two times
/// destinations are searched for, because after a miss the cache is bypassed for one burst. The other two times they
/// are found in the cache: first with the look-up for tables that are new to the worker, then with the usual look-up.
const TIMES: u64 = 4;
/// Nanoseconds between two runs, so that rate limits start again.
const APART: u64 = 1_000_000_000_000;

/// Runs a case several times through one worker; the result must be the same each time.
///
/// # Errors
/// The difference from what the pack states, in readable form.
pub fn run(case: &Case) -> Result<(), String> {
    run_behind(case, None).map(|_| ())
}

/// Like [`run`], but every port is emulated at a rate that the case never reaches. Frames, counters and verdicts must be the
/// same.
///
/// # Errors
/// The difference, in readable form.
pub fn run_emulated(case: &Case) -> Result<(), String> {
    run_on(case, None, true).map(|_| ())
}

/// Like [`run`], but with the XDP program of `offload = "xdp"` in front of the step, on every port, or with the tc program
/// ([`Front::for_applications`]). Returns the number of frames that the program forwarded.
///
/// # Errors
/// The difference, in readable form.
pub fn run_behind(case: &Case, front: Option<Front>) -> Result<u64, String> {
    run_on(case, front, false)
}

fn run_on(case: &Case, front: Option<Front>, is_emulated: bool) -> Result<u64, String> {
    let planned = desired(&case.setup.config, &environment(&case.setup));
    let desired_now = match (&case.refused, planned) {
        (None, planned) => planned?,
        (Some(text), Err(why)) if why.to_lowercase().contains(&text.to_lowercase()) => return Ok(0),
        (Some(text), Err(why)) => return Err(format!("refused, but without the words {text:?}:\n{why}")),
        (Some(text), Ok(desired)) => {
            let built = Tables::build(&desired, &mut Slots::default());
            return match built {
                Err(why) if why.to_string().contains(text) => Ok(0),
                _ => Err(format!("accepted, and should have been refused with {text:?}")),
            };
        }
    };
    let mut node = Node::behind(&desired_now, front)?;
    if is_emulated {
        node.emulate();
    }
    for time in 1..=TIMES {
        judge(&mut node, case).map_err(|why| format!("played for time {time}: {why}"))?;
    }
    Ok(node.front.as_ref().map_or(0, Front::forwarded))
}

fn judge(node: &mut Node, case: &Case) -> Result<(), String> {
    node.begin();
    let before = node.counters()?;
    let mut all = Vec::new();
    node.play(case, &|desired| desired, |number, sent| {
        let step = case.steps.get(number).ok_or("no such step")?;
        step.check(&sent).map_err(|diff| format!("step {}: {diff}", number + 1))?;
        all.extend(sent);
        Ok(())
    })?;
    case.check_properties(&all).map_err(|diff| diff.to_string())?;
    let mut counters = node.counters()?;
    for (name, count) in &mut counters {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    case.check_counters(&counters).map_err(|diff| diff.to_string())
}

/// Result of running a case.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Port and bytes of the frames sent in each step, sorted.
    pub sent: Vec<Vec<(String, Vec<u8>)>>,
    /// Counters by their names in the pack.
    pub counters: BTreeMap<String, u64>,
    /// Frames that the program in front forwarded, as they were received.
    pub offloaded: Vec<Vec<u8>>,
}

/// Runs a case on a node whose ports all have another role. The result is not compared with the pack, which applies to
/// the original roles. Returns `None` if the configuration of the case is to be refused.
///
/// # Errors
/// If the node cannot be made.
pub fn play_as(case: &Case, role: Role, front: Option<Front>) -> Result<Option<Played>, String> {
    if case.refused.is_some() {
        return Ok(None);
    }
    let with_role = |mut desired: Desired| {
        let ports = desired.ports.iter_mut().filter(|port| port.role != Role::Kernel);
        ports.for_each(|port| port.role = role);
        desired
    };
    let planned = desired(&case.setup.config, &environment(&case.setup))?;
    let mut node = Node::behind(&with_role(planned), front)?;
    let mut played = Played::default();
    node.play(case, &with_role, |_, mut sent| {
        sent.sort();
        played.sent.push(sent);
        Ok(())
    })?;
    Ok(Some(Played { counters: node.counters()?, offloaded: node.offloaded, ..played }))
}

/// Returns the state that the configuration of a case plans in this environment.
///
/// # Errors
/// If the configuration is refused.
pub fn desired(text: &str, environment: &Environment) -> Result<Desired, String> {
    let config = config::parse(text, "srv6d.toml").map_err(|errors| errors.to_string())?;
    let plan = plan::plan(&config, environment).map_err(|errors| errors.to_string())?;
    Ok(plan.desired)
}

/// Returns the devices, addresses and neighbours of a case.
pub fn environment(setup: &Setup) -> Environment {
    let mut devices = vec![Device {
        name: "lo".to_owned(),
        ifindex: 1,
        mac: Mac::default(),
        mtu: 65_536,
        up: true,
        addresses: setup.addresses.clone(),
    }];
    for (ifindex, port) in (2..).zip(setup.ports.iter().filter(|port| !port.kernel)) {
        devices.push(Device {
            name: port.name.clone(),
            ifindex,
            mac: Mac(port.mac),
            mtu: port.mtu,
            up: port.up,
            addresses: port.addresses.clone(),
        });
    }
    let host = setup.ports.iter().find(|port| port.kernel).map(|port| HostVeth {
        device: port.name.clone(),
        packet_mac: Mac(port.mac),
        kernel_mac: Mac(port.peer),
        mtu: port.mtu,
        up: port.up,
    });
    let neighbors = setup.neighbors.iter().filter_map(|neighbor| {
        let mac = Mac(neighbor.mac?);
        Some(KernelNeighbor { device: neighbor.port.clone(), address: neighbor.address, mac })
    });
    Environment { devices, neighbors: neighbors.collect(), host, ..Environment::default() }
}

/// Applies an event of a case to the environment.
pub fn apply(environment: &mut Environment, event: &Event) {
    match event {
        Event::Neighbor(change) => {
            environment.neighbors.retain(|known| (&known.device, known.address) != (&change.port, change.address));
            if let Some(mac) = change.mac {
                let (device, address) = (change.port.clone(), change.address);
                environment.neighbors.push(KernelNeighbor { device, address, mac: Mac(mac) });
            }
        }
        Event::Link { port, up } => {
            for device in environment.devices.iter_mut().filter(|device| device.name == *port) {
                device.up = *up;
            }
        }
    }
}

/// Builds the tables. If there is a program in front of the step, offload is requested for all ports, and the program
/// gets the tables, too.
fn build(desired: &Desired, slots: &mut Slots, front: Option<&mut Front>) -> Result<Tables, String> {
    let Some(front) = front else { return Tables::build(desired, slots).map_err(|why| why.to_string()) };
    let ports = (0..).zip(&desired.ports).map(|(index, _)| PortId(index));
    let mut desired = Desired { offload: ports.collect(), ..desired.clone() };
    desired.tunnel.decrement_local |= front.applications() == Some(Applications::OfPorts);
    let tables = Tables::build(&desired, slots).map_err(|why| why.to_string())?;
    front.publish(&tables, &desired)?;
    Ok(tables)
}

/// Runs the program that a frame is for. The tc program has no rules about who may send, which an application does not need:
/// it gets what is on its way to a port that everyone may send to.
fn forward(
    front: &mut Front,
    desired: &Desired,
    device: u16,
    frame: &[u8],
) -> Result<Option<(Verdict, Vec<u8>)>, String> {
    let Some(applications) = front.applications() else { return front.forward(device, frame) };
    let is_as_sent = |port: &&Port| match port.role {
        Role::Kernel => true,
        Role::Fabric => {
            let is_open = port.allowed_sources.is_empty() && !port.fill_checksum && port.vlan.is_none();
            is_open && frame.starts_with(&port.mac.0) && applications == Applications::OfPorts
        }
        Role::Edge | Role::Host => false,
    };
    match desired.ports.get(usize::from(device)).filter(is_as_sent) {
        Some(_) => front.send(device, frame),
        None => Ok(None),
    }
}

/// Returns emulated ports at the highest rate for all ports except the one to the kernel.
fn emulated(desired: &Desired) -> Vec<Option<EmulatedPort>> {
    let emulation = Emulation { packets: 16_384, queue: 100_000_000, ..Emulation::of_rate(1_600_000_000_000) };
    let port = |port: &Port| EmulatedPort { device: port.name.clone(), emulation, is_up: port.up };
    desired.ports.iter().map(|each| (each.role != Role::Kernel).then(|| port(each))).collect()
}

/// A node with its ports in memory.
pub struct Node {
    io: Memory,
    step: Step<Memory>,
    smaller: Receiver<PathMtu>,
    desired: Desired,
    counters: Arc<WorkerCounters>,
    snapshot: Snapshot,
    slots: Slots,
    /// Time on the worker's clock at which the case began.
    began: u64,
    /// The latest time on that clock.
    latest: u64,
    is_emulated: bool,
    names: Vec<String>,
    front: Option<Front>,
    /// Frames that have left since the last round: frames that the program in front has forwarded, and frames that left
    /// before them.
    passed_by: Vec<(String, Vec<u8>)>,
    /// Frames that the program in front has forwarded, as they were received.
    offloaded: Vec<Vec<u8>>,
}

impl Node {
    /// Makes the node of a case in its initial state. Returns `None` if the configuration is to be refused.
    ///
    /// # Errors
    /// If the configuration is refused but should not be.
    pub fn of(case: &Case) -> Result<Option<Self>, String> {
        if case.refused.is_some() {
            return Ok(None);
        }
        Self::new(&desired(&case.setup.config, &environment(&case.setup))?).map(Some)
    }

    /// Returns the frames that were dropped, in their present form, and forgets them.
    pub fn take_dropped(&mut self) -> Vec<Vec<u8>> {
        self.io.recycled.drain(..).map(|frame| frame.bytes()).collect()
    }

    /// Makes a node in this state.
    ///
    /// # Errors
    /// If the state cannot be built into tables.
    pub fn new(desired: &Desired) -> Result<Self, String> {
        Self::behind(desired, None)
    }

    fn behind(desired: &Desired, mut front: Option<Front>) -> Result<Self, String> {
        let counters = Arc::new(WorkerCounters::default());
        let mut slots = Slots::default();
        let tables = build(desired, &mut slots, front.as_mut())?;
        let tally = Arc::new(Tally::new(&slots));
        let names = desired.ports.iter().map(|port| match port.vlan {
            Some(vid) => port.name.trim_end_matches(&format!(".{vid}")).to_owned(),
            None => port.name.clone(),
        });
        let (sender, smaller) = channel();
        let step = Step::new(0, Arc::clone(&counters), |_, _| {});
        Ok(Self {
            io: Memory::new(desired.ports.len()),
            step: step.on_smaller_path(move |path| sender.send(path).unwrap_or_default()),
            smaller,
            desired: desired.clone(),
            counters,
            snapshot: Snapshot::direct(tables, tally, desired.ports.len()),
            slots,
            began: 0,
            latest: 0,
            is_emulated: false,
            names: names.collect(),
            front,
            passed_by: Vec::new(),
            offloaded: Vec::new(),
        })
    }

    /// Emulates every port from now on, with a rate of 1.6 Tbit/s.
    fn emulate(&mut self) {
        self.is_emulated = true;
        self.snapshot.wiring.emulated = emulated(&self.desired);
    }

    /// Starts the next run: held packets are abandoned, and the clock moves on.
    fn begin(&mut self) {
        self.step.abandon_held(&mut self.io);
        self.began += APART;
    }

    /// Runs the steps of a case. `altered` changes each planned state; `each` receives the frames sent in a step.
    fn play(
        &mut self,
        case: &Case,
        altered: &dyn Fn(Desired) -> Desired,
        mut each: impl FnMut(usize, Vec<(String, Vec<u8>)>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut environment = environment(&case.setup);
        let first = altered(desired(&case.setup.config, &environment)?);
        if first != self.desired {
            self.publish(&first)?;
        }
        let mut published = environment.clone();
        for (number, step) in case.steps.iter().enumerate() {
            step.events.iter().for_each(|event| apply(&mut environment, event));
            if environment != published {
                published = environment.clone();
                self.publish(&altered(desired(&case.setup.config, &environment)?))?;
            }
            let now = self.began + step.at_ms * 1_000_000;
            self.latest = self.latest.max(now);
            for input in &step.inputs {
                self.receive(&input.port, &input.built.bytes)?;
            }
            each(number, self.run(now))?;
            environment.path_mtus.extend(self.smaller_paths());
        }
        Ok(())
    }

    fn publish(&mut self, desired: &Desired) -> Result<(), String> {
        self.snapshot.tables = build(desired, &mut self.slots, self.front.as_mut())?;
        self.snapshot.revision += 1;
        self.desired = desired.clone();
        if self.is_emulated {
            self.emulate();
        }
        Ok(())
    }

    /// Returns the path MTUs that routers have reported since the last call.
    fn smaller_paths(&self) -> BTreeMap<SegmentList, u32> {
        PathMtu::by_segments(self.smaller.try_iter(), &self.slots, &self.desired)
    }

    /// Puts a frame into the receive queue of a port.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn receive(&mut self, port: &str, frame: &[u8]) -> Result<(), String> {
        let socket = self.names.iter().position(|name| name == port);
        let device = socket.and_then(|socket| u16::try_from(socket).ok());
        if let (Some(front), Some(device)) = (&mut self.front, device)
            && let Some((Verdict::Tx(to) | Verdict::Kernel(to), bytes)) = forward(front, &self.desired, device, frame)?
        {
            // Frames that arrived earlier have to leave earlier, so the worker forwards them now.
            if self.waits() {
                while self.step.round(&mut self.io, &self.snapshot, self.latest) > 0 {}
            }
            let sent = self.sent_by_worker();
            self.passed_by.extend(sent);
            self.passed_by.push((self.names.get(usize::from(to)).cloned().unwrap_or_default(), bytes));
            self.offloaded.push(frame.to_vec());
            return Ok(());
        }
        let socket = socket.and_then(|socket| self.io.port(socket)).ok_or_else(|| format!("no port {port}"))?;
        socket.rx.push_back(MemoryFrame::new(frame));
        Ok(())
    }

    /// Forwards all waiting frames. Returns the frames sent, each with its port.
    pub fn run(&mut self, now: u64) -> Vec<(String, Vec<u8>)> {
        self.latest = self.latest.max(now);
        while self.step.round(&mut self.io, &self.snapshot, self.latest) > 0 {}
        while self.step.queued() > 0 {
            self.latest = self.step.next_event().map_or(self.latest, |event| event.max(self.latest));
            self.step.round(&mut self.io, &self.snapshot, self.latest);
        }
        let sent = self.sent_by_worker();
        self.passed_by.drain(..).chain(sent).collect()
    }

    /// Returns whether a port has received something that no round has seen.
    fn waits(&mut self) -> bool {
        (0..self.names.len()).any(|socket| self.io.port(socket).is_some_and(|socket| !socket.rx.is_empty()))
    }

    fn sent_by_worker(&mut self) -> Vec<(String, Vec<u8>)> {
        let sent = self.io.take_sent();
        let name = |socket: usize| self.names.get(socket).cloned().unwrap_or_default();
        sent.into_iter().map(|(socket, frame)| (name(socket), frame.bytes())).collect()
    }

    /// Returns the counters by their names in the pack, and checks that every packet is accounted for.
    ///
    /// # Errors
    /// If a packet is not accounted for.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        let passed_by = self.front.as_ref().map_or(0, Front::forwarded);
        let delivered = self.front.as_ref().map_or(0, Front::delivered);
        totals.rx += passed_by;
        totals.tx += passed_by - delivered;
        totals.kernel += delivered;
        if !totals.balanced() {
            return Err(format!("not balanced: {totals:?}"));
        }
        let plain = [("rx", totals.rx), ("tx", totals.tx), ("kernel", totals.kernel), ("held", totals.held)];
        let mut counters: BTreeMap<String, u64> =
            plain.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        counters.extend(totals.reply.iter().map(|(reason, &value)| (format!("reply.{reason}"), value)));
        counters.extend(totals.drop.iter().map(|(reason, &value)| (format!("drop.{reason}"), value)));
        for tally in &self.snapshot.tallies {
            let packets =
                |counts: &[srv6d_srv6::tally::Count], slot: usize| counts.get(slot).map_or(0, |count| count.read().0);
            for (sid, slot) in self.slots.sids.iter() {
                let passed_by = self.front.as_ref().map_or(0, |front| front.sid(slot).packets);
                counters.insert(format!("sid.{sid}"), packets(&tally.sids, slot) + passed_by);
            }
            for (path, slot) in self.slots.paths.iter() {
                let passed_by = self.front.as_ref().map_or(0, |front| front.path(slot).packets);
                counters.insert(format!("path.{path}"), packets(&tally.paths, slot) + passed_by);
            }
        }
        Ok(counters)
    }
}
