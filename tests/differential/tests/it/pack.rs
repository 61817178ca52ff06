//! Runs the conformance pack through the naive forwarder, as a second opinion on the pack itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::collections::BTreeMap;
use std::path::Path;

use srv6d_differential::compare::compare;
use srv6d_differential::engine;
use srv6d_model::{Counted, Outcome, outcomes};
use srv6d_pack::Case;
use srv6d_runner::{apply, desired, environment};
use srv6d_srv6::Verdict;
use srv6d_srv6::desired::Desired;

/// Cases that the naive forwarder does not pass, with the reasons.
const NOT_MODELLED: [(&str, &str); 1] = [("I05a", "it does not learn from what the underlay says about the MTU")];

type Sent = Vec<(String, Vec<u8>)>;

struct Node {
    desired: Desired,
    names: Vec<String>,
    held: Vec<(u16, Vec<u8>)>,
    counters: BTreeMap<String, u64>,
}

impl Node {
    fn new(desired: Desired) -> Self {
        let names = engine::Node::from(&desired).devices();
        Self { names, desired, held: Vec::new(), counters: BTreeMap::new() }
    }

    fn count(&mut self, name: impl Into<String>) {
        *self.counters.entry(name.into()).or_default() += 1;
    }

    /// Forwards a frame. Where flows are spread, the first of the right outcomes is used.
    fn forward(&mut self, port: u16, frame: &[u8], sent: &mut Sent) {
        let all = outcomes(&self.desired, port, frame);
        let Some(Outcome { verdict, frame: bytes, counts }) = all.into_iter().next() else { panic!("no outcome") };
        let device = match verdict {
            Verdict::Drop(reason) => return self.count(format!("drop.{}", reason.name())),
            Verdict::Hold(..) => return self.held.push((port, frame.to_vec())),
            Verdict::Tx(device) => (device, "tx".to_owned()),
            Verdict::Kernel(device) => (device, "kernel".to_owned()),
            Verdict::Echo(device) => (device, "reply.echo".to_owned()),
            Verdict::Error(reason, device) => (device, format!("reply.{}", reason.name())),
        };
        self.count(device.1);
        for (counted, (packets, _)) in counts {
            let name = match counted {
                Counted::Sid(sid) => format!("sid.{sid}"),
                Counted::Path(path) => format!("path.{path}"),
                Counted::NextHop(..) | Counted::EcnUnused => continue,
            };
            *self.counters.entry(name).or_default() += packets;
        }
        sent.push((self.names[usize::from(device.0)].clone(), bytes));
    }
}

fn run(case: &Case) -> Result<(), String> {
    let mut surroundings = environment(&case.setup);
    let mut node = Node::new(desired(&case.setup.config, &surroundings)?);
    for (number, step) in (1..).zip(&case.steps) {
        let mut sent = Sent::new();
        step.events.iter().for_each(|event| apply(&mut surroundings, event));
        node.desired = desired(&case.setup.config, &surroundings)?;
        for (port, frame) in std::mem::take(&mut node.held) {
            node.forward(port, &frame, &mut sent);
        }
        for input in &step.inputs {
            node.count("rx");
            let port = node.names.iter().position(|name| *name == input.port).unwrap();
            let port = u16::try_from(port).unwrap();
            compare(&node.desired, port, &input.built.bytes)?;
            node.forward(port, &input.built.bytes, &mut sent);
        }
        step.check(&sent).map_err(|diff| format!("step {number}: {diff}"))?;
    }
    let held = node.held.len() as u64;
    node.counters.insert("held".to_owned(), held);
    case.check_counters(&node.counters).map_err(|diff| diff.to_string())
}

/// Runs every case. Properties about the spread of flows are not checked, because the model accepts every choice and
/// takes the first. Each frame is also run through the packet path, which must come to the same result as the model.
#[test]
fn the_model_agrees_with_the_pack() {
    let pack = srv6d_pack::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")).unwrap();
    let mut wrong = Vec::new();
    for case in pack.cases.iter().filter(|case| case.refused.is_none()) {
        let known = NOT_MODELLED.iter().any(|(id, _)| *id == case.id);
        match run(case) {
            Err(diff) if !known => wrong.push(format!("{} {}: {diff}", case.id, case.title)),
            Ok(()) if known => wrong.push(format!("{} is modelled now: take it from the list", case.id)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n\n"));
}
