//! Runs a conformance case through a real `srv6d run`: virtual cables as ports, AF_XDP, and frames sent by raw sockets.
//!
//! ```text
//! outside                          node
//!   raw socket ── p1 ═══════════ p1 ── XDP ─ claimed ─► srv6d ──► p2 ═══ p2 ── raw socket
//!                                │                        │
//!                      raw socket ┴── not claimed          └──► srv6d0 ── raw socket      the kernel of the node
//! ```

use std::fmt::Write as _;
use std::path::Path;

use srv6d_pack::{Case, Event, Step};

use crate::daemon::{CounterReading, Daemon, wait_for};
use crate::front;
use crate::wires::{self, Wires};
use srv6d_netns::{self as netns, Netns};

/// Frames, each with the port through which it left.
type Frames = Vec<(String, Vec<u8>)>;

/// Number of frames sent at once; every ring and socket holds as many.
const BURST: usize = 64;

/// Kernel settings of the node. Its kernel does not forward, so every forwarded frame was sent by srv6d.
const SETTINGS: [(&str, &str); 5] = [
    ("ipv6/conf/default/keep_addr_on_down", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// Counters in which a frame may end that the XDP program leaves to the kernel before srv6d sees it: a frame for the
/// node itself, for an unknown destination, or of a kind that srv6d does not forward.
const LEFT_TO_KERNEL: [&str; 7] = [
    "kernel",
    "drop.no_host_port",
    "drop.no_route",
    "drop.not_our_mac",
    "drop.ether_type",
    "drop.vlan",
    "drop.malformed",
];

/// A node with a running srv6d, and the far ends of its cables.
#[derive(Debug)]
pub struct Rig {
    offload: bool,
    // Declared before the namespaces, so that it is dropped first and takes its ports down itself.
    daemon: Daemon,
    node: Netns,
    outside: Netns,
}

impl Rig {
    /// Makes the devices, addresses and neighbours of a case, and starts srv6d without a configuration. With `offload`,
    /// its XDP programs will forward what they can.
    ///
    /// # Errors
    /// If a part of it could not be made.
    pub fn new(case: &Case, program: &Path, offload: bool) -> Result<Self, String> {
        let (node, outside) = (Netns::unique("node")?, Netns::unique("outside")?);
        netns::sysctl(&node, &SETTINGS)?;
        wires::connect(case, &node, &outside)?;
        if offload {
            netns::enter(&outside, || wires::devices(case).try_for_each(|port| wires::take_redirected(&port.name)))?;
        }
        let down = wires::devices(case).filter(|port| !port.up).map(|port| format!("link set {} down", port.name));
        netns::ip_batch(&node, &down.collect::<Vec<_>>())?;
        let daemon = Daemon::start(program, &node)?;
        Ok(Self { offload, daemon, node, outside })
    }

    /// Runs a case; all frames and counters must be as the case says.
    ///
    /// # Errors
    /// The difference, in readable form.
    pub fn run(&self, case: &Case) -> Result<(), String> {
        let run = || match (self.daemon.reload(&config(case, self.offload))?, &case.refused) {
            (Err(why), Some(text)) if why.to_lowercase().contains(&text.to_lowercase()) => Ok(()),
            (Err(why), _) => Err(format!("refused: {why}")),
            (Ok(()), Some(text)) => Err(format!("accepted, and should have been refused with {text:?}")),
            (Ok(()), None) => netns::enter(&self.outside, || Visit::new(self, case)?.run()),
        };
        run().map_err(|why| format!("{why}\n\nlog of srv6d:\n{}", self.daemon.log()))
    }
}

/// Returns the configuration of a case, with those neighbours added that the kernel cannot store because it lacks their
/// device.
fn config(case: &Case, offload: bool) -> String {
    let port = if offload { "[[port]]" } else { "[[port]]\noffload = \"off\"" };
    let mut text = case.setup.config.replace("[[port]]", port);
    for neighbor in &case.setup.neighbors {
        let is_vlan = case.setup.port(&neighbor.port).is_some_and(|port| port.vlan.is_some());
        if let (true, Some(mac)) = (is_vlan, neighbor.mac) {
            let (address, port, mac) = (neighbor.address, &neighbor.port, wires::mac(mac));
            let _ = write!(text, "\n[[neighbor]]\naddress = \"{address}\"\nport = \"{port}\"\nmac = \"{mac}\"\n");
        }
    }
    text
}

/// Returns whether a port stays up during the case. A packet socket fails when the link of its port goes down.
fn stays_up(case: &Case, name: &str) -> bool {
    let goes_down = |event: &Event| matches!(event, Event::Link { port, up: false } if port == name);
    case.setup.port(name).is_none_or(|port| port.up) && !case.steps.iter().flat_map(|step| &step.events).any(goes_down)
}

/// Cases in which a next hop has just become ready, so that the worker keeps its frames until it has finished those before.
const TAKEN_OVER_LATER: [&str; 1] = ["U38b"];

/// A case while it is run on a rig.
struct Visit<'r> {
    rig: &'r Rig,
    case: &'r Case,
    outside: Wires,
    /// Sockets on the node's ends of the cables, as its kernel sees them, and on srv6d's own veth.
    kernel: Wires,
    before: CounterReading,
    sent: u64,
}

impl<'r> Visit<'r> {
    /// Starts a case; must be called on a thread in the outer namespace. A socket stays in the namespace where it was
    /// opened, so the thread can then move to the node.
    fn new(rig: &'r Rig, case: &'r Case) -> Result<Self, String> {
        let devices = || wires::devices(case).map(|port| port.name.as_str());
        let own_veth = case.setup.ports.iter().filter(|port| port.kernel).map(|port| port.name.as_str());
        let outside = Wires::open(devices())?.with_tags(case)?;
        netns::move_thread(&rig.node)?;
        let kernel = Wires::open(devices().chain(own_veth).filter(|port| stays_up(case, port)))?;
        let is_up = |device: &str| case.setup.port(device).is_none_or(|port| port.up);
        wait_for("state of the ports", || Ok(rig.daemon.ports_are(is_up)?.then_some(())))?;
        let before = rig.daemon.tally()?;
        Ok(Self { rig, case, outside, kernel, before, sent: 0 })
    }

    fn run(mut self) -> Result<(), String> {
        let mut all = Frames::new();
        for (number, step) in (1..).zip(&self.case.steps) {
            all.extend(self.step(step).map_err(|why| format!("step {number}: {why}"))?);
        }
        self.case.check_properties(&all).map_err(|diff| diff.to_string())?;
        self.check_counters()
    }

    fn tally(&self) -> Result<CounterReading, String> {
        Ok(self.rig.daemon.tally()?.since(&self.before))
    }

    fn step(&mut self, step: &Step) -> Result<Frames, String> {
        let (was, mut seen) = (self.tally()?, Seen::default());
        for event in &step.events {
            let generation = self.rig.daemon.generation()?;
            netns::ip_batch(&self.rig.node, &self.commands(event))?;
            wait_for("new generation", || Ok((self.rig.daemon.generation()? > generation).then_some(())))?;
        }
        for burst in step.inputs.chunks(BURST) {
            for input in burst {
                self.send(&input.port, &input.built.bytes)?;
                self.sent += 1;
            }
            wait_for("end of the burst", || {
                let tally = self.tally()?;
                Ok((tally.is_balanced && tally.sum(&["rx"]) + tally.unclaimed == self.sent).then_some(()))
            })?;
            seen.collect(self, step);
        }
        let mut result = Err(String::new());
        let settled = wait_for("match", || {
            seen.collect(self, step);
            let came_out = seen.came_out(self.case, step);
            let counted = self.tally()?.since(&was).sum(&["tx", "reply."]);
            let is_all = seen.forwarded().len() as u64 == counted;
            result = step.check(&came_out).map(|()| came_out).map_err(|diff| diff.to_string());
            Ok((is_all && result.is_ok()).then_some(()))
        });
        match (result, settled) {
            (Ok(frames), Ok(())) => Ok(frames),
            (Ok(_), Err(_)) => Err("the frames that came out are not those that were counted".to_owned()),
            (Err(why), _) => Err(why),
        }
    }

    /// Returns the commands that make an event happen. The kernel forgets neighbours when their link goes down, while
    /// real ones would answer again, so they are added again when it comes up.
    fn commands(&self, event: &Event) -> Vec<String> {
        let back = |name: &String| matches!(event, Event::Link { port, up: true } if port == name);
        let again = self.case.setup.neighbors.iter().filter(|entry| back(&entry.port));
        [wires::event(event)].into_iter().chain(again.map(wires::neighbor)).collect()
    }

    /// Sends a frame from behind a port or, on srv6d's own veth, from the kernel.
    fn send(&mut self, port: &str, frame: &[u8]) -> Result<(), String> {
        if self.case.setup.port(port).is_none_or(|port| !port.kernel) {
            return self.outside.send(port, frame);
        }
        let own = wires::parse_mac(&self.rig.daemon.own_veth_mac()?)?;
        self.kernel.send(port, &between(own, own, frame))
    }

    /// Compares the counters with the case. Frames that were not claimed go to the kernel directly and are added to the
    /// counters in which they would have ended.
    fn check_counters(&self) -> Result<(), String> {
        let mut found = self.tally()?;
        if !found.is_balanced {
            return Err(format!("rx is not the sum of tx, reply, kernel, drop, held and queued: {:?}", found.counters));
        }
        let id = self.case.id.as_str();
        match (self.rig.offload && front::OFFLOADED.contains(&id), found.offloaded) {
            (true, 0) if !TAKEN_OVER_LATER.contains(&id) => {
                return Err("no XDP program has forwarded anything of it".to_owned());
            }
            // The programs of the tc engine deliver to this node also where no port has offload.
            (false, 1..) if !front::DELIVERED.contains(&id) => {
                return Err(format!("XDP programs have forwarded {} frames of it", found.offloaded));
            }
            _ => {}
        }
        let mut unclaimed = found.unclaimed;
        *found.counters.entry("rx".to_owned()).or_default() += unclaimed;
        for name in LEFT_TO_KERNEL {
            let expected = self.case.counters.as_ref().and_then(|counters| counters.get(name)).copied().unwrap_or(0);
            let count = found.counters.entry(name.to_owned()).or_default();
            let left = expected.saturating_sub(*count).min(unclaimed);
            *count += left;
            unclaimed -= left;
        }
        if unclaimed > 0 {
            return Err(format!("{unclaimed} frames were not claimed"));
        }
        self.case.check_counters(&found.counters).map_err(|diff| diff.to_string())
    }
}

/// Returns a frame with other Ethernet addresses.
fn between(source: [u8; 6], destination: [u8; 6], frame: &[u8]) -> Vec<u8> {
    let behind = frame.get(12..).unwrap_or_default();
    [destination.as_slice(), &source, behind].concat()
}

/// Frames seen during a step.
#[derive(Default)]
struct Seen {
    /// Frames seen behind the ports.
    outside: Frames,
    /// Frames received on the node's ends of the cables that were not claimed. Frames of srv6d are not visible there.
    unclaimed: Frames,
    /// Frames that the kernel itself sent, as seen on the node's ends of the cables. They appear behind the ports, too.
    kernel: Frames,
    /// Frames that the kernel got over srv6d's own veth.
    given: Vec<Vec<u8>>,
}

impl Seen {
    fn collect(&mut self, visit: &mut Visit<'_>, step: &Step) {
        self.outside.extend(visit.outside.receive());
        for (port, frame) in visit.kernel.receive_all() {
            let is_own_veth = visit.case.setup.port(&port).is_some_and(|port| port.kernel);
            let came_in = step.inputs.iter().any(|input| input.port == port && input.built.bytes == frame);
            match (is_own_veth, came_in) {
                (true, _) if wires::is_chatter(&frame) => {}
                (true, _) => self.given.push(frame),
                (false, true) => self.unclaimed.push((port, frame)),
                (false, false) => self.kernel.push((port, frame)),
            }
        }
    }

    /// Returns the frames that srv6d has sent through ports.
    fn forwarded(&self) -> Frames {
        let mut of_kernel = self.kernel.clone();
        let is_forwarded = |frame: &&(String, Vec<u8>)| match of_kernel.iter().position(|own| own == *frame) {
            Some(at) => {
                of_kernel.remove(at);
                false
            }
            None => true,
        };
        self.outside.iter().filter(is_forwarded).cloned().collect()
    }

    /// Like [`Seen::forwarded`], but with the frames that the kernel got over srv6d's own veth or because they were not
    /// claimed.
    fn came_out(&self, case: &Case, step: &Step) -> Frames {
        let mut frames = self.forwarded();
        let Some(own) = case.setup.ports.iter().find(|port| port.kernel) else { return frames };
        let as_given = |frame: &Vec<u8>| (own.name.clone(), between(own.mac, own.peer, frame));
        frames.extend(self.given.iter().map(as_given));
        let is_expected =
            |frame: &(String, Vec<u8>)| step.outputs.iter().any(|out| out.matches(&frame.0, &frame.1).is_ok());
        frames.extend(self.unclaimed.iter().map(|(_, frame)| as_given(frame)).filter(is_expected));
        frames
    }
}
