//! The management socket: one line of JSON asks, one line of JSON answers, then the daemon closes.
//!
//! ```text
//! {"version":1,"request":"show","topic":"ports"}
//! {"version":1,"result":"ports","value":[{"name":"eth1",...}]}
//! ```
//!
//! Whoever may open the socket (owner and group, mode 0660) may do everything it offers.

pub mod client;
pub mod server;
pub mod state;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::source::Offer;
use state::{
    CountersView, GenerationView, NeighborRow, PathRow, PortRow, ProcessView, RouteRow, SidRow, SourceView,
    UnfollowedRow,
};

/// Version of the protocol; a peer with another one is refused, not guessed at.
pub const VERSION: u32 = 1;

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/srv6d/srv6d.sock";

/// Longest request line: a whole configuration file fits.
pub const MAX_REQUEST_BYTES: u64 = 16 * 1024 * 1024;

/// What `srv6d show` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Ports: mode and why, queues, MTU, state, packets, XDP program.
    Ports,
    /// Local SIDs: behaviour, flavors, where they lead, packets.
    Sids,
    /// Plain routes and their next hops.
    Routes,
    /// Steered prefixes: the SRv6 paths, and how the traffic is shared among them.
    Paths,
    /// Neighbours, resolved or not.
    Neighbors,
    /// Where every packet ended, each reason with its meaning.
    Counters,
    /// Generations of the tables: when, from what, what changed.
    Generation,
    /// Path controllers: how each is doing, and the paths of every peer.
    Source,
    /// The process: capabilities, seccomp, guards, open files.
    Process,
    /// Routes of followed kernel tables that stay with the kernel: `show routes --unfollowed`.
    #[value(skip)]
    Unfollowed,
}

/// Which packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// One question to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Show something.
    Show {
        /// What.
        topic: Topic,
    },
    /// Read the configuration file again and take it, or keep the old one and say why.
    Reload {
        /// Only say what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Return to what an earlier generation was made of, and stay there until the next reload.
    Rollback {
        /// Its number; absent: the newest one that was made of something else.
        generation: Option<u64>,
        /// Only say what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Let path controllers be asked now.
    Sync,
    /// Copies of what srv6d takes and sends on a port. The answer is followed by a pcap stream that ends with the client.
    Capture {
        /// Name of the port.
        port: String,
        /// Only one of the two directions.
        #[serde(default)]
        direction: Option<Direction>,
    },
    /// What a configuration would change, without taking it.
    Diff {
        /// Name for error messages.
        filename: String,
        /// Text of the configuration.
        text: String,
        /// What sources offer; for those that are not among them, what they offer the daemon now.
        #[serde(default)]
        offers: Option<Vec<Offer>>,
    },
}

/// One answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", content = "value", rename_all = "lowercase")]
pub enum Response {
    /// `show ports`.
    Ports(Vec<PortRow>),
    /// `show sids`.
    Sids(Vec<SidRow>),
    /// `show routes`.
    Routes(Vec<RouteRow>),
    /// `show routes --unfollowed`.
    Unfollowed(Vec<UnfollowedRow>),
    /// `show paths`.
    Paths(Vec<PathRow>),
    /// `show neighbors`.
    Neighbors(Vec<NeighborRow>),
    /// `show counters`.
    Counters(Box<CountersView>),
    /// `show generation`.
    Generation(Box<GenerationView>),
    /// `show source`.
    Source(Vec<SourceView>),
    /// `show process`.
    Process(Box<ProcessView>),
    /// Controllers were told to ask now.
    Syncing,
    /// A pcap stream follows.
    Capturing {
        /// Network device of the port.
        device: String,
    },
    /// `reload` took the file.
    Reloaded(Reloaded),
    /// `check --diff`.
    Diff(Diff),
    /// The request was not carried out; nothing changed.
    Refused(Refusal),
}

/// A reload that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Generation in force now.
    pub generation: u64,
    /// What changed, one line each; empty: nothing.
    pub changes: Vec<String>,
    /// What was accepted but deserves a look.
    pub warnings: Vec<String>,
    /// What waits for a device.
    pub pending: Vec<String>,
}

/// What a configuration would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// `steers +3 -1 ~2`, or `no change`.
    pub summary: String,
    /// One line each, `+`, `-` or `~` first; empty: nothing.
    pub changes: Vec<String>,
    /// What would be accepted but deserves a look.
    pub warnings: Vec<String>,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The configuration is at fault (exit status 2), not the daemon (1).
    pub invalid_configuration: bool,
    /// One complete message each.
    pub errors: Vec<String>,
}

impl Response {
    /// A refusal that is not the configuration's fault.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Refused(Refusal { invalid_configuration: false, errors: vec![error.into()] })
    }
}

/// A line on the socket: the version, then what is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// The version alone, readable whatever else a peer says.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// A line that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Another version of srv6d is at the other end.
    #[error(
        "the other end speaks version {theirs} of the srv6d protocol, this srv6d speaks version {VERSION}: restart the daemon after an upgrade"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// Not this protocol at all.
    #[error("not a message of the srv6d protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// One line, with its newline.
///
/// # Errors
/// Only if `body` cannot be JSON, which no [`Request`] or [`Response`] is.
pub fn encode<T: Serialize>(body: T) -> Result<String, ProtocolError> {
    let mut line = serde_json::to_string(&Envelope { version: VERSION, body })?;
    line.push('\n');
    Ok(line)
}

/// The message in one line.
///
/// # Errors
/// Another version, or not this protocol.
pub fn decode<T: for<'de> Deserialize<'de>>(line: &str) -> Result<T, ProtocolError> {
    let VersionOnly { version } = serde_json::from_str(line)?;
    if version != VERSION {
        return Err(ProtocolError::Version { theirs: version });
    }
    let envelope: Envelope<T> = serde_json::from_str(line)?;
    Ok(envelope.body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn request_is_one_documented_line() {
        let line = encode(Request::Show { topic: Topic::Ports }).unwrap();
        assert_eq!(line, "{\"version\":1,\"request\":\"show\",\"topic\":\"ports\"}\n");
        assert_eq!(decode::<Request>(&line).unwrap(), Request::Show { topic: Topic::Ports });
    }

    #[test]
    fn response_survives_the_line() {
        let response = Response::Reloaded(Reloaded {
            generation: 7,
            changes: vec!["+ sid fcbb:0:1000::/48".into()],
            warnings: vec![],
            pending: vec!["eth9".into()],
        });
        let line = encode(&response).unwrap();
        assert!(line.starts_with("{\"version\":1,\"result\":\"reloaded\",\"value\":{"), "{line}");
        assert_eq!(decode::<Response>(&line).unwrap(), response);
    }

    #[test]
    fn newer_peer_is_named_even_if_its_request_is_unknown() {
        let error = decode::<Request>(r#"{"version":2,"request":"teleport"}"#).unwrap_err();
        assert!(matches!(error, ProtocolError::Version { theirs: 2 }), "{error}");
    }

    #[test]
    fn garbage_is_not_a_message() {
        for line in ["", "{}", "show ports", r#"{"version":1,"request":"teleport"}"#, r#"{"version":"1"}"#] {
            assert!(matches!(decode::<Request>(line), Err(ProtocolError::Malformed(_))), "{line:?}");
        }
    }
}
