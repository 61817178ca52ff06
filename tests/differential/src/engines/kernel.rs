//! The Linux kernel.

use srv6d_pack::Setup;
use srv6d_runner::kernel::KernelNode;

use crate::engine::{Engine, Node, Treatment};

/// A Linux kernel that `iproute2` configures as a node of the conformance pack, in network namespaces of its own.
#[derive(Debug, Default)]
pub struct Kernel {
    node: Option<(String, KernelNode)>,
    names: Vec<String>,
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    /// A node with the same setup as the one before is kept.
    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        let Some(case) = node.case else { return Ok(false) };
        self.names = node.devices();
        let setup = surroundings(&case.setup);
        if self.node.as_ref().is_none_or(|(known, _)| *known != setup) {
            self.node = None;
            self.node = KernelNode::new(case)?.ok().map(|node| (setup, node));
        }
        Ok(self.node.is_some())
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        let (_, node) = self.node.as_mut().ok_or("no node")?;
        let name = self.names.get(usize::from(port)).ok_or("no such port")?;
        let sent = node.forward(name, frame)?;
        let device = |name: &String| {
            let port = self.names.iter().position(|known| known == name);
            port.and_then(|port| u16::try_from(port).ok()).ok_or_else(|| format!("no port {name}"))
        };
        let frames = sent.into_iter().map(|(name, frame)| Ok((device(&name)?, frame)));
        frames.collect::<Result<_, String>>().map(Treatment::Frames)
    }
}

/// Returns what the kernel is configured with.
fn surroundings(setup: &Setup) -> String {
    format!("{:?} {:?} {:?} {:?}", setup.ports, setup.addresses, setup.neighbors, setup.linux)
}
