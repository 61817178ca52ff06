//! Cases, ready to be run.

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
    /// In the order of files and of their cases.
    pub cases: Vec<Case>,
}

impl Pack {
    /// The case of that id.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }
}

/// One case: a configuration, frames in, frames out, counters.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique: the row, and a letter where a row has several cases.
    pub id: String,
    /// Row of the table in `tests/conformance/README.md`.
    pub row: String,
    /// What happens.
    pub title: String,
    /// Where it is asked for.
    pub clause: String,
    /// 0: must, to 3: nice to have.
    pub priority: u8,
    /// File the case is in, without `.toml`.
    pub area: String,
    /// Choices and explanations.
    pub note: String,
    /// Configuration and surroundings, with the changes of the case.
    pub setup: Setup,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// Every counter that is not zero at the end; `None`: not compared.
    pub counters: Option<BTreeMap<String, u64>>,
    /// The configuration is refused with a message that contains this.
    pub refused: Option<String>,
    /// What the Linux kernel does with the same frames.
    pub linux: Linux,
    /// Statements about all frames that came out.
    pub properties: Vec<Property>,
}

/// Configuration and surroundings of a case.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name in the files.
    pub name: String,
    /// What it stands for.
    pub summary: String,
    /// Text of `srv6d.toml`.
    pub config: String,
    /// Network devices.
    pub ports: Vec<Port>,
    /// Addresses of the loopback device.
    pub addresses: Vec<IpNet>,
    /// What the kernel has resolved.
    pub neighbors: Vec<Neighbor>,
    /// `ip` arguments (iproute2) that make a kernel the same node.
    pub linux: Vec<String>,
}

impl Setup {
    /// The device of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// A network device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Ethernet address of who is behind it: destination of frames sent, source of frames received.
    pub peer: [u8; 6],
    /// Largest layer-3 packet.
    pub mtu: u32,
    /// With carrier.
    pub up: bool,
    /// Addresses the kernel has on it.
    pub addresses: Vec<IpNet>,
    /// srv6d's own veth: `mac` is the end that srv6d reads and writes, `peer` the kernel's.
    pub kernel: bool,
    /// A VLAN (802.1Q VID) of this device. Its frames arrive on, and are expected on, the device.
    pub vlan: Option<(String, u16)>,
}

/// An entry of the kernel's neighbour table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Device.
    pub port: String,
    /// Its address.
    pub address: IpAddr,
    /// `None`: no longer resolved.
    pub mac: Option<[u8; 6]>,
}

/// Something that happens before the frames of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour resolves, changes or is lost.
    Neighbor(Neighbor),
    /// A device goes up or down.
    Link {
        /// Device.
        port: String,
        /// New state.
        up: bool,
    },
}

/// Events, then frames.
#[derive(Clone, Debug)]
pub struct Step {
    /// Milliseconds since the start of the case.
    pub at_ms: u64,
    /// What changes first.
    pub events: Vec<Event>,
    /// What arrives, in order.
    pub inputs: Vec<Input>,
    /// What must come out: in this order on every single port.
    pub outputs: Vec<Expect>,
}

impl Step {
    /// Compares everything that came out since the step began with what must have.
    ///
    /// # Errors
    /// [`Diff`] of the first frame that is wrong, missing or not expected.
    pub fn check(&self, frames: &[(String, Vec<u8>)]) -> Result<(), Diff> {
        let mut open: Vec<&Expect> = self.outputs.iter().collect();
        for (port, frame) in frames {
            let on_port = |expect: &&Expect| expect.ports().contains(&port.as_str());
            let Some(first) = open.iter().position(on_port) else {
                return Err(Diff::only(format!("unexpected frame on {port}"), &[], frame));
            };
            // A frame that may take several ports may come out later than the next one on this port.
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

/// A frame that arrives.
#[derive(Clone, Debug)]
pub struct Input {
    /// Device it arrives on.
    pub port: String,
    /// As written in the case.
    pub text: Vec<String>,
    /// The frame.
    pub built: Built,
}

/// What the Linux kernel does with the same frames.
#[derive(Clone, Debug)]
pub enum Linux {
    /// The same.
    Agree,
    /// Something else.
    Diverge(Divergence),
    /// Not compared, for this reason.
    None(String),
}

/// How the Linux kernel differs from a case.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Short name, shared by all cases that differ for the same reason.
    pub name: String,
    /// One sentence.
    pub why: String,
    /// What the kernel was seen to do.
    pub recorded: Recorded,
}

/// What the Linux kernel was seen to do where it differs.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The steps of the case, with the frames that come out of the kernel.
    Frames(Vec<Step>),
    /// The kernel refuses to be configured like this, with a message that contains the text.
    Refused(String),
    /// The kernel takes the configuration that should have been refused.
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
    /// Compares counters: every one that is listed has its value, every other one is zero.
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

    /// Checks the statements about all frames of the case together.
    ///
    /// # Errors
    /// [`Diff`] of the first one that does not hold.
    pub fn check_properties(&self, frames: &[(String, Vec<u8>)]) -> Result<(), Diff> {
        let expects = self.steps.iter().flat_map(|step| &step.outputs);
        let mut ports: Vec<&str> = expects.flat_map(Expect::ports).collect();
        ports.sort_unstable();
        ports.dedup();
        self.properties.iter().try_for_each(|property| property.check(&ports, frames))
    }
}
