//! The one interface of everything that forwards, so that a differential test is: these engines, these frames.
//!
//! ```text
//!                 ┌─► Worker        the worker's whole step, fast path and slow path      verdict, bytes, counters
//!                 ├─► FastPath      the fast path alone; leaves what is not plain         verdict, bytes, counters
//!   node, frame ──┼─► SlowPath      the slow path alone                                   verdict, bytes, counters
//!                 ├─► XdpProgram    the program of offload = "xdp"; leaves the rest       verdict, bytes, counters
//!                 ├─► TcProgram     the program of engine = "tc"; leaves the rest         verdict, bytes, counters
//!                 ├─► Model         the naive forwarder; all outcomes that are right      verdict, bytes, counters
//!                 └─► Kernel        Linux, configured as the same node                    bytes
//! ```

use srv6d_model::Outcome;
use srv6d_pack::Case;
use srv6d_srv6::Verdict;
use srv6d_srv6::desired::{Desired, Port};

/// The node that engines forward for: its desired state, and its case if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Node<'n> {
    /// The state.
    pub desired: &'n Desired,
    /// The case of the conformance pack that the state belongs to. It says how to configure a Linux kernel as the same node.
    pub case: Option<&'n Case>,
}

impl Node<'_> {
    /// Returns the name of each port's device, by index of the port.
    pub fn devices(&self) -> Vec<String> {
        let name = |port: &Port| match port.vlan {
            Some(vid) => port.name.trim_end_matches(&format!(".{vid}")).to_owned(),
            None => port.name.clone(),
        };
        self.desired.ports.iter().map(name).collect()
    }
}

impl<'n> From<&'n Desired> for Node<'n> {
    fn from(desired: &'n Desired) -> Self {
        Self { desired, case: None }
    }
}

/// Frames that came out, each with the device of its port.
pub type Sent = Vec<(u16, Vec<u8>)>;

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The engine leaves the frame, as it was received, to another engine.
    Left,
    /// Verdict, bytes and counters. Where flows are spread, an engine that makes no choice has several outcomes.
    Outcomes(Vec<Outcome>),
    /// The frames that came out, of an engine that shows nothing else.
    Frames(Sent),
}

impl Treatment {
    /// Returns the only outcome.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Outcomes(all) => all.first().filter(|_| all.len() == 1),
            Self::Left | Self::Frames(_) => None,
        }
    }

    /// Returns the frames that came out, for each choice that the engine leaves open. `None`: the frame was left to another
    /// engine.
    pub fn frames(&self) -> Option<Vec<Sent>> {
        match self {
            Self::Left => None,
            Self::Outcomes(all) => Some(all.iter().map(|outcome| sent_by(outcome).into_iter().collect()).collect()),
            Self::Frames(frames) => Some(vec![frames.clone()]),
        }
    }
}

fn sent_by(Outcome { verdict, frame, .. }: &Outcome) -> Option<(u16, Vec<u8>)> {
    match *verdict {
        Verdict::Tx(device) | Verdict::Kernel(device) | Verdict::Echo(device) | Verdict::Error(_, device) => {
            Some((device, frame.clone()))
        }
        Verdict::Drop(_) | Verdict::Hold(..) => None,
    }
}

/// Something that forwards frames.
pub trait Engine {
    /// Returns its name, for whoever reads a difference.
    fn name(&self) -> &'static str;

    /// Configures the engine as a node. Returns false if the engine cannot be this node.
    ///
    /// # Errors
    /// If the engine does not work.
    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String>;

    /// Forwards a frame that arrives on the device of port `port` of the node.
    ///
    /// # Errors
    /// If the engine does not work, or does not account for the frame.
    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String>;

    /// Returns how often the same frame has to be forwarded, with the same answer, so that caches of the engine have
    /// been in all of their states.
    fn times(&self) -> usize {
        1
    }
}
