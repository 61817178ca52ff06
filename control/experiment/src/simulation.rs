//! A run: one case in one mode with one seed.

use fastrand::Rng;
use srv6d_balance::Sample;
use srv6d_emulate::{Draws, EmulatedLink, Emulation, Offered, Refusal};
use srv6d_srv6::flow::Seed;

use crate::agenda::{Agenda, Event, Feedback, PS_PER_NS, PS_PER_SECOND, Ps};
use crate::exact::Exact;
use crate::failure::RunError;
use crate::faults::ps;
use crate::heat::{Heat, MOST_LINKS};
use crate::job::Job;
use crate::modes::Leaves;
use crate::queue_pair::{Cut, Endpoints, QueuePair, flow_hash};
use crate::result::Run;
use crate::rows::Rows;
use crate::settings::{Case, ChoiceRule, Experiment, Fabric, Mode};
use crate::shape::{Place, Shape};
use crate::tally::RunCounts;
use crate::traffic;

/// ECN fields of a packet whose transport supports ECN, and of one that met congestion.
const ECT: u8 = 2;
const CE: u8 = 3;
/// Number of links from host to host. An answer takes this number of delays, because it waits in no queue.
const HOPS: u64 = 4;
/// Number of events between two calls of the observer.
const OBSERVED: u64 = 1 << 20;
/// Longest run: ten million seconds, so that no time overflows.
const LONGEST: Ps = 10_000_000 * PS_PER_SECOND;
/// Lowest UDP source port of a queue pair.
const FIRST_PORT: u16 = 49_152;
/// Number of spans of the heat map in the ideal time.
const SPANS: f64 = 64.0;

/// A packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub queue_pair: u32,
    pub sequence: u32,
    pub is_marked: bool,
    /// Whether it has been sent before, and got lost.
    pub is_repeated: bool,
}

/// The form of the packets of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packets {
    /// Records without bytes. Only the ports and the choices of the daemon are run.
    #[default]
    Records,
    /// Real frames. A worker of srv6d forwards them in each node.
    Frames,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The result.
    pub run: Run,
    /// Completion times of all transfers in milliseconds, in ascending order.
    pub completions_ms: Vec<f64>,
    /// Load over time, if it was watched.
    pub load: Option<Load>,
}

/// Load of the links between switches over time.
#[derive(Clone, Debug)]
pub struct Load {
    /// Length of a span in seconds.
    pub span: f64,
    /// Links by name, each with its load in every span, from 0 to 1.
    pub links: Vec<(String, Vec<f64>)>,
}

/// Runs a case in a mode. `seed` decides who sends to whom, and all random choices. With `watch`, the load of the links is
/// kept, if there are not too many. `observe` is called now and then with the share of transfers that are complete.
///
/// # Errors
/// The planner finds no placement. With real frames: there are too many nodes, or a node refuses its configuration or
/// drops or answers a packet that no link has lost.
pub fn simulate(
    experiment: &Experiment,
    (case, mode, seed): (&Case, &Mode, u64),
    packets: Packets,
    watch: bool,
    observe: &mut dyn FnMut(f64),
) -> Result<RunOutcome, RunError> {
    let mut simulation = Simulation::new(&experiment.fabric, case, mode, seed)?;
    if watch {
        simulation.watch();
    }
    if packets == Packets::Frames {
        simulation.use_frames()?;
    }
    let end = simulation.run(observe);
    simulation.check()?;
    Ok(simulation.outcome(end))
}

/// A run, under way.
pub(crate) struct Simulation<'e> {
    pub fabric: &'e Fabric,
    pub case: &'e Case,
    pub mode: &'e Mode,
    pub seed: u64,
    pub shape: Shape,
    pub ports: Rows<Ported>,
    pub jobs: Rows<Job>,
    pub queue_pairs: Rows<QueuePair>,
    pub leaves: Leaves,
    /// The nodes, if packets are real frames. `ports` carry nothing then.
    pub exact: Option<Exact>,
    /// The reason why the run has to end.
    pub failure: Option<RunError>,
    pub cut: Cut,
    /// Packets that a queue pair may have sent without an answer.
    window: u32,
    /// Time that an answer takes.
    answer_time: Ps,
    pub agenda: Agenda,
    pub tally: RunCounts,
    /// Ideal time in seconds.
    pub ideal: f64,
}

