//! Runs a conformance case through a Linux kernel that `iproute2` configures as the same node, with the same frames.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use srv6d_pack::{Case, Linux, Port, Recorded, Step, decode};

use crate::wires::{self, Wires};
use srv6d_netns::{self as netns, Netns};

/// Limit on the time that the kernel may take for anything.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time after which an unanswered marker is sent again.
const AGAIN: Duration = Duration::from_secs(5);

/// Number of frames sent at once. A packet socket holds about 150 frames of the usual length until they are read.
const BURST: usize = 64;

/// Kernel settings that remove everything that depends on time, on the surrounding network, or on other tests.
const SETTINGS: [(&str, &str); 12] = [
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/all/seg6_enabled", "1"),
    ("ipv6/conf/default/seg6_enabled", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv4/ip_forward", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// Frames, each with its port.
type PortFrames = Vec<(String, Vec<u8>)>;

/// Behaviour of the kernel.
#[derive(Debug)]
pub enum KernelOutcome {
    /// It refused a command of the case with this message.
    Refused(String),
    /// It sent these frames in each step.
    Frames(Vec<PortFrames>),
}

/// Runs a case, and compares the result with what the case says about Linux.
///
/// # Errors
/// The difference in readable form, and the behaviour of the kernel as an entry for `divergences.toml`.
pub fn run(case: &Case) -> Result<(), String> {
    let outcome = ask(case)?;
    compare(case, &outcome).map_err(|why| format!("{why}\n\nthe kernel did:\n{}", as_recorded(case, &outcome)))
}

/// Configures a kernel as the node of the case, and sends it the frames of the case.
///
/// # Errors
/// If the node could not be made, which says nothing about the case.
pub fn ask(case: &Case) -> Result<KernelOutcome, String> {
    let mut node = match KernelNode::new(case)? {
        Ok(node) => node,
        Err(complaint) => return Ok(KernelOutcome::Refused(complaint)),
    };
    case.steps.iter().map(|step| node.pass(step)).collect::<Result<_, String>>().map(KernelOutcome::Frames)
}

/// A kernel that is configured as the node of a case, and the far ends of its cables.
pub struct KernelNode {
    node: Netns,
    wires: Option<Sender<PortFrames>>,
    sent: Receiver<Result<PortFrames, String>>,
    /// Holds the raw sockets: they belong to the thread that has entered their namespace.
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for KernelNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelNode {{ node: {} }}", &*self.node)
    }
}

impl Drop for KernelNode {
    fn drop(&mut self) {
        // Without a sender the thread ends.
        self.wires = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl KernelNode {
    /// Makes the node. `Ok(Err)` contains the message about the first command of the case that was refused.
    ///
    /// # Errors
    /// If the node could not be made, which says nothing about the case.
    pub fn new(case: &Case) -> Result<Result<Self, String>, String> {
        let (node, outside) = (Netns::unique("node")?, Netns::unique("outside")?);
        if let Err(complaint) = configure(case, &node, &outside)? {
            return Ok(Err(complaint));
        }
        let ports: Vec<String> = wires::devices(case).map(|port| port.name.clone()).collect();
        let (wires, inputs) = channel::<PortFrames>();
        let (outputs, sent) = channel();
        let forward = move || {
            let open = || {
                netns::move_thread(&outside)?;
                stay_on_this_core()?;
                Wires::open(ports.iter().map(String::as_str).chain([MARKER_PORT]))
            };
            let mut wires = open();
            for frames in inputs {
                let done = match &mut wires {
                    Ok(wires) => exchange(&frames, wires),
                    Err(why) => Err(why.clone()),
                };
                let _ = outputs.send(done);
            }
        };
        Ok(Ok(Self { node, wires: Some(wires), sent, thread: Some(thread::spawn(forward)) }))
    }

    /// Sends a frame towards a port of the node. Returns the frames that came out, each with its port.
    ///
    /// # Errors
    /// If the node does not answer.
    pub fn forward(&mut self, port: &str, frame: &[u8]) -> Result<PortFrames, String> {
        self.exchange(vec![(port.to_owned(), frame.to_vec())])
    }

    /// Makes the events of a step happen, and sends its frames. Returns what came out.
    fn pass(&mut self, step: &Step) -> Result<PortFrames, String> {
        netns::ip_batch(&self.node, &step.events.iter().map(wires::event).collect::<Vec<_>>())?;
        self.exchange(step.inputs.iter().map(|input| (input.port.clone(), input.built.bytes.clone())).collect())
    }

    fn exchange(&mut self, frames: PortFrames) -> Result<PortFrames, String> {
        let gone = || "a thread died".to_owned();
        self.wires.as_ref().and_then(|wires| wires.send(frames).ok()).ok_or_else(gone)?;
        self.sent.recv().map_err(|_| gone())?
    }
}

/// Makes cables and addresses, and runs the commands of the case. `Ok(Err)` contains the message about the first one that
/// was refused.
fn configure(case: &Case, node: &Netns, outside: &Netns) -> Result<Result<(), String>, String> {
    netns::sysctl(node, &SETTINGS)?;
    wires::connect(case, node, outside)?;
    netns::ip_batch(node, &marker_port(outside))?;
    netns::ip_batch(outside, &[format!("link set {MARKER_PORT} up")])?;
    // One batch contains commands for both families; the addresses show which family a command is for.
    let family = |command: &String| command.trim_start_matches("-6 ").trim_start_matches("-4 ").to_owned();
    match netns::ip_batch(node, &case.setup.linux.iter().map(family).collect::<Vec<_>>()) {
        Err(netns::Error::Refused(complaint)) => return Ok(Err(complaint)),
        done => done?,
    }
    let down = wires::devices(case).filter(|port| !port.up).map(|port| format!("link set {} down", port.name));
    netns::ip_batch(node, &down.collect::<Vec<_>>())?;
    Ok(Ok(()))
}

/// A port that does not belong to any case. When a ping to it is answered, all earlier frames have been processed:
/// frames that one core sends over virtual cables are received in that order, and the kernel forwards and answers
/// immediately.
const MARKER_PORT: &str = "marker";
const MARKER: [&str; 3] =
    ["eth 02:00:00:00:fe:02 > 02:00:00:00:fe:01", "ip6 fe80::fe:2 > fe80::fe:1 hl 255", "icmp6 echo id 0xfe seq 1"];
const MARKER_ANSWER: [&str; 3] = [
    "eth 02:00:00:00:fe:01 > 02:00:00:00:fe:02",
    "ip6 fe80::fe:1 > fe80::fe:2 fl any tc any",
    "icmp6 reply id 0xfe seq 1",
];

fn marker_port(outside: &Netns) -> Vec<String> {
    vec![
        format!(
            "link add {MARKER_PORT} address 02:00:00:00:fe:01 type veth \
             peer name {MARKER_PORT} netns {outside} address 02:00:00:00:fe:02"
        ),
        format!("link set {MARKER_PORT} addrgenmode none up"),
        format!("addr add fe80::fe:1/64 dev {MARKER_PORT} nodad"),
        format!("neigh replace fe80::fe:2 dev {MARKER_PORT} lladdr 02:00:00:00:fe:02 nud permanent"),
    ]
}

fn stay_on_this_core() -> Result<(), String> {
    let mut core = CpuSet::new();
    let pinned = sched_getcpu().and_then(|number| core.set(number));
    pinned.and_then(|()| sched_setaffinity(Pid::from_raw(0), &core)).map_err(|why| format!("pin to a core: {why}"))
}

/// Sends frames, and returns what came out.
fn exchange(frames: &[(String, Vec<u8>)], wires: &mut Wires) -> Result<PortFrames, String> {
    let mut sent = PortFrames::new();
    for burst in frames.chunks(BURST) {
        burst.iter().try_for_each(|(port, frame)| wires.send(port, frame))?;
        sent.extend(wires.receive());
    }
    let text = |lines: [&str; 3]| lines.map(ToOwned::to_owned);
    let marker = srv6d_pack::build(&text(MARKER), None)?.bytes;
    let answer = srv6d_pack::build(&text(MARKER_ANSWER), None)?;
    let end = Instant::now() + PATIENCE;
    let mut due = Instant::now();
    loop {
        // A node that was too busy for a marker does not answer it later.
        if Instant::now() >= due {
            wires.send(MARKER_PORT, &marker)?;
            due += AGAIN;
        }
        let (markers, frames): (PortFrames, PortFrames) =
            wires.receive().into_iter().partition(|(port, _)| port == MARKER_PORT);
        sent.extend(frames);
        if markers.iter().any(|(_, frame)| answer.matches(frame)) {
            sent.extend(wires.receive());
            sent.retain(|(port, _)| port != MARKER_PORT);
            return Ok(sent);
        }
        if Instant::now() > end {
            return Err(format!("the node does not answer on {MARKER_PORT} within {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Compares the behaviour of the kernel with what the case says about it.
///
/// # Errors
/// The difference.
pub fn compare(case: &Case, outcome: &KernelOutcome) -> Result<(), String> {
    let as_right = is_right(case, outcome);
    let Linux::Diverge(divergence) = &case.linux else { return as_right };
    if as_right.is_ok() {
        return Err(format!("the kernel agrees now: take the case from the divergences ({})", divergence.name));
    }
    let as_recorded = match (&divergence.recorded, outcome) {
        (Recorded::Frames(steps), KernelOutcome::Frames(sent)) => check(steps, sent),
        (Recorded::Refused(text), KernelOutcome::Refused(complaint)) if complaint.contains(text) => Ok(()),
        (Recorded::Accepted, KernelOutcome::Frames(_)) => Ok(()),
        (Recorded::Refused(text), _) => Err(format!("it is not refused with {text:?} any more")),
        (_, KernelOutcome::Refused(complaint)) => Err(format!("it is refused now: {complaint}")),
    };
    as_recorded.map_err(|why| format!("differs, but not as recorded ({}): {why}", divergence.name))
}

/// Compares the behaviour of the kernel with the behaviour that the case requires.
fn is_right(case: &Case, outcome: &KernelOutcome) -> Result<(), String> {
    match (&case.refused, outcome) {
        (None, KernelOutcome::Frames(sent)) => {
            check(&case.steps, sent)?;
            case.check_properties(&sent.concat()).map_err(|diff| diff.to_string())
        }
        (Some(text), KernelOutcome::Refused(complaint)) if complaint.contains(text) => Ok(()),
        (Some(text), KernelOutcome::Refused(complaint)) => {
            Err(format!("refused without the words {text:?}: {complaint}"))
        }
        (Some(_), KernelOutcome::Frames(_)) => Err("accepted, and should have been refused".to_owned()),
        (None, KernelOutcome::Refused(complaint)) => Err(format!("refused: {complaint}")),
    }
}

fn check(steps: &[Step], sent: &[PortFrames]) -> Result<(), String> {
    for (number, (step, frames)) in (1..).zip(steps.iter().zip(sent)) {
        step.check(frames).map_err(|diff| format!("step {number}: {diff}"))?;
    }
    Ok(())
}

/// Returns the behaviour of the kernel as an entry for `divergences.toml`.
pub fn as_recorded(case: &Case, outcome: &KernelOutcome) -> String {
    let entry = match outcome {
        KernelOutcome::Refused(complaint) => format!("refused = {complaint:?}"),
        KernelOutcome::Frames(_) if case.refused.is_some() => "accepted = true".to_owned(),
        KernelOutcome::Frames(sent) => match (sent.as_slice(), case.steps.len()) {
            ([frames], 1) => format!("out = {}", frames_as_recorded(case, frames)),
            (steps, _) => {
                let steps: Vec<String> = steps.iter().map(|frames| frames_as_recorded(case, frames)).collect();
                format!("step = [{}]", steps.join(", "))
            }
        },
    };
    format!("[[linux]]\ncase = \"{}\"\n{entry}\n", case.id)
}

fn frames_as_recorded(case: &Case, frames: &PortFrames) -> String {
    let one = |(port, frame): &(String, Vec<u8>)| {
        let lines = layers_as_recorded(case, port, frame);
        let lines: Vec<String> = lines.iter().map(|line| format!("\n    {line:?},")).collect();
        format!("{{ port = {port:?}, frame = [{}\n] }}", lines.concat())
    };
    let all: Vec<String> = frames.iter().map(one).collect();
    format!("[{}]", all.join(", "))
}

/// Returns the layers of a frame without the Ethernet header, if that is the expected one, and without the random
/// fields of errors.
fn layers_as_recorded(case: &Case, port: &str, frame: &[u8]) -> Vec<String> {
    let mut lines = decode(frame);
    let is_between = |port: &Port| frame.starts_with(&[port.peer, port.mac].concat());
    if case.setup.port(port).is_some_and(is_between) {
        lines.remove(0);
    }
    let is_error = lines.get(1).is_some_and(|line| line.starts_with("icmp"));
    if let Some(outer) = lines.first_mut().filter(|_| is_error) {
        let mut words: Vec<&str> = outer.split(' ').collect();
        let source = words.get(1).and_then(|word| word.parse::<IpAddr>().ok());
        if source.is_some_and(|source| is_own(case, source)) {
            let random = if source.is_some_and(|source| source.is_ipv6()) { "fl" } else { "id" };
            if let Some(at) = words.iter().position(|word| *word == random) {
                words.drain(at..at + 2);
            }
            words.extend([random, "any"]);
            *outer = words.join(" ");
        }
    }
    lines
}

fn is_own(case: &Case, address: IpAddr) -> bool {
    let on_ports = case.setup.ports.iter().flat_map(|port| &port.addresses);
    on_ports.chain(&case.setup.addresses).any(|own| own.addr() == address)
}
