//! `srv6d lab capture`: the packets of all nodes as one stream, in the order of time.

use std::io;

use srv6d_api::client;
use srv6d_pcap::{Collector, Output, Wanted};

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::topology::Forwarder;

/// Captures on all ports of the nodes, or of all nodes if none is named, until Ctrl-C or until there are enough packets.
///
/// # Errors
/// A node has no srv6d, or does not answer, or the file cannot be written.
pub fn run(lab: &Lab, nodes: &[String], wanted: &Wanted) -> Result<(), LabError> {
    let has_srv6d = |name: &str| lab.topology.node(name).is_some_and(|node| node.kind == Forwarder::Srv6d);
    if let Some(other) = nodes.iter().find(|name| !has_srv6d(name)) {
        let with: Vec<&str> =
            lab.topology.nodes().map(|node| node.name.as_str()).filter(|name| has_srv6d(name)).collect();
        let fix = format!("name one of {}", with.join(", "));
        return Err(LabError::Invalid(format!("there is no node {other:?} with a srv6d in this lab\nfix: {fix}")));
    }
    let not_written = |why: io::Error| LabError::Failed(format!("cannot write the capture: {why}"));
    let mut output = Output::open(wanted).map_err(not_written)?.ok_or_else(|| {
        let fix = "srv6d lab capture | tshark -r -, or add --write FILE";
        LabError::Invalid(format!("a capture is not text, so it is not written to a terminal\nfix: {fix}"))
    })?;
    let interrupt = Interrupt::watch()?;
    let mut collector = Collector::default();
    let all = lab.topology.nodes().map(|node| &node.name).filter(|name| has_srv6d(name));
    for name in all.filter(|name| nodes.is_empty() || nodes.contains(name)) {
        let failed = |why: String| LabError::Failed(format!("{name}: {why}"));
        let asked = client::capture(&lab.run.socket(name), &[], None).map_err(|why| failed(why.to_string()))?;
        let capturing = asked.map_err(|refusal| failed(refusal.errors.join("\n")))?;
        let prefix = format!("{name}:");
        for device in &capturing.devices {
            output.interface(&format!("{prefix}{device}")).map_err(not_written)?;
        }
        collector.stream(capturing.packets, &prefix);
    }
    match collector.write(wanted, output, || interrupt.check().is_err()) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(not_written(why)),
        _ => Ok(()),
    }
}