/// A port, with its random numbers and its next event.
#[derive(Clone, Debug)]
pub(crate) struct Ported {
    pub port: EmulatedLink<Packet>,
    draws: Draws,
    /// Time of its event. Other events of the port are out of date.
    due: Option<Ps>,
}

impl<'e> Simulation<'e> {
    fn new(fabric: &'e Fabric, case: &'e Case, mode: &'e Mode, seed: u64) -> Result<Self, RunError> {
        let shape = fabric.shape();
        let mut random = Rng::with_seed(seed);
        let jobs = traffic::jobs(case, shape, &mut random);
        let frame = u64::from(fabric.frame);
        let mut simulation = Self {
            fabric,
            case,
            mode,
            seed,
            shape,
            ports: Rows::of(shape.port_count(), |port| ported(fabric, port, seed)),
            ideal: traffic::ideal(case, &jobs, fabric.host_rate),
            jobs: Rows::default(),
            queue_pairs: Rows::default(),
            leaves: Leaves::new(fabric, mode.rule, seed),
            exact: None,
            failure: None,
            cut: Cut::of(case.bytes, mode.queue_pairs, fabric.frame),
            window: u32::try_from((fabric.window / frame).max(1)).unwrap_or(u32::MAX),
            answer_time: HOPS * ps(fabric.delay),
            agenda: Agenda::default(),
            tally: RunCounts::default(),
        };
        for job in jobs {
            simulation.add(job, &mut random);
        }
        simulation.begin()?;
        Ok(simulation)
    }

    /// Adds a job with its queue pairs.
    fn add(&mut self, job: Job, random: &mut Rng) {
        let number = self.jobs.len();
        let seed = Seed::of(self.seed << 32 | u64::from(self.shape.leaf_of(job.source)));
        self.agenda.add(job.start, Event::Start { job: number });
        let first_pair = self.queue_pairs.len();
        for _ in 0..self.mode.queue_pairs {
            let (port, own) = (random.u16(FIRST_PORT..), random.u32(..1 << 24));
            let flow = flow_hash(job.source, job.destination, port, own).for_hops(&seed);
            self.queue_pairs.push(QueuePair::new(number, (port, own), flow));
        }
        self.jobs.push(Job { first_pair, ..job });
    }

    /// Puts the faults of the beginning in force, places the jobs, and begins to sample.
    fn begin(&mut self) -> Result<(), RunError> {
        let first = self.case.fault.as_ref().and_then(|fault| fault.change(0));
        match first {
            Some(change) if change.at == 0 => self.change(0, 0),
            Some(change) => self.agenda.add(change.at, Event::Change { step: 0 }),
            None => {}
        }
        if self.mode.rule == ChoiceRule::Placed {
            self.place()?;
        }
        if let ChoiceRule::ByState { sample, .. } = self.mode.rule {
            self.agenda.add(ps(sample), Event::Sample);
        }
        Ok(())
    }

    /// Makes a node of everything that forwards, so that packets become real frames.
    fn use_frames(&mut self) -> Result<(), RunError> {
        let mut exact =
            self.with_knowledge(|knowledge| Exact::new(self.fabric, self.mode.rule, self.seed, knowledge))?;
        for port in self.faulty().into_iter().flatten() {
            let Ported { port: record, .. } = &self.ports[port];
            exact.set_link(port, *record.emulation(), record.is_up());
        }
        let all = exact.numbers();
        self.exact = Some(exact);
        self.configure(|node| all.contains(&node), 0);
        Ok(())
    }

