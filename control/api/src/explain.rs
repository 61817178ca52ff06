//! What `srv6d explain`, `srv6d show routes ADDRESS` and `srv6d show drops` report.

use serde::{Deserialize, Serialize};

use crate::state::Health;

/// Length of the longest frame that is explained, in bytes.
pub const MAX_FRAME: usize = 16 * 1024;

/// Answer to `explain`: what the tables in force do with a frame. Frames are written as lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainView {
    /// Generation of the tables.
    pub generation: u64,
    /// Name of the port that the frame is received by.
    pub port: String,
    /// Whether the fast path of a worker takes the frame. Otherwise the slow path does, with the same rules.
    pub fast_path: bool,
    /// The program in front of the worker that may take the frame: an XDP program or the tc program. Empty: there is none.
    pub in_front: String,
    /// The steps through the tables, in their order.
    pub steps: Vec<ExplainedStep>,
    /// The end of the packet.
    pub verdict: ExplainedVerdict,
    /// The route by which the kernel sends a packet that is handed to it, as `ip route get` says. The client asks the
    /// kernel. Absent: it was not asked.
    #[serde(default)]
    pub kernel_route: Option<String>,
    /// The frame as it is received.
    pub before: String,
    /// The frame as it leaves. A frame that is dropped or held stays as it is.
    pub after: String,
}

/// One step through the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum ExplainedStep {
    /// The logical port of the frame.
    Port {
        /// Its name.
        name: String,
        /// Its role.
        role: String,
        /// Its table (VRF).
        table: u32,
        /// Its MTU.
        mtu: u32,
    },
    /// The destination was looked up.
    LookUp(LongestMatch),
    /// The carrier was shifted to its next uSID.
    Shift,
    /// The next segment of the SRH became the destination.
    NextSegment,
    /// The outer headers were removed.
    Decapsulate {
        /// Source of the inner packet.
        source: String,
        /// Destination of the inner packet.
        destination: String,
        /// Table in which the destination is looked up.
        table: u32,
    },
    /// A path of the steered prefix was chosen.
    Path(ExplainedChoice<PathChoice>),
    /// A next hop was chosen.
    NextHop(ExplainedChoice<HopChoice>),
    /// The packet was compared with the MTU.
    Size {
        /// Layer-3 length of the packet as it leaves, in bytes.
        length: usize,
        /// Largest length.
        mtu: usize,
    },
}

/// A longest match: answer to `show routes ADDRESS`, and a step of `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongestMatch {
    /// The address that was looked up.
    pub address: String,
    /// The table that it was looked up in.
    pub table: u32,
    /// The longest prefix that matches; absent if none does.
    pub prefix: Option<String>,
    /// What the prefix leads to: `sid`, `steer`, `route`, `neighbor`, `on-link`, `local`, `kernel`, `block`, `blackhole`,
    /// `unreachable`, or `none`.
    pub kind: String,
    /// The behaviour of a SID, the paths of a steered prefix, the next hops of a route.
    pub detail: String,
    /// The input that made the entry: the file, the kernel, FRR, a controller. Empty: unknown.
    pub origin: String,
}

/// A choice among the members of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedChoice<T> {
    /// The slot that the hash of the flow picks; absent if there is at most one member, or a policy chooses.
    pub slot: Option<usize>,
    /// Number of slots.
    pub slots: usize,
    /// All members.
    pub members: Vec<T>,
}

/// A path among which was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChoice {
    /// Name of the path.
    pub path: String,
    /// Its segments.
    pub segments: Vec<String>,
    /// Number of slots that lead to it.
    pub slots: usize,
    /// Whether the packet goes by it.
    pub chosen: bool,
}

/// A next hop among which was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopChoice {
    /// Address of the neighbour.
    pub via: String,
    /// Name of the port.
    pub port: String,
    /// MAC address of the neighbour, if it is known.
    pub mac: Option<String>,
    /// Whether packets can be sent to it.
    pub state: Health,
    /// Number of slots that lead to it.
    pub slots: usize,
    /// Whether the packet goes by it.
    pub chosen: bool,
}

/// The end of a packet: what happens to it, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedVerdict {
    /// `sent`, `kernel`, `echo` (an echo request, answered), `answered` (with an ICMP error), `dropped` or `held`.
    pub verdict: String,
    /// Name of the port that it leaves by, or of the one whose neighbour is awaited.
    pub port: Option<String>,
    /// Address of the neighbour that is awaited.
    pub neighbor: Option<String>,
    /// The reason of a drop or of an ICMP error, as in `show counters`.
    pub reason: Option<String>,
    /// What the reason means.
    pub meaning: Option<String>,
    /// Keys of the configuration that decide about it.
    pub setting: Option<String>,
}

/// A packet that was dropped: one row of `show drops`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDrop {
    /// The reason, as in `show counters`.
    pub reason: String,
    /// What the reason means.
    pub meaning: String,
    /// Number of the worker.
    pub worker: usize,
    /// Name of the network device that it was received by or, if `leaving`, that it was about to leave by.
    pub device: String,
    /// Whether it was about to leave.
    pub leaving: bool,
    /// When it was dropped, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Length of the packet in bytes.
    pub length: usize,
    /// Its first bytes, at most 128, as hexadecimal digits.
    pub head: String,
    /// The last destination that is looked up for it, in the tables in force now; absent if it gets to no look-up.
    pub destination: Option<String>,
    /// What the tables in force would do with it now, as far as its first bytes tell, e.g. `dropped: no_route`. Absent
    /// for a packet that was about to leave.
    pub now: Option<String>,
}
