//! Stores the counters at the time when a user cleared them.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use srv6d_sonic_cli::counters::{Sample, since};

use super::node::{Node, write};
use super::version;
use srv6d_command::Failure;

/// Contents of a user's file.
#[derive(Debug, Deserialize, Serialize)]
struct Stored {
    /// Time of the clearing, in microseconds since 1970.
    at: u64,
    values: Sample,
}

fn file(node: &Node, command: &str) -> PathBuf {
    let user = nix::unistd::getuid();
    node.places.run().join("cleared").join(user.to_string()).join(format!("{command}.json"))
}

/// Stores the present values, so that this user sees only what is counted from now on.
pub fn clear(node: &Node, command: &str, values: Sample) -> Result<(), Failure> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let stored = Stored { at: u64::try_from(at).unwrap_or(u64::MAX), values };
    let text = serde_json::to_string(&stored).map_err(|why| Failure::failed(format!("Error: {why}")))?;
    write(&file(node, command), &text)
}

/// Returns what has been counted since this user cleared the counters, and when that was. If a counter began anew
/// meanwhile, the stored values are discarded.
pub fn uncleared(node: &Node, command: &str, now: Sample) -> (Sample, Option<String>) {
    let file = file(node, command);
    let stored: Option<Stored> = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
    let Some(stored) = stored else { return (now, None) };
    let (shown, valid) = since(&now, &stored.values);
    if valid {
        return (shown, Some(version::timestamp(stored.at)));
    }
    let _ = fs::remove_file(file); // it is of no more use, and the next clear replaces it
    (shown, None)
}
