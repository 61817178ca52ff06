//! An experiment as plain values, and its dilation.

use std::time::Duration;

use srv6d_balance::Policy;
use srv6d_emulate::{Ecn, Emulation, LEAST_RATE, MOST_DELAY};

use crate::shape::{Place, Shape};

/// An experiment: every case in every mode, once with each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Number of seeds; they are 1, 2, 3 and so on.
    pub seeds: u64,
    /// The fabric.
    pub fabric: Fabric,
    /// Cases: what happens on the fabric.
    pub cases: Vec<Case>,
    /// The modes in which every case is run.
    pub modes: Vec<Mode>,
}

/// A fabric of leaves and spines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Number of leaves.
    pub leaves: u32,
    /// Number of spines. Every leaf has a link to every spine.
    pub spines: u32,
    /// Number of hosts at each leaf.
    pub hosts: u32,
    /// Bits per second of the link of a host.
    pub host_rate: u64,
    /// Bits per second of a link between a leaf and a spine.
    pub link_rate: u64,
    /// Delay of each link.
    pub delay: Duration,
    /// Length of a full frame in bytes, without FCS.
    pub frame: u32,
    /// Bytes that a queue of a switch holds.
    pub queue: u64,
    /// The rule by which switches mark packets. `None`: they do not.
    pub ecn: Option<Ecn>,
    /// Bytes that a queue pair may have sent without an answer.
    pub window: u64,
}

/// A case: what happens on the fabric in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name.
    pub name: String,
    /// The pattern of traffic.
    pub traffic: Traffic,
    /// Number of hosts at each leaf that take part.
    pub hosts: u32,
    /// Bytes of a transfer; in a ring, of one step.
    pub bytes: u64,
    /// Time over which the transfers begin, each at a random moment.
    pub spread: Duration,
    /// The fault of a link, if there is one.
    pub fault: Option<Fault>,
    /// Multiple of the ideal time after which a run ends.
    pub patience: u32,
}

/// A pattern of traffic: who sends to whom. Sender and receiver are at different leaves, except in all-to-all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Each host sends to one other host and receives from one.
    Permutation,
    /// The n hosts do an all-reduce in a ring: 2(n - 1) steps, each of which begins when the step before has been received.
    Ring,
    /// Each host sends to each other host that takes part.
    AllToAll,
    /// Several hosts send to the first host. One more transfer, to a neighbour of the receiver, shows how much others suffer.
    Incast {
        /// Number of senders.
        senders: u32,
    },
}

/// A fault of the link between a leaf and a spine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// Leaf at one end.
    pub leaf: u32,
    /// Spine at the other end.
    pub spine: u32,
    /// Directions that are affected.
    pub direction: Direction,
    /// Time at which the fault begins. The routing knows of a fault that exists from the beginning of the run.
    pub at: Duration,
    /// Time at which the fault ends.
    pub until: Option<Duration>,
    /// Time that the routing takes to learn of a change.
    pub reaction: Duration,
}

/// Directions of a link between a leaf and a spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both directions.
    Both,
    /// From the leaf to the spine.
    Up,
    /// From the spine to the leaf.
    Down,
}

/// The kind of a fault of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The link has this share of its rate. The routing learns of it.
    Slow(f64),
    /// The link is down. The routing learns of it.
    Down,
    /// All packets get lost. The routing does not learn of it.
    BlackHole,
    /// This share of the packets gets lost. The routing does not learn of it.
    Lossy(f64),
    /// The link is down and up in turn. The routing learns of each change.
    Flap {
        /// Time for which the link is up.
        up: Duration,
        /// Time for which the link is down.
        down: Duration,
    },
}

/// A mode: a rule by which paths are chosen, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// Name.
    pub name: String,
    /// Number of queue pairs that share a transfer.
    pub queue_pairs: u32,
    /// The rule by which a path is chosen.
    pub rule: ChoiceRule,
}

/// A rule by which a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChoiceRule {
    /// The hash picks one of equal members.
    Hash,
    /// The hash picks a member in the proportion of the path's capacity.
    Weighted,
    /// The leaf chooses by what it knows of flows and of its ports.
    ByState {
        /// The policy of the groups.
        policy: Policy,
        /// Time between two samples of a port.
        sample: Duration,
        /// Share of the load in a score, in percent.
        rate_weight: u8,
        /// Number of flows that a leaf remembers.
        flows: usize,
    },
    /// The placement planner has given each transfer its spine.
    Placed,
}

