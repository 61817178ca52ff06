//! Is what the packet path does one of the things that are right?

use std::fmt::Write as _;

use srv6d_model::{Outcome, outcomes};
use srv6d_pack::decode;
use srv6d_srv6::model::Desired;

use crate::{describe, fast};

/// Runs a frame through both forwarders. A state that cannot become tables proves nothing and is no difference.
///
/// # Errors
/// What is different, with the state and the frame as the conformance pack would write them.
pub fn compare(desired: &Desired, port: u16, frame: &[u8]) -> Result<(), String> {
    let Ok(fast) = fast::outcome(desired, port, frame) else { return Ok(()) };
    let right: Vec<Outcome> = outcomes(desired, port, frame);
    if right.contains(&fast) {
        return Ok(());
    }
    let mut text = format!("\n{}{}", describe::state(desired), describe::input(desired, port, frame));
    let _ = writeln!(text, "\npacket path: {}", outcome_text(&fast));
    for outcome in &right {
        let _ = writeln!(text, "model:       {}", outcome_text(outcome));
    }
    Err(text)
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
