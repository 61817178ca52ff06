//! The naive forwarder.

use srv6d_model::outcomes;
use srv6d_srv6::desired::Desired;

use crate::engine::{Engine, Node, Treatment};

/// The naive forwarder of `srv6d-model`, written from the RFCs.
#[derive(Debug, Default)]
pub struct Model(Desired);

impl Engine for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        if self.0 != *node.desired {
            self.0 = node.desired.clone();
        }
        Ok(true)
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        Ok(Treatment::Outcomes(outcomes(&self.0, port, frame)))
    }
}
