//! Is what the packet path does one of the things that are right?

use std::fmt::Write as _;

use srv6d_dataplane::memory::ROOM;
use srv6d_model::{Outcome, outcomes};
use srv6d_pack::decode;
use srv6d_srv6::model::Desired;

use crate::{describe, fast};

/// Runs a frame through both forwarders, through the packet path four times: each time it does the same. A state that
/// cannot become tables proves nothing and is no difference.
///
/// # Errors
/// What is different, with the state and the frame as the conformance pack would write them, and the frame in hex.
pub fn compare(desired: &Desired, port: u16, frame: &[u8]) -> Result<(), String> {
    if usize::from(port) >= desired.ports.len() {
        return Ok(());
    }
    let Ok([fast, later @ ..]) = fast::four_times(desired, port, frame) else { return Ok(()) };
    let right = outcomes(desired, port, frame);
    let several_buffers = frame.len() > ROOM;
    let is_right = |outcome: &Outcome| {
        if several_buffers { is_right_in_several_buffers(desired, &fast, outcome) } else { *outcome == fast }
    };
    if later.iter().all(|again| *again == fast) && right.iter().any(is_right) {
        return Ok(());
    }
    let mut text = format!("\n{}{}", describe::state(desired), describe::input(desired, port, frame));
    let _ = writeln!(text, "\npacket path: {}", outcome_text(&fast));
    for again in later.iter().filter(|again| **again != fast) {
        let _ = writeln!(text, "and again:   {}", outcome_text(again));
    }
    for outcome in &right {
        let _ = writeln!(text, "model:       {}", outcome_text(outcome));
    }
    Err(text)
}

/// Only the first buffer of a frame is written to. So bytes behind the packet stay, and transport checksums are not
/// filled in.
fn is_right_in_several_buffers(desired: &Desired, fast: &Outcome, right: &Outcome) -> bool {
    let fills = desired.ports.iter().any(|port| port.fill_checksum);
    fast.verdict == right.verdict && fast.counts == right.counts && (fills || fast.frame.starts_with(&right.frame))
}

fn outcome_text(outcome: &Outcome) -> String {
    let mut text = format!("{:?}", outcome.verdict);
    for (counted, (packets, bytes)) in &outcome.counts {
        let _ = write!(text, ", {counted:?}: {packets} packets {bytes} bytes");
    }
    for line in decode(&outcome.frame) {
        let _ = write!(text, "\n    {line:?},");
    }
    text
}
