//! Runs conformance cases: through the real worker step over ports in memory (no root, no sockets), and through a
//! Linux kernel in namespaces of its own.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod front;
pub mod gaps;
pub mod kernel;
pub mod namespace;
pub mod netns;
pub mod sonic;
pub mod tagged;
pub mod wires;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use srv6d::config;
use srv6d::plan::{self, Device, Environment, HostVeth, KernelNeighbor};
use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_dataplane::{Snapshot, Step, Totals, WorkerCounters};
use srv6d_pack::{Case, Event, Setup};
use srv6d_srv6::carrier::SegmentList;
use srv6d_srv6::model::{Desired, Mac, PortId, Role};
use srv6d_srv6::{PathMtu, Slots, Tables, Tally};

use front::Front;

/// How often a case is played: where a destination leads is searched for, searched for again, because a cache that did
/// not know it is left alone for a burst, known in tables that are new, and known.
const TIMES: u64 = 4;
/// Nanoseconds between two times: what is limited to so many per second begins anew.
const APART: u64 = 1_000_000_000_000;

/// Runs a case, several times through one worker: each time it must come to the same. `Err` says what is different from
/// what the pack states.
///
/// # Errors
/// The difference, readable.
pub fn run(case: &Case) -> Result<(), String> {
    run_behind(case, None).map(|_| ())
}

/// The same with the XDP program of `offload = "xdp"` in front of the step, on every port. Returns how many frames it
/// has forwarded.
///
/// # Errors
/// The difference, readable.
pub fn run_behind(case: &Case, front: Option<Front>) -> Result<u64, String> {
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

/// What a case came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// What was sent in each step, in no order: the port it left through, and its bytes.
    pub sent: Vec<Vec<(String, Vec<u8>)>>,
    /// In the pack's words.
    pub counters: BTreeMap<String, u64>,
    /// What came in and was forwarded by the program in front.
    pub offloaded: Vec<Vec<u8>>,
}

/// Plays a case on a node with another role of all its ports, whatever the pack states: that is about the roles it has
/// there. `None`: its configuration is to be refused.
///
/// # Errors
/// The node cannot be made.
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

/// What the configuration of a case plans there.
///
/// # Errors
/// It is refused.
pub fn desired(text: &str, environment: &Environment) -> Result<Desired, String> {
    let config = config::parse(text, "srv6d.toml").map_err(|errors| errors.to_string())?;
    let plan = plan::plan(&config, environment).map_err(|errors| errors.to_string())?;
    Ok(plan.desired)
}

/// The devices, addresses and neighbours of a case.
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

/// Changes them as an event of a case says.
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

/// The tables; for a program in front of the step, all ports ask for it.
fn build(desired: &Desired, slots: &mut Slots, front: Option<&mut Front>) -> Result<Tables, String> {
    let Some(front) = front else { return Tables::build(desired, slots).map_err(|why| why.to_string()) };
    let ports = (0..).zip(&desired.ports).map(|(index, _)| PortId(index));
    let desired = Desired { offload: ports.collect(), ..desired.clone() };
    let tables = Tables::build(&desired, slots).map_err(|why| why.to_string())?;
    front.publish(&tables)?;
    Ok(tables)
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
    /// When the case began, on the worker's clock.
    began: u64,
    names: Vec<String>,
    front: Option<Front>,
    /// What the program in front has forwarded since the last round.
    passed_by: Vec<(String, Vec<u8>)>,
    /// What it has forwarded, as it came in.
    offloaded: Vec<Vec<u8>>,
}

impl Node {
    /// The node of a case, as it is at the start. `None`: its configuration is to be refused.
    ///
    /// # Errors
    /// Its configuration is refused and should not be.
    pub fn of(case: &Case) -> Result<Option<Self>, String> {
        if case.refused.is_some() {
            return Ok(None);
        }
        Self::new(&desired(&case.setup.config, &environment(&case.setup))?).map(Some)
    }

    /// Takes the frames that were dropped, as they are now.
    pub fn take_dropped(&mut self) -> Vec<Vec<u8>> {
        self.io.recycled.drain(..).map(|frame| frame.bytes()).collect()
    }

    /// A node with these tables.
    ///
    /// # Errors
    /// The state makes no tables.
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
            names: names.collect(),
            front,
            passed_by: Vec::new(),
            offloaded: Vec::new(),
        })
    }

    /// Later, when nothing waits any more.
    fn begin(&mut self) {
        self.step.abandon_held(&mut self.io);
        self.began += APART;
    }

    /// Plays the steps of a case. `altered`: what is planned, as it is to be. `each` takes what a step has sent.
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
            for input in &step.inputs {
                self.receive(&input.port, &input.built.bytes)?;
            }
            each(number, self.run(self.began + step.at_ms * 1_000_000))?;
            environment.path_mtus.extend(self.smaller_paths());
        }
        Ok(())
    }

    fn publish(&mut self, desired: &Desired) -> Result<(), String> {
        self.snapshot.tables = build(desired, &mut self.slots, self.front.as_mut())?;
        self.snapshot.generation += 1;
        self.desired = desired.clone();
        Ok(())
    }

    /// What routers have said about paths since the last call.
    fn smaller_paths(&self) -> BTreeMap<SegmentList, u32> {
        PathMtu::by_segments(self.smaller.try_iter(), &self.slots, &self.desired)
    }

    /// Puts a frame where the port finds it.
    ///
    /// # Errors
    /// There is no such port.
    pub fn receive(&mut self, port: &str, frame: &[u8]) -> Result<(), String> {
        let socket = self.names.iter().position(|name| name == port);
        let device = socket.and_then(|socket| u16::try_from(socket).ok());
        if let (Some(front), Some(device)) = (&mut self.front, device)
            && let Some((to, bytes)) = front.forward(device, frame)?
        {
            self.passed_by.push((self.names.get(usize::from(to)).cloned().unwrap_or_default(), bytes));
            self.offloaded.push(frame.to_vec());
            return Ok(());
        }
        let socket = socket.and_then(|socket| self.io.port(socket)).ok_or_else(|| format!("no port {port}"))?;
        socket.rx.push_back(Frame::new(frame));
        Ok(())
    }

    /// Forwards what waits; returns what was sent, and the port it left through.
    pub fn run(&mut self, now: u64) -> Vec<(String, Vec<u8>)> {
        while self.step.round(&mut self.io, &self.snapshot, now) > 0 {}
        let sent = self.io.take_sent();
        let name = |socket: usize| self.names.get(socket).cloned().unwrap_or_default();
        let sent = sent.into_iter().map(|(socket, frame)| (name(socket), frame.bytes()));
        self.passed_by.drain(..).chain(sent).collect()
    }

    /// Counters in the pack's words. Every packet is accounted for.
    ///
    /// # Errors
    /// One is not.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        let passed_by = self.front.as_ref().map_or(0, Front::forwarded);
        totals.rx += passed_by;
        totals.tx += passed_by;
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
