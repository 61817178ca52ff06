//! The management socket: a client sends one line of JSON, the daemon answers with one line of JSON and closes the
//! connection.
//!
//! ```text
//! {"version":1,"request":"show","topic":"ports"}
//! {"version":1,"result":"ports","value":[{"name":"eth1",...}]}
//! ```
//!
//! A user who may open the socket (owner and group, mode 0660) may make every request.

#![forbid(unsafe_code)]

pub mod client;
pub mod connections;
pub mod explain;
pub mod jobs;
pub mod server;
pub mod state;

use std::net::IpAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use srv6d_offer::Offer;

use explain::{ExplainView, LastDrop, LongestMatch};
use jobs::{JobRequest, JobView, PlacedJob};
use srv6d_job::{Code, Occupancy, Refused};
use state::{
    CountersView, GenerationView, GlbView, MemberStatus, NeighborStatus, PathStatus, PortStatus, ProbesView,
    ProcessView, RouteStatus, SidStatus, SourceView, UnfollowedRoute, WorkerStatus,
};

/// Version of the protocol. A peer with another version is refused, because its messages might be misunderstood.
pub const VERSION: u32 = 1;

/// Path of the socket on which the daemon listens by default.
pub const DEFAULT_SOCKET: &str = "/run/srv6d/srv6d.sock";

/// Length of the longest request line in bytes. A whole configuration file fits.
pub const MAX_REQUEST_BYTES: u64 = 16 * 1024 * 1024;

/// Topics that `srv6d show` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Ports: mode with its reason, queues, MTU, state, packets, XDP program.
    Ports,
    /// Local SIDs: behaviour, flavors, next hops, packets.
    Sids,
    /// Plain routes and their next hops.
    Routes,
    /// Steered prefixes: the SRv6 paths, and how the traffic is shared among them.
    Paths,
    /// Neighbours, resolved or not.
    Neighbors,
    /// Groups that choose by a policy: their members, how good each is, flowlets and moves.
    Balance,
    /// Heartbeats: peers, their age, and the links behind them.
    Glb,
    /// Path probes: which paths work, losses, round-trip times.
    Probes,
    /// Packet counters: where every packet ended, each reason with its meaning.
    Counters,
    /// Generations of the tables: time, cause and changes.
    Generation,
    /// Path controllers: the state of each, and the paths of every peer.
    Source,
    /// Workers: how busy each is, packets of a round, nanoseconds of a packet by stage.
    Workers,
    /// The process: capabilities, seccomp, guards, open files.
    Process,
    /// The last packets that were dropped, for each reason.
    Drops,
    /// Routes of followed kernel tables that stay with the kernel: `show routes --unfollowed`.
    #[value(skip)]
    Unfollowed,
}

