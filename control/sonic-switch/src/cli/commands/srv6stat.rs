//! `srv6stat`: shows packets and bytes of each SID.

use srv6d_sonic_cli::counters::Sample;
use srv6d_sonic_cli::tables::{SidCount, sid_counts};

use super::node::Node;
use super::{stored, tree};
use srv6d_command::{Failure, output};

const COMMAND: &str = "srv6stat";

/// Difference per packet: SONiC counts Ethernet frames and four more bytes for each; srv6d counts IPv6 packets.
const FRAME: u64 = 14 + 4;

/// Carries out `srv6stat [-s SID] [-c]`.
pub fn srv6stat(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let mut sid = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-c" | "--clear" => return clear(node),
            "-s" | "--sid" => sid = arguments.next().map(String::as_str),
            "-h" | "--help" => return output::print("Usage: srv6stat [-s SID] [-c]\n"),
            other => return Err(tree::wrong(COMMAND, &format!("no such option: {other}"))),
        }
    }
    stats(node, sid)
}

/// Carries out `show srv6 stats [SID]`.
pub fn stats(node: &Node, sid: Option<&str>) -> Result<(), Failure> {
    // If SID counters are not polled, SONiC shows an empty table.
    if !node.switch()?.sid_counters.enabled {
        return output::print(&sid_counts(&[]));
    }
    let (shown, _) = stored::uncleared(node, COMMAND, sample(node)?);
    let count = |(name, values): (&String, &Vec<u64>)| SidCount {
        sid: name.clone(),
        packets: values.first().copied().unwrap_or_default(),
        bytes: values.get(1).copied().unwrap_or_default(),
    };
    let counts: Vec<SidCount> =
        shown.iter().filter(|(name, _)| sid.is_none_or(|sid| sid == name.as_str())).map(count).collect();
    output::print(&sid_counts(&counts))
}

/// Carries out `sonic-clear srv6counters`.
pub fn clear(node: &Node) -> Result<(), Failure> {
    stored::clear(node, COMMAND, sample(node)?)
}

fn sample(node: &Node) -> Result<Sample, Failure> {
    let rows = node.sids()?.into_iter();
    Ok(rows.map(|row| (row.sid, vec![row.packets, row.bytes + FRAME * row.packets])).collect())
}
