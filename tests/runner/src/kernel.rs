//! Runs a conformance case through a Linux kernel: the same node by `iproute2`, the same frames on its wires.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use srv6d_pack::{Case, Linux, Port, Recorded, Step, decode};

use crate::netns::Netns;
use crate::wires::{self, Wires};

/// How long the kernel may take for anything at all.
const PATIENCE: Duration = Duration::from_mins(1);
/// A marker that is not answered by then is sent once more.
const AGAIN: Duration = Duration::from_secs(5);

/// A packet socket holds about 150 frames of the usual length until somebody reads.
const BURST: usize = 64;

/// Nothing that depends on time, on the state of the network around, or on other tests.
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

/// Frames that came out of the node, each with its port.
type Sent = Vec<(String, Vec<u8>)>;

/// What the kernel did.
#[derive(Debug)]
pub enum Outcome {
    /// It refused a command of the case, with this complaint.
    Refused(String),
    /// The frames that came out, for each step.
    Frames(Vec<Sent>),
}

/// Runs a case and compares it with what it says about Linux.
///
/// # Errors
/// The difference, readable, and what the kernel did as it would stand in `divergences.toml`.
pub fn run(case: &Case) -> Result<(), String> {
    let outcome = ask(case)?;
    compare(case, &outcome).map_err(|why| format!("{why}\n\nthe kernel did:\n{}", as_recorded(case, &outcome)))
}

/// Makes a kernel the node of the case and puts the frames of the case to it.
///
/// # Errors
/// The node could not be made; this says nothing about the case.
pub fn ask(case: &Case) -> Result<Outcome, String> {
    let (node, outside) = (Netns::new("node")?, Netns::new("outside")?);
    node.sysctl(&SETTINGS)?;
    wires::connect(case, &node, &outside)?;
    node.must(&marker_port(&outside))?;
    outside.must(&[format!("link set {MARKER_PORT} up")])?;
    // A batch is for both families, and the addresses say which one is meant.
    let family = |command: &String| command.trim_start_matches("-6 ").trim_start_matches("-4 ").to_owned();
    if let Err(complaint) = node.ip(&case.setup.linux.iter().map(family).collect::<Vec<_>>())? {
        return Ok(Outcome::Refused(complaint));
    }
    let down = wires::devices(case).filter(|port| !port.up).map(|port| format!("link set {} down", port.name));
    node.must(&down.collect::<Vec<_>>())?;
    outside.enter(|| {
        stay_on_this_core()?;
        let mut wires = Wires::open(wires::devices(case).map(|port| port.name.as_str()).chain([MARKER_PORT]))?;
        let mut frames = Vec::new();
        for step in &case.steps {
            frames.push(pass(step, &node, &mut wires)?);
        }
        Ok(Outcome::Frames(frames))
    })
}

/// A port of which the cases know nothing. A ping to it is answered when all frames before it are done with: what is
/// sent from one core over virtual cables is received in that order, and the kernel forwards and answers at once.
const MARKER_PORT: &str = "marker";
const MARKER: [&str; 3] =
    ["eth 02:00:00:00:fe:02 > 02:00:00:00:fe:01", "ip6 fe80::fe:2 > fe80::fe:1 hl 255", "icmp6 echo id 0xfe seq 1"];
const MARKER_ANSWER: [&str; 3] = [
    "eth 02:00:00:00:fe:01 > 02:00:00:00:fe:02",
    "ip6 fe80::fe:1 > fe80::fe:2 fl any tc any",
    "icmp6 reply id 0xfe seq 1",
];