/// Direction of the packets that are copied from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Show a topic.
    Show {
        /// The topic to show.
        topic: Topic,
    },
    /// Read the configuration file again and take it over, or keep the old one and say why.
    Reload {
        /// If true, the daemon says what would change, and changes nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Return to the configuration of an earlier generation, and stay with it until the next reload.
    Rollback {
        /// Number of the generation. `None`: the newest one that was made from something else.
        generation: Option<u64>,
        /// If true, the daemon says what would change, and changes nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Make the path controllers be asked now.
    Sync,
    /// Copy the packets that srv6d receives and sends on ports. The answer is followed by a pcapng stream, which ends when
    /// the client closes the connection.
    Capture {
        /// Names of the ports. None: all ports.
        #[serde(default)]
        ports: Vec<String>,
        /// The direction to copy. `None`: both.
        #[serde(default)]
        direction: Option<Direction>,
    },
    /// Say what the tables in force do with a frame. Nothing is sent, held or counted.
    Explain {
        /// Name of the port that receives it.
        port: String,
        /// The frame, from its Ethernet header on, as hexadecimal digits.
        frame: String,
    },
    /// Say which entry of a table matches an address best.
    Match {
        /// The address.
        address: IpAddr,
        /// The table. `None`: main.
        #[serde(default)]
        table: Option<u32>,
    },
    /// Say what a configuration would change, without taking it over.
    Diff {
        /// Name of the file, for error messages.
        filename: String,
        /// Text of the configuration.
        text: String,
        /// Offers of sources. For a source that is not among them, the daemon uses what the source offers it now.
        #[serde(default)]
        offers: Option<Vec<Offer>>,
    },
    /// Place, join, show, renew or end a job.
    Job(Box<JobRequest>),
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", content = "value", rename_all = "lowercase")]
pub enum Response {
    /// Answer to `show ports`.
    Ports(Vec<PortStatus>),
    /// Answer to `show sids`.
    Sids(Vec<SidStatus>),
    /// Answer to `show routes`.
    Routes(Vec<RouteStatus>),
    /// Answer to `show routes --unfollowed`.
    Unfollowed(Vec<UnfollowedRoute>),
    /// Answer to `show paths`.
    Paths(Vec<PathStatus>),
    /// Answer to `show neighbors`.
    Neighbors(Vec<NeighborStatus>),
    /// Answer to `show balance`.
    Balance(Vec<MemberStatus>),
    /// Answer to `show glb`.
    Glb(Box<GlbView>),
    /// Answer to `show probes`.
    Probes(Box<ProbesView>),
    /// Answer to `show counters`.
    Counters(Box<CountersView>),
    /// Answer to `show generation`.
    Generation(Box<GenerationView>),
    /// Answer to `show source`.
    Source(Vec<SourceView>),
    /// Answer to `show workers`.
    Workers(Vec<WorkerStatus>),
    /// Answer to `show process`.
    Process(Box<ProcessView>),
    /// Answer to `explain`.
    Explained(Box<ExplainView>),
    /// Answer to `show routes ADDRESS`.
    Matched(Box<LongestMatch>),
    /// Answer to `show drops`.
    Drops(Vec<LastDrop>),
    /// The controllers are being asked now.
    Syncing,
    /// A pcapng stream follows.
    Capturing {
        /// Network devices of the ports.
        devices: Vec<String>,
    },
    /// `reload` has taken the file over.
    Reloaded(Reloaded),
    /// Answer to `check --diff`.
    Diff(Diff),
    /// A job was placed, and nothing has changed.
    Placed(Box<PlacedJob>),
    /// What the jobs of this daemon occupy of the fabric.
    Occupancy(Vec<Occupancy>),
    /// The job that ranks have joined.
    Job(Box<JobView>),
    /// Jobs of this daemon.
    Jobs(Vec<JobView>),
    /// The request was not carried out, and nothing has changed.
    Refused(Refusal),
}

/// Result of a successful reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Generation that is now in force.
    pub generation: u64,
    /// Descriptions of the changes, one line each. Empty: nothing has changed.
    pub changes: Vec<String>,
    /// Warnings about entries that were accepted but should be checked.
    pub warnings: Vec<String>,
    /// Entries that wait for a device.
    pub pending: Vec<String>,
    /// Generation whose configuration and paths a rollback has put in force again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_to: Option<u64>,
}

/// The changes that a configuration would cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// Summary: `steers +3 -1 ~2`, or `no change`.
    pub summary: String,
    /// Changes, one line each, beginning with `+`, `-` or `~`. Empty: there are none.
    pub changes: Vec<String>,
    /// Warnings about entries that would be accepted but should be checked.
    pub warnings: Vec<String>,
}

/// The reason why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Whether the configuration is at fault (exit status 2) and not the daemon (1).
    pub invalid_configuration: bool,
    /// Error messages, each complete.
    pub errors: Vec<String>,
    /// The reason for programs, of a request about a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
}

impl Response {
    /// Makes a refusal for which the configuration is not at fault.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Refused(Refusal { invalid_configuration: false, errors: vec![error.into()], code: None })
    }
}

impl From<Refused> for Response {
    fn from(Refused { code, why }: Refused) -> Self {
        Self::Refused(Refusal { invalid_configuration: false, errors: vec![why], code: Some(code) })
    }
}

/// A line on the socket: the version, followed by the fields of the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// Only the version, which can be read from any message of the protocol.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// The reason why a line cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The other end is another version of srv6d.
    #[error(
        "the other end speaks version {theirs} of the srv6d protocol, this srv6d speaks version {VERSION}: restart the daemon after an upgrade"
    )]
    Version {
        /// Protocol version of the other end.
        theirs: u32,
    },
    /// The line is not a message of this protocol.
    #[error("not a message of the srv6d protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a message as one line, with its newline.
///
/// # Errors
/// Only if `body` cannot be JSON. Every [`Request`] and [`Response`] can.
pub fn encode<T: Serialize>(body: T) -> Result<String, ProtocolError> {
    let mut line = serde_json::to_string(&Envelope { version: VERSION, body })?;
    line.push('\n');
    Ok(line)
}

/// Decodes the message in a line.
///
/// # Errors
/// The version is another one, or the line is not a message of this protocol.
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
            returned_to: None,
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
