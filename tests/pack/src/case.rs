//! Conformance cases, ready to be run.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::build::Built;
use crate::expect::{Diff, Expect};
use crate::property::Property;

/// Every case of a directory.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Cases, in the order of the files and of the cases in each file.
    pub cases: Vec<Case>,
}

impl Pack {
    /// Returns the case with this id.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }
}

/// One case: a configuration, received frames, expected frames, and counters.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique id: the row, with a letter if a row has several cases.
    pub id: String,
    /// Row of the table in `tests/conformance/README.md`.
    pub row: String,
    /// Short description of what happens.
    pub title: String,
    /// Document and section that require it.
    pub clause: String,
    /// Priority from 0 (must) to 3 (nice to have).
    pub priority: u8,
    /// Name of the file that contains the case, without `.toml`.
    pub area: String,
    /// Explanation of choices that the case makes.
    pub note: String,
    /// Configuration and surroundings, including the changes that the case makes to them.
    pub setup: Setup,
    /// Steps of the case, in order.
    pub steps: Vec<Step>,
    /// Every counter that is not zero at the end; `None`: counters are not compared.
    pub counters: Option<BTreeMap<String, u64>>,
    /// If set, the configuration must be refused with a message that contains this text.
    pub refused: Option<String>,
    /// Behaviour of the Linux kernel with the same frames.
    pub linux: Linux,
    /// Properties that all frames sent must have together.
    pub properties: Vec<Property>,
}

/// Configuration and surroundings of a case.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the setup in the files.
    pub name: String,
    /// Description of what the setup stands for.
    pub summary: String,
    /// Contents of `srv6d.toml`.
    pub config: String,
    /// Network devices of the node.
    pub ports: Vec<Port>,
    /// Addresses of the loopback device.
    pub addresses: Vec<IpNet>,
    /// Neighbours that the kernel has resolved.
    pub neighbors: Vec<Neighbor>,
    /// `ip` arguments (iproute2) that configure a Linux kernel as the same node.
    pub linux: Vec<String>,
}

impl Setup {
    /// Returns the device with this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// A network device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name of the device.
    pub name: String,
    /// Ethernet address of the device.
    pub mac: [u8; 6],
    /// Ethernet address of the station behind it: destination of sent frames, source of received frames.
    pub peer: [u8; 6],
    /// MTU: size of the largest layer-3 packet.
    pub mtu: u32,
    /// Whether the device has carrier.
    pub up: bool,
    /// Addresses that the kernel has on it.
    pub addresses: Vec<IpNet>,
    /// Whether it is srv6d's own veth. Then `mac` belongs to the end that srv6d uses, and `peer` to the kernel's end.
    pub kernel: bool,
    /// For a VLAN: its device and VLAN ID (802.1Q). Frames of the VLAN arrive on the device and are expected there.
    pub vlan: Option<(String, u16)>,
}

/// An entry of the kernel's neighbour table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Name of the device.
    pub port: String,
    /// Address of the neighbour.
    pub address: IpAddr,
    /// Ethernet address; `None`: it is not resolved any more.
    pub mac: Option<[u8; 6]>,
}

/// A change that precedes the frames of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour resolves, changes or is lost.
    Neighbor(Neighbor),
    /// A device goes up or down.
    Link {
        /// Name of the device.
        port: String,
        /// New state: true if up.
        up: bool,
    },
}

/// One step of a case: events, then frames.
#[derive(Clone, Debug)]
pub struct Step {
    /// Milliseconds since the start of the case.
    pub at_ms: u64,
    /// Events at the beginning of the step.
    pub events: Vec<Event>,
    /// Received frames, in order.
    pub inputs: Vec<Input>,
    /// Expected frames; on each port, they must be sent in this order.
    pub outputs: Vec<Expect>,
}