/// Longest time, in seconds, that a setting may have.
const LONGEST: u64 = 1_000_000;

/// Error: a dilation with which a setting would leave its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DilationError(String);

impl std::fmt::Display for DilationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DilationError {}

impl Experiment {
    /// Returns the same experiment with rates divided, and times multiplied, by `factor`. Sizes in bytes stay. It behaves the
    /// same, and takes `factor` times as long.
    ///
    /// # Errors
    /// A rate or a delay would leave the bounds of an emulated port, or a time would be too long.
    pub fn dilated(mut self, factor: u32) -> Result<Self, DilationError> {
        let rate = |rate: u64| Some(rate / u64::from(factor.max(1))).filter(|rate| *rate >= LEAST_RATE);
        let rates = rate(self.fabric.host_rate).zip(rate(self.fabric.link_rate));
        let (host_rate, link_rate) = rates.ok_or_else(|| {
            DilationError(format!(
                "a rate would be below {LEAST_RATE} bit/s; choose a smaller --dilate, or higher rates"
            ))
        })?;
        let delay = self.fabric.delay * factor;
        if delay.as_nanos() > MOST_DELAY.into() {
            let why = format!("the delay of a link would be {delay:?}, more than a second; choose a smaller --dilate");
            return Err(DilationError(why));
        }
        self.fabric = Fabric { host_rate, link_rate, delay, ..self.fabric };
        for time in self.times() {
            *time = time.saturating_mul(factor);
            if time.as_secs() > LONGEST {
                return Err(DilationError(format!("a time would be {time:?}; choose a smaller --dilate")));
            }
        }
        for mode in &mut self.modes {
            if let ChoiceRule::ByState { policy, .. } = &mut mode.rule {
                policy.gap = policy.gap.saturating_mul(factor.into());
            }
        }
        Ok(self)
    }

    /// Returns all times of cases and modes.
    fn times(&mut self) -> impl Iterator<Item = &mut Duration> {
        let of_cases = self.cases.iter_mut().flat_map(|case| {
            let of_fault = case.fault.iter_mut().flat_map(|fault| {
                let of_kind = match &mut fault.kind {
                    FaultKind::Flap { up, down } => vec![up, down],
                    _ => Vec::new(),
                };
                of_kind.into_iter().chain([&mut fault.at, &mut fault.reaction]).chain(fault.until.as_mut())
            });
            of_fault.chain([&mut case.spread])
        });
        let of_modes = self.modes.iter_mut().filter_map(|mode| match &mut mode.rule {
            ChoiceRule::ByState { sample, .. } => Some(sample),
            _ => None,
        });
        of_cases.chain(of_modes)
    }
}

impl Fabric {
    pub(crate) const fn shape(&self) -> Shape {
        Shape { leaves: self.leaves, spines: self.spines, hosts: self.hosts }
    }

    /// Returns the port at a place of the fabric.
    pub(crate) fn port_at(&self, place: Place) -> Emulation {
        match place {
            Place::HostUp { .. } => self.host_port(),
            Place::LeafUp { .. } | Place::SpineDown { .. } => self.link_port(),
            Place::HostDown { .. } => self.last_port(),
        }
    }

    /// Returns the port of a host. Its queue is the host's memory: nothing is lost there.
    fn host_port(&self) -> Emulation {
        Emulation { queue: u64::MAX, ecn: None, ..self.port(self.host_rate) }
    }

    /// Returns a port of a switch towards another switch.
    pub(crate) fn link_port(&self) -> Emulation {
        self.port(self.link_rate)
    }

    /// Returns a port of a leaf towards a host.
    fn last_port(&self) -> Emulation {
        self.port(self.host_rate)
    }

    fn port(&self, rate: u64) -> Emulation {
        let delay = u64::try_from(self.delay.as_nanos()).unwrap_or(MOST_DELAY);
        // The number of packets under way on a long, fast link must not be limited.
        let packets = usize::MAX;
        Emulation { queue: self.queue, packets, delay, ecn: self.ecn, ..Emulation::of_rate(rate) }
    }
}
