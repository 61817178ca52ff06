//! What a running srv6d tells about itself.
//!
//! These rows are the `--json` output word for word: a field keeps its name and meaning once released.
//! Addresses and prefixes are text in RFC 5952 form, packet and byte counts run since the start of the daemon.

use crate::confine::Privileges;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use srv6d_dataplane::Published;

/// Whether a port, a next hop or a SID can carry packets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Usable.
    Up,
    /// The device has no carrier or is administratively down.
    Down,
    /// The neighbour's MAC address is not known yet.
    Unresolved,
    /// The configured device does not exist (yet).
    Pending,
}

/// One logical port: `show ports`. A device counts what is lost and what goes to the kernel as a whole: these numbers
/// stand at its untagged port, or at the first of its VLANs, and are 0 at the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortRow {
    /// Configured name: the device, or `device.vid`.
    pub name: String,
    /// Network device.
    pub device: String,
    /// 802.1Q VID of a tagged port.
    pub vlan: Option<u16>,
    /// `up`, `down`, or `pending` while the device is missing.
    pub state: Health,
    /// `fabric`, `edge`, `host`, `kernel`.
    pub role: String,
    /// Where the role comes from. Empty: the file has it, or the daemon is older than this.
    #[serde(default)]
    pub role_reason: String,
    /// VRF of what arrives, as the kernel's routing table id.
    pub table: u32,
    /// `zero-copy`, `native`, `generic`; absent while pending.
    pub mode: Option<String>,
    /// Why that mode was taken, or why the port is pending.
    pub reason: String,
    /// Receive queues polled by a worker.
    pub queues: u32,
    /// Largest layer-3 packet, bytes.
    pub mtu: u32,
    /// Address of the device.
    pub mac: Option<String>,
    /// Id of the attached XDP program, as `bpftool prog` shows it.
    pub xdp_program: Option<u32>,
    /// Claimed packets received.
    pub rx_packets: u64,
    /// Claimed bytes received.
    pub rx_bytes: u64,
    /// Claimed packets lost before a worker saw them: a ring was full.
    pub rx_lost: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets for the port that were dropped because its transmit ring was full.
    #[serde(default)]
    pub tx_lost: u64,
    /// Claimed packets that were dropped, for one of the reasons of `show counters`.
    #[serde(default)]
    pub rx_refused: u64,
    /// Packets that were not claimed, and so went to the kernel.
    pub to_kernel: u64,
    /// How `offload = "xdp"` stands; absent: not asked for.
    #[serde(default)]
    pub offload: Option<OffloadRow>,
    /// Of the packets received: forwarded by the XDP program, past the workers.
    #[serde(default)]
    pub offloaded: u64,
    /// What has become of `busy_budget` here; absent: not asked for.
    #[serde(default)]
    pub busy_polling: Option<BusyPollingRow>,
}

/// A port whose drivers workers poll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyPollingRow {
    /// NAPIs that workers poll, as `ethtool` and the kernel's netdev family number them.
    pub napi_ids: Vec<u32>,
    /// Why not every queue's is; empty: it is.
    pub reason: String,
}

/// A port with `offload = "xdp"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadRow {
    /// Its XDP program forwards plain shifts.
    pub on: bool,
    /// Why it does not, or which of them it does not; empty: there is nothing to say.
    pub reason: String,
}

/// One next hop of a SID, route or path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopRow {
    /// Neighbour; absent: the destination itself (on-link).
    pub via: Option<String>,
    /// Port it leaves by.
    pub port: String,
    /// Share of the flows.
    pub weight: u16,
    /// The neighbour's MAC address, once resolved.
    pub mac: Option<String>,
    /// `up`, `down` (port), `unresolved` (neighbour).
    pub state: Health,
}

/// One local SID: `show sids`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SidRow {
    /// Matched prefix.
    pub sid: String,
    /// `uN`, `uA`, `uDT6`, `End.X`, ...
    pub behavior: String,
    /// `psp`, `usp`, `usd`.
    pub flavors: Vec<String>,
    /// Locator block and node + function length of a uSID, in bits: `[32, 16]`.
    pub csid: Option<[u8; 2]>,
    /// Table of the inner lookup (uDT*).
    pub table: Option<u32>,
    /// Next hops (uA, uDX*).
    pub next_hops: Vec<HopRow>,
    /// Used while every next hop is unusable.
    pub backup: Vec<HopRow>,
    /// `up` when a packet for it can be served.
    pub state: Health,
    /// Packets served (RFC 8986 section 6).
    pub packets: u64,
    /// Bytes served.
    pub bytes: u64,
}

/// One plain route: `show routes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Destinations.
    pub prefix: String,
    /// Routing table.
    pub table: u32,
    /// `unicast`, `blackhole`, `unreachable`, `kernel`: iproute2's route types, and "left to the kernel".
    #[serde(rename = "type")]
    pub kind: String,
    /// Next hops of a `unicast` route.
    pub next_hops: Vec<HopRow>,
}