impl Step {
    /// Compares all frames sent since the step began with the expected ones.
    ///
    /// # Errors
    /// [`Diff`] of the first frame that is wrong, missing or unexpected.
    pub fn check(&self, frames: &[(String, Vec<u8>)]) -> Result<(), Diff> {
        let mut open: Vec<&Expect> = self.outputs.iter().collect();
        for (port, frame) in frames {
            let on_port = |expect: &&Expect| expect.ports().contains(&port.as_str());
            let Some(first) = open.iter().position(on_port) else {
                return Err(Diff::only(format!("unexpected frame on {port}"), &[], frame));
            };
            // A frame that may leave through several ports may come out later than the next frame on this port.
            let found = open.iter().position(|expect| on_port(expect) && expect.matches(port, frame).is_ok());
            let is_free = |index: usize| open.iter().take(index).filter(|e| on_port(e)).all(|e| e.ports().len() > 1);
            match found.filter(|&index| index == first || is_free(index)) {
                Some(index) => drop(open.remove(index)),
                None => open
                    .get(first)
                    .map_or(Ok(()), |expect| expect.matches(port, frame))
                    .map_err(|diff| Diff::new(format!("frame on {port}: {diff}")))?,
            }
        }
        match open.first() {
            None => Ok(()),
            Some(missing) => {
                let bytes = missing.candidates.first().map(|(_, built)| built.bytes.as_slice()).unwrap_or_default();
                Err(Diff::only(format!("missing on {}", missing.ports().join(" or ")), bytes, &[]))
            }
        }
    }
}

/// A frame that the node receives.
#[derive(Clone, Debug)]
pub struct Input {
    /// Device it arrives on.
    pub port: String,
    /// Layers of the frame as written in the case.
    pub text: Vec<String>,
    /// The frame.
    pub built: Built,
}

/// Behaviour of the Linux kernel with the same frames.
#[derive(Clone, Debug)]
pub enum Linux {
    /// The kernel does what the case expects.
    Agree,
    /// Differently, as described.
    Diverge(Divergence),
    /// It is not compared, for this reason.
    None(String),
}

/// How the Linux kernel differs from a case.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Short name, shared by all cases that differ for the same reason.
    pub name: String,
    /// Reason in one sentence.
    pub why: String,
    /// Behaviour that was observed.
    pub recorded: Recorded,
}

/// Observed behaviour of the Linux kernel in a case where it differs.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The steps of the case, with the frames that the kernel sends.
    Frames(Vec<Step>),
    /// The kernel refuses the configuration with a message that contains this text.
    Refused(String),
    /// The kernel accepts a configuration that should be refused.
    Accepted,
}

impl fmt::Display for Linux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agree => f.write_str("agree"),
            Self::Diverge(divergence) => f.write_str(&divergence.name),
            Self::None(_) => f.write_str("none"),
        }
    }
}

impl Case {
    /// Compares counters: each listed counter must have its value, and every other one must be zero.
    ///
    /// # Errors
    /// [`Diff`] with every counter that is different.
    pub fn check_counters(&self, found: &BTreeMap<String, u64>) -> Result<(), Diff> {
        let Some(expected) = &self.counters else { return Ok(()) };
        let names: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let value = |counters: &BTreeMap<String, u64>, name: &String| counters.get(name).copied().unwrap_or(0);
        let wrong: Vec<String> = names
            .into_iter()
            .map(|name| (name, value(expected, name), value(found, name)))
            .filter(|(_, expected, found)| expected != found)
            .map(|(name, expected, found)| format!("  {name}: expected {expected}, got {found}"))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(Diff::new(format!("counters:\n{}", wrong.join("\n")))) }
    }

    /// Checks the properties of all frames of the case together.
    ///
    /// # Errors
    /// [`Diff`] of the first property that does not hold.
    pub fn check_properties(&self, frames: &[(String, Vec<u8>)]) -> Result<(), Diff> {
        let expects = self.steps.iter().flat_map(|step| &step.outputs);
        let mut ports: Vec<&str> = expects.flat_map(Expect::ports).collect();
        ports.sort_unstable();
        ports.dedup();
        self.properties.iter().try_for_each(|property| property.check(&ports, frames))
    }
}
