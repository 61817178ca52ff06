//! The XDP program of `offload = "xdp"` and of `engine = "tc"`, and the tc program that encapsulates.

use srv6d_model::{Counts, Outcome};
use srv6d_runner::front::Front;
use srv6d_srv6::desired::Desired;
use srv6d_srv6::{Slots, Tables, Verdict};
use srv6d_xsk::xdp_offload::PacketCount;

use super::{Kind, named};
use crate::engine::{Engine, Node, Treatment};

/// The program that ports receive by, run by `BPF_PROG_TEST_RUN`. It forwards only what comes in by ports that ask for it in
/// the state.
#[derive(Debug)]
pub struct XdpProgram(InKernel);

/// The program that applications send by, run by `BPF_PROG_TEST_RUN`. It encapsulates what comes out of the own veth, if the
/// state asks for it.
#[derive(Debug)]
pub struct TcProgram(InKernel);

/// Loaded programs, and the state that they are in.
#[derive(Debug)]
struct InKernel {
    front: Front,
    /// The state that the tables were made of, once there are any.
    desired: Option<Desired>,
    slots: Slots,
}

impl XdpProgram {
    /// Makes an engine of loaded programs.
    pub fn new(front: Front) -> Self {
        Self(InKernel::new(front))
    }
}

impl TcProgram {
    /// Makes an engine of loaded programs.
    pub fn new(front: Front) -> Self {
        Self(InKernel::new(front))
    }
}

impl InKernel {
    fn new(front: Front) -> Self {
        Self { front, desired: None, slots: Slots::default() }
    }

    fn counts(&self) -> Counts {
        let pair = |PacketCount { packets, bytes }| (packets, bytes);
        let read = |kind, slot| match kind {
            Kind::Sid => pair(self.front.sid(slot)),
            Kind::Path => pair(self.front.path(slot)),
            Kind::NextHop => pair(self.front.hop(slot)),
        };
        named(&self.slots, read).collect()
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        if self.desired.as_ref() == Some(node.desired) {
            return Ok(true);
        }
        (self.desired, self.slots) = (None, Slots::default());
        let Ok(tables) = Tables::build(node.desired, &mut self.slots) else { return Ok(false) };
        self.front.publish(&tables, node.desired)?;
        self.desired = Some(node.desired.clone());
        Ok(true)
    }

    fn treat(
        &mut self,
        run: impl FnOnce(&mut Front) -> Result<Option<(Verdict, Vec<u8>)>, String>,
    ) -> Result<Treatment, String> {
        let before = self.counts();
        let Some((verdict, frame)) = run(&mut self.front)? else { return Ok(Treatment::Left) };
        let grown = |(counted, now): (_, (u64, u64))| {
            let was = before.get(&counted).copied().unwrap_or_default();
            (counted, (now.0 - was.0, now.1 - was.1))
        };
        let counts = self.counts().into_iter().map(grown).filter(|&(_, grown)| grown != (0, 0)).collect();
        Ok(Treatment::Outcomes(vec![Outcome { verdict, frame, counts }]))
    }
}

impl Engine for XdpProgram {
    fn name(&self) -> &'static str {
        "XDP program"
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        self.0.go_over(node)
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        self.0.treat(|front| front.forward(port, frame))
    }
}

impl Engine for TcProgram {
    fn name(&self) -> &'static str {
        "tc program"
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        self.0.go_over(node)
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        self.0.treat(|front| front.send(port, frame))
    }
}