/// One route of the kernel that stays with the kernel: `show routes --unfollowed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfollowedRow {
    /// Destinations.
    pub prefix: String,
    /// Routing table.
    pub table: u32,
    /// Why.
    pub why: String,
}

/// One path of a steered prefix: `show paths`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// Inner destinations.
    pub prefix: String,
    /// Table the prefix lives in.
    pub table: u32,
    /// Name of the path.
    pub path: String,
    /// `encap.red` or `encap`.
    pub mode: String,
    /// Carriers, in the order they are visited.
    pub segments: Vec<String>,
    /// The uSIDs inside the carriers, one list for each segment; a segment outside every block stays whole.
    pub usids: Vec<Vec<String>>,
    /// Configured share of the flows.
    pub weight: u16,
    /// Largest outer packet, in bytes, where a router on the way has said one in the last ten minutes.
    pub learned_mtu: Option<u32>,
    /// Next hops given by the configuration; empty: the route to the first segment.
    pub next_hops: Vec<HopRow>,
    /// Packets encapsulated.
    pub packets: u64,
    /// Bytes encapsulated.
    pub bytes: u64,
    /// Share of the packets of this prefix, in percent with one decimal; absent before the first packet.
    pub share_percent: Option<f64>,
}

/// One neighbour: `show neighbors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighborRow {
    /// Layer-3 address.
    pub address: String,
    /// Port it is reached by.
    pub port: String,
    /// Layer-2 address; absent while unresolved.
    pub mac: Option<String>,
    /// `up` or `unresolved`.
    pub state: Health,
    /// A next hop of a SID, route or path uses it.
    pub next_hop: bool,
}

/// One named way a packet ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonRow {
    /// Name of the counter.
    pub reason: String,
    /// Packets.
    pub packets: u64,
    /// What it means, in a line.
    pub meaning: String,
}

/// `show counters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountersView {
    /// Packets taken from the ports.
    pub rx: u64,
    /// Packets sent.
    pub tx: u64,
    /// Packets handed to the kernel of this node.
    pub kernel: u64,
    /// Packets waiting for a neighbour.
    pub held: u64,
    /// Of `rx` and `tx` alike: forwarded by XDP programs, past the workers.
    #[serde(default)]
    pub offloaded: u64,
    /// Packets of this node's applications that the kernel dropped in front of srv6d's own interface; they are not part
    /// of `rx`. `None`: the kernel does not tell.
    #[serde(default)]
    pub local_lost: Option<u64>,
    /// Packets answered by srv6d itself, by kind.
    pub reply: Vec<ReasonRow>,
    /// Packets dropped, by reason.
    pub drop: Vec<ReasonRow>,
    /// The sum of everything but `rx`.
    pub accounted: u64,
    /// `rx == accounted`: every packet ended in exactly one counter.
    pub balanced: bool,
    /// The same by port.
    pub ports: Vec<PortRow>,
}

/// How many entries of one kind came, went and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// New entries.
    pub added: usize,
    /// Entries that are gone.
    pub removed: usize,
    /// Entries with new contents.
    pub changed: usize,
}

/// One published generation of the tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRow {
    /// Number, counted up from the start of the daemon.
    pub generation: u64,
    /// When it was published: seconds since 1970-01-01 UTC.
    pub published: u64,
    /// What brought it: `start`, `reload`, `kernel`, the name of a source, `rollback to N`.
    pub source: String,
    /// What it changed, by kind: `ports`, `sids`, `steers`, `routes`, `neighbors`, `addresses`.
    pub changes: BTreeMap<String, Changed>,
}

/// `show generation`: the daemon, the generation in force and the ones before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationView {
    /// Name of the node.
    pub node: String,
    /// Version of the daemon.
    pub daemon: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// When it started: seconds since 1970-01-01 UTC.
    pub started: u64,
    /// The configuration file.
    pub config: String,
    /// Newest first; the first one is in force.
    pub generations: Vec<GenerationRow>,
    /// How the tables came into force, since the daemon was started.
    #[serde(default)]
    pub tables: Published,
    /// Bytes of kernel memory that the daemon's BPF maps and programs take. They are part of no resident set.
    #[serde(default)]
    pub kernel_memory: u64,
    /// The generation that was returned to: sources are not followed until the next reload.
    #[serde(default)]
    pub held: Option<u64>,
    /// What the configuration asks for and the machine does not have yet.
    pub pending: Vec<String>,
    /// Notes: facts that are worth knowing and wait for nothing.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What was accepted but deserves a look.
    pub warnings: Vec<String>,
    /// Why the last reload was refused; empty when it was not.
    pub refused: Vec<String>,
}

/// What the daemon's process runs with: `show process`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Process id.
    pub pid: u32,
    /// Capabilities, seccomp, threads.
    #[serde(flatten)]
    pub privileges: Privileges,
    /// It has no more than it needs.
    pub least_privilege: bool,
    /// Guard processes that have not ended.
    pub guards: usize,
    /// Open files.
    pub open_files: usize,
    /// Open files there may be (`RLIMIT_NOFILE`).
    pub open_files_limit: u64,
}