fn marker_port(outside: &Netns) -> Vec<String> {
    let outside = outside.name();
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

/// Puts the frames of a step in, and returns what came out of it.
fn pass(step: &Step, node: &Netns, wires: &mut Wires) -> Result<Sent, String> {
    node.must(&step.events.iter().map(wires::event).collect::<Vec<_>>())?;
    let mut sent = Sent::new();
    for burst in step.inputs.chunks(BURST) {
        burst.iter().try_for_each(|input| wires.send(&input.port, &input.built.bytes))?;
        sent.extend(wires.receive());
    }
    let text = |lines: [&str; 3]| lines.map(ToOwned::to_owned);
    let marker = srv6d_pack::build(&text(MARKER), None)?.bytes;
    let answer = srv6d_pack::build(&text(MARKER_ANSWER), None)?;
    let end = Instant::now() + PATIENCE;
    let mut due = Instant::now();
    loop {
        // One that a node was too busy for is not answered later.
        if Instant::now() >= due {
            wires.send(MARKER_PORT, &marker)?;
            due += AGAIN;
        }
        let (markers, frames): (Sent, Sent) = wires.receive().into_iter().partition(|(port, _)| port == MARKER_PORT);
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

/// Compares what the kernel did with what the case says that it does.
///
/// # Errors
/// The difference.
pub fn compare(case: &Case, outcome: &Outcome) -> Result<(), String> {
    let as_right = is_right(case, outcome);
    let Linux::Diverge(divergence) = &case.linux else { return as_right };
    if as_right.is_ok() {
        return Err(format!("the kernel agrees now: take the case from the divergences ({})", divergence.name));
    }
    let as_recorded = match (&divergence.recorded, outcome) {
        (Recorded::Frames(steps), Outcome::Frames(sent)) => check(steps, sent),
        (Recorded::Refused(text), Outcome::Refused(complaint)) if complaint.contains(text) => Ok(()),
        (Recorded::Accepted, Outcome::Frames(_)) => Ok(()),
        (Recorded::Refused(text), _) => Err(format!("it is not refused with {text:?} any more")),
        (_, Outcome::Refused(complaint)) => Err(format!("it is refused now: {complaint}")),
    };
    as_recorded.map_err(|why| format!("differs, but not as recorded ({}): {why}", divergence.name))
}

/// Compares what the kernel did with what is right.
fn is_right(case: &Case, outcome: &Outcome) -> Result<(), String> {
    match (&case.refused, outcome) {
        (None, Outcome::Frames(sent)) => {
            check(&case.steps, sent)?;
            case.check_properties(&sent.concat()).map_err(|diff| diff.to_string())
        }
        (Some(text), Outcome::Refused(complaint)) if complaint.contains(text) => Ok(()),
        (Some(text), Outcome::Refused(complaint)) => Err(format!("refused without the words {text:?}: {complaint}")),
        (Some(_), Outcome::Frames(_)) => Err("accepted, and should have been refused".to_owned()),
        (None, Outcome::Refused(complaint)) => Err(format!("refused: {complaint}")),
    }
}

fn check(steps: &[Step], sent: &[Sent]) -> Result<(), String> {
    for (number, (step, frames)) in (1..).zip(steps.iter().zip(sent)) {
        step.check(frames).map_err(|diff| format!("step {number}: {diff}"))?;
    }
    Ok(())
}

/// The entry of `divergences.toml` for what the kernel did.
pub fn as_recorded(case: &Case, outcome: &Outcome) -> String {
    let entry = match outcome {
        Outcome::Refused(complaint) => format!("refused = {complaint:?}"),
        Outcome::Frames(_) if case.refused.is_some() => "accepted = true".to_owned(),
        Outcome::Frames(sent) => match (sent.as_slice(), case.steps.len()) {
            ([frames], 1) => format!("out = {}", frames_as_recorded(case, frames)),
            (steps, _) => {
                let steps: Vec<String> = steps.iter().map(|frames| frames_as_recorded(case, frames)).collect();
                format!("step = [{}]", steps.join(", "))
            }
        },
    };
    format!("[[linux]]\ncase = \"{}\"\n{entry}\n", case.id)
}

fn frames_as_recorded(case: &Case, frames: &Sent) -> String {
    let one = |(port, frame): &(String, Vec<u8>)| {
        let lines = layers_as_recorded(case, port, frame);
        let lines: Vec<String> = lines.iter().map(|line| format!("\n    {line:?},")).collect();
        format!("{{ port = {port:?}, frame = [{}\n] }}", lines.concat())
    };
    let all: Vec<String> = frames.iter().map(one).collect();
    format!("[{}]", all.join(", "))
}

/// The layers of a frame, without the Ethernet header it has to have, and without what is random in errors.
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