    /// Checks that the run has been valid.
    fn check(&mut self) -> Result<(), RunError> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.exact.as_ref().map_or(Ok(()), Exact::check),
        }
    }

    /// Begins to keep the load of the links.
    fn watch(&mut self) {
        let links = self.shape.link_count();
        let span = traffic::moment(self.ideal / SPANS);
        self.tally.heat = (links <= MOST_LINKS).then(|| Heat::new(links, span));
    }

    /// Runs until all jobs are complete, or for as long as the case allows. Returns the time.
    fn run(&mut self, observe: &mut dyn FnMut(f64)) -> Ps {
        let patience = traffic::moment(self.ideal * f64::from(self.case.patience));
        let limit = patience.saturating_add(ps(self.case.spread)).min(LONGEST);
        let mut now = 0;
        let mut events: u64 = 0;
        while self.tally.complete < self.jobs.as_slice().len() && self.failure.is_none() {
            let Some((at, event)) = self.agenda.next() else { break };
            if at > limit {
                return limit;
            }
            now = at;
            self.handle(event, now);
            events += 1;
            if events.is_multiple_of(OBSERVED) {
                observe(self.progress());
            }
        }
        now
    }

    #[allow(clippy::cast_precision_loss, reason = "a share to be shown")]
    fn progress(&self) -> f64 {
        let all: u64 = self.jobs.as_slice().iter().map(|job| u64::from(job.steps)).sum();
        let packets = all * u64::from(self.cut.packets) * u64::from(self.mode.queue_pairs);
        self.tally.arrived as f64 / packets.max(1) as f64
    }

    fn handle(&mut self, event: Event, now: Ps) {
        match event {
            Event::Start { job } => {
                self.jobs[job].has_begun = true;
                self.grant(job, now);
            }
            Event::Release { port } => self.release(port, now),
            Event::Round { node } => self.round(node, now),
            Event::Feedback(Feedback { queue_pair, sequence, is_lost }) => {
                self.queue_pairs[queue_pair].answered(sequence, is_lost);
                self.send(queue_pair, now);
            }
            Event::Sample => self.sample(now),
            Event::Change { step } => self.change(step, now),
            Event::Learnt { step } => self.learn(step, now),
        }
    }

    /// Lets a job send as many steps as it may by now.
    fn grant(&mut self, job: u32, now: Ps) {
        let Job { granted, first_pair, has_begun, .. } = self.jobs[job];
        if !has_begun {
            return;
        }
        for pair in first_pair..first_pair + self.mode.queue_pairs {
            self.queue_pairs[pair].granted = granted * self.cut.packets;
            self.send(pair, now);
        }
    }

    /// Sends what the window of a queue pair has room for.
    fn send(&mut self, queue_pair: u32, now: Ps) {
        let host = self.jobs[self.queue_pairs[queue_pair].job].source;
        let port = self.shape.port(Place::HostUp { host });
        while let Some((sequence, is_repeated)) = self.queue_pairs[queue_pair].take(self.window) {
            let packet = Packet { queue_pair, sequence, is_marked: false, is_repeated };
            if self.exact.is_some() {
                self.send_frame(packet, now);
            } else {
                self.offer(port, packet, now);
            }
        }
    }

    /// Returns the fields that all packets of a queue pair have in common.
    pub fn endpoints(&self, queue_pair: u32) -> Endpoints {
        let QueuePair { job, port, number, .. } = self.queue_pairs[queue_pair];
        let Job { source, destination, .. } = self.jobs[job];
        Endpoints { source, destination, port, queue_pair: number }
    }

    fn offer(&mut self, number: u32, packet: Packet, now: Ps) {
        let ecn = if packet.is_marked { CE } else { ECT };
        let Ported { port, draws, due } = &mut self.ports[number];
        let offered = Offered { len: self.cut.len(packet.sequence) as usize, ecn, draws: draws.pair() };
        match port.offer(now.into(), offered, packet, |packet| packet.is_marked = true) {
            Ok(()) if due.is_none() => self.wait(number),
            Ok(()) => {}
            Err((packet, refusal)) => self.lost(number, packet, refusal, now),
        }
    }

    /// Adds the event of the first packet in a port.
    pub fn wait(&mut self, port: u32) {
        let Ported { port: waiting, due, .. } = &mut self.ports[port];
        *due = waiting.next_release().and_then(|due| Ps::try_from(due).ok());
        if let Some(at) = *due {
            self.agenda.add(at, Event::Release { port });
        }
    }

    /// Lets the sender of a packet know that it got lost.
    pub fn lost(&mut self, port: u32, packet: Packet, refusal: Refusal, now: Ps) {
        if refusal != Refusal::QueueFull && self.faulty().contains(&Some(port)) {
            self.tally.last_loss = Some(now);
        }
        self.answer(packet, true, now);
    }

    pub fn answer(&mut self, Packet { queue_pair, sequence, .. }: Packet, is_lost: bool, now: Ps) {
        self.agenda.answer(now + self.answer_time, Feedback { queue_pair, sequence, is_lost });
    }

    /// Hands on all packets that have arrived at the other end of a port.
    fn release(&mut self, number: u32, now: Ps) {
        if self.ports[number].due != Some(now) {
            return;
        }
        self.ports[number].due = None;
        let place = self.shape.place(number);
        while let Some(released) = self.ports[number].port.release(now.into()) {
            let emulation = *self.ports[number].port.emulation();
            self.watched(number, emulation, released.frame, now);
            self.arrive(place, released.frame, now);
        }
        self.wait(number);
    }

    /// Adds a packet to the load of a link, if the link is watched.
    pub fn watched(&mut self, port: u32, emulation: Emulation, packet: Packet, now: Ps) {
        if port >= self.shape.link_count() {
            return;
        }
        let Some(heat) = &mut self.tally.heat else { return };
        let sent = now.saturating_sub(emulation.delay * PS_PER_NS);
        heat.add(port, sent, u64::from(self.cut.len(packet.sequence)) + u64::from(emulation.overhead));
    }

    fn arrive(&mut self, place: Place, packet: Packet, now: Ps) {
        let Job { destination, .. } = self.jobs[self.queue_pairs[packet.queue_pair].job];
        let to = self.shape.leaf_of(destination);
        let next = match place {
            Place::HostUp { host } if self.shape.leaf_of(host) == to => Place::HostDown { host: destination },
            Place::HostUp { host } => {
                let leaf = self.shape.leaf_of(host);
                Place::LeafUp { leaf, spine: self.spine([leaf, to], packet.queue_pair, now) }
            }
            Place::LeafUp { spine, .. } => Place::SpineDown { spine, leaf: to },
            Place::SpineDown { .. } => Place::HostDown { host: destination },
            Place::HostDown { .. } => return self.deliver(packet, now),
        };
        self.offer(self.shape.port(next), packet, now);
    }

    /// Returns the spine of a packet between two leaves.
    fn spine(&mut self, leaves: [u32; 2], queue_pair: u32, now: Ps) -> u32 {
        let pair = &mut self.queue_pairs[queue_pair];
        if let (ChoiceRule::Placed, Some(spine)) = (self.mode.rule, pair.spine) {
            return spine;
        }
        let spine = self.leaves.spine(leaves, pair.flow, now / PS_PER_NS);
        self.note_spine(queue_pair, spine);
        spine
    }

    /// Notes the spine of a queue pair's latest packet.
    pub fn note_spine(&mut self, queue_pair: u32, spine: u32) {
        let before = self.queue_pairs[queue_pair].spine.replace(spine);
        self.tally.moves += u64::from(before.is_some_and(|before| before != spine));
    }

    pub fn deliver(&mut self, packet: Packet, now: Ps) {
        self.tally.arrived += 1;
        let pair = &mut self.queue_pairs[packet.queue_pair];
        let is_late = pair.arrive(packet.sequence);
        if is_late && !packet.is_repeated {
            self.tally.reordered += 1;
        }
        let number = pair.job;
        self.answer(packet, false, now);
        let packets = self.cut.packets * self.mode.queue_pairs;
        let job = &mut self.jobs[number];
        if !job.receive(self.cut.step(packet.sequence), packets) {
            return;
        }
        let received = job.received;
        if job.is_complete() {
            job.done = Some(now);
            self.tally.complete += 1;
        }
        if let Some(next) = job.next {
            let next_job = &mut self.jobs[next];
            next_job.granted = (received + 1).min(next_job.steps);
            self.grant(next, now);
        }
    }

    fn sample(&mut self, now: Ps) {
        let ChoiceRule::ByState { sample, .. } = self.mode.rule else { return };
        self.agenda.add(now + ps(sample), Event::Sample);
        if self.exact.is_some() {
            return (0..self.shape.leaves).for_each(|leaf| self.wake(leaf, now));
        }
        let ports = &self.ports;
        // The ports of leaves to spines have the numbers of their pairs.
        let shown = |pair| {
            let port = &ports[pair].port;
            Sample { sent_bytes: port.counts().sent_bytes, queue: port.depth(now.into()) }
        };
        self.leaves.sample(now / PS_PER_NS, ps(sample) / PS_PER_NS, shown);
    }
}

fn ported(fabric: &Fabric, number: u32, seed: u64) -> Ported {
    let shape = fabric.shape();
    let emulation = fabric.port_at(shape.place(number));
    let draws = Draws::named(&format!("{} {seed}", shape.name(number)));
    Ported { port: EmulatedLink::new(emulation, 0), draws, due: None }
}