/// One path controller, or FPM: `show source`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// `jalapeno`, `syd` or `fpm`.
    pub source: String,
    /// Where its API is; for `fpm`, where srv6d listens.
    pub endpoint: String,
    /// `fresh`, `failing` (the last good paths stay), `waiting` (no answer yet), `refused` (it could not be started). For
    /// `fpm`: `connected`, `disconnected`, `waiting` (nobody ever was), `refused` (it cannot listen).
    pub state: String,
    /// Generation that a rollback holds in force, whatever it says now.
    #[serde(default)]
    pub held: Option<u64>,
    /// Peers it is asked about.
    pub peers_total: usize,
    /// Peers whose paths are what it says now.
    pub peers_fresh: usize,
    /// Rounds begun.
    pub attempts: u64,
    /// Rounds that ended with every peer fresh.
    pub successes: u64,
    /// Failed requests and refused answers, by cause.
    pub failures: BTreeMap<String, u64>,
    /// When a round last ended with every peer fresh: seconds since 1970-01-01 UTC.
    pub last_success: Option<u64>,
    /// Seconds since then.
    pub age_seconds: Option<u64>,
    /// How long the last round took, milliseconds.
    pub last_duration_ms: u64,
    /// What went wrong last, while something does.
    pub last_error: Option<String>,
    /// Answers whose own carrier text is another one than their path's.
    pub text_mismatches: u64,
    /// One row per peer and prefix.
    pub peers: Vec<SourcePeerRow>,
    /// Of `fpm` alone; everything about rounds and peers is empty there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<FpmView>,
}

/// What FRR announces over FPM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FpmView {
    /// Who is connected.
    pub peer: Option<String>,
    /// When the connection began, or ended: seconds since 1970-01-01 UTC.
    pub since: Option<u64>,
    /// Seconds since then.
    pub since_seconds: Option<u64>,
    /// Connections so far.
    pub connections: u64,
    /// `frr`, `sonic`, or `unknown` while nothing was said.
    pub dialect: String,
    /// Routes that are announced.
    pub routes: usize,
    /// SIDs that are announced: as routes, or in messages of their own (SONiC's dialect).
    pub sids: usize,
    /// Next-hop objects that are announced.
    pub next_hops: usize,
    /// Routes by the number of a next hop that nobody has explained.
    pub waiting: usize,
    /// Routes and SIDs of an earlier connection that this one has not announced again.
    pub stale: usize,
    /// Routes and SIDs that went because nobody announced them again.
    pub swept: u64,
    /// Routes that are not in force: left to the kernel, waiting, or the file says something else.
    pub unfollowed: usize,
    /// Routes of a VRF that has no device.
    pub without_vrf: usize,
    /// Netlink messages read.
    pub messages: u64,
    /// Messages that made no sense.
    pub malformed: u64,
    /// The last one of them.
    pub last_malformed: Option<String>,
    /// Attributes that nobody knows.
    pub unknown_attributes: u64,
    /// Messages that are of no use here, by kind.
    pub ignored: BTreeMap<String, u64>,
    /// Routes that zebra was told to be in force.
    pub answers: u64,
    /// Connections that were turned away because their user or address is not allowed.
    #[serde(default)]
    pub turned_away: u64,
    /// The last one of them, and why.
    #[serde(default)]
    pub last_turned_away: Option<String>,
    /// Announcements that were not taken because there were too many.
    #[serde(default)]
    pub refused: u64,
    /// The last one of them, and why.
    #[serde(default)]
    pub last_refused: Option<String>,
    /// Next-hop objects that stand for nothing usable: `number: reason`. The first ones.
    #[serde(default)]
    pub unusable_next_hops: Vec<String>,
}

/// One prefix of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcePeerRow {
    /// Id in the controller.
    pub peer: String,
    /// Inner destinations; absent: none is known yet.
    pub prefix: Option<String>,
    /// `fresh`, `stale` (the last good paths), `missing` (never had any), `waiting`.
    pub state: String,
    /// Since when it is stale: seconds since 1970-01-01 UTC.
    pub stale_since: Option<u64>,
    /// When its paths were last confirmed: seconds since 1970-01-01 UTC.
    pub synced: Option<u64>,
    /// Nodes and carriers.
    pub paths: Vec<String>,
    /// `yes`, `pending`, `refused`, `no`: whether the tables in force have it.
    pub programmed: String,
    /// What went wrong last, while something does.
    pub error: Option<String>,
    /// What deserves a look.
    pub notes: Vec<String>,
}

/// Everything at once, for metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// `show counters`; holds `show ports` too.
    pub counters: CountersView,
    /// `show sids`.
    pub sids: Vec<SidRow>,
    /// `show routes`.
    pub routes: Vec<RouteRow>,
    /// `show paths`.
    pub paths: Vec<PathRow>,
    /// `show neighbors`.
    pub neighbors: Vec<NeighborRow>,
    /// `show generation`.
    pub generation: GenerationView,
    /// `show source`.
    pub sources: Vec<SourceView>,
}
