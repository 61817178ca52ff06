//! The state that a running srv6d reports.
//!
//! `--json` prints these types as they are: a field keeps its name and meaning once released. Addresses and prefixes
//! are text in the form of RFC 5952. Packet and byte counts begin at the start of the daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::jobs::JobCounts;

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

/// One logical port: `show ports`. Losses and packets to the kernel are counted per device only. These numbers are
/// given for the device's untagged port, or for the first of its VLANs, and are 0 for the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Configured name: the device, or `device.vid`.
    pub name: String,
    /// Network device.
    pub device: String,
    /// 802.1Q VID of a tagged port.
    pub vlan: Option<u16>,
    /// State of the port: `up`, `down`, or `pending` while the device is missing.
    pub state: Health,
    /// Role of the port: `fabric`, `edge`, `host`, `kernel`.
    pub role: String,
    /// Why the port has this role. Empty: the role is in the file, or the daemon is older than this field.
    #[serde(default)]
    pub role_reason: String,
    /// VRF of packets that arrive, as the kernel's routing table id.
    pub table: u32,
    /// XDP mode: `zero-copy`, `native`, `generic`; `tc`: a tc program in place of the XDP program; absent while pending.
    pub mode: Option<String>,
    /// Why that mode was taken, or why the port is pending.
    pub reason: String,
    /// Receive queues polled by a worker.
    pub queues: u32,
    /// Largest layer-3 packet in bytes.
    pub mtu: u32,
    /// MAC address of the device.
    pub mac: Option<String>,
    /// Id of the attached XDP program, as `bpftool prog` shows it.
    pub xdp_program: Option<u32>,
    /// Claimed packets received.
    pub rx_packets: u64,
    /// Claimed bytes received.
    pub rx_bytes: u64,
    /// Claimed packets that were lost before a worker received them, because a ring was full.
    pub rx_lost: u64,
    /// Number of packets sent.
    pub tx_packets: u64,
    /// Number of bytes sent.
    pub tx_bytes: u64,
    /// Packets to the port that were dropped because its transmit ring was full.
    #[serde(default)]
    pub tx_lost: u64,
    /// Claimed packets that were dropped, for one of the reasons of `show counters`.
    #[serde(default)]
    pub rx_refused: u64,
    /// Packets that were not claimed and therefore went to the kernel.
    pub to_kernel: u64,
    /// State of the offload, or at srv6d's own veth of `[host] engine = "tc"`; absent if it is not configured.
    #[serde(default)]
    pub offload: Option<OffloadStatus>,
    /// The part of the packets received that the XDP program or the tc program has forwarded without a worker.
    #[serde(default)]
    pub offloaded: u64,
    /// Who decapsulates what SIDs deliver from here to this node; absent without `[host] engine = "tc"`.
    #[serde(default)]
    pub delivery: Option<DeliveryStatus>,
    /// State of `busy_budget` at this port; absent if it is not configured.
    #[serde(default)]
    pub busy_polling: Option<BusyPollingStatus>,
    /// What the port emulates, and how its queue is; absent if it emulates nothing.
    #[serde(default)]
    pub emulated: Option<EmulatedStatus>,
}

/// An emulated port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatedStatus {
    /// Rate in bit/s.
    pub rate: u64,
    /// Share of the last tenth of a second for which the link was busy, in permille.
    pub load_permille: u64,
    /// Packets in the port: in the queue, or delayed.
    pub packets: u64,
    /// Bytes that are not yet on the wire.
    pub queue_bytes: u64,
    /// Largest number of bytes so far that were not yet on the wire.
    pub peak_bytes: u64,
    /// Packets that were marked with CE here.
    pub marked: u64,
    /// Packets that were dropped here, by drop reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that left up to 1.024 µs too late, up to 2.048 µs, and so on; the last number is of all above.
    pub late: Vec<u64>,
    /// Sum of the time by which packets left too late, in nanoseconds.
    pub late_ns: u64,
}

/// State of busy polling at a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyPollingStatus {
    /// Ids of the NAPIs that workers poll, as `ethtool` and the kernel's netdev family number them.
    pub napi_ids: Vec<u32>,
    /// Why not every queue's NAPI is polled. Empty: every one is.
    pub reason: String,
}

/// State of a port with `offload = "xdp"` or `"auto"`, or of srv6d's own veth with `[host] engine = "tc"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// Whether its XDP program, or the tc program, forwards.
    pub on: bool,
    /// Whether srv6d has chosen this (`"auto"`).
    #[serde(default)]
    pub auto: bool,
    /// Why the program does not forward, or which plain packets it leaves to the workers. Empty: it forwards all of
    /// them. With `auto`, the text begins with the reason for srv6d's choice.
    pub reason: String,
}

/// Who decapsulates what SIDs deliver to this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryStatus {
    /// `tc` or `worker`.
    pub engine: String,
    /// Why it is the worker. Empty: it is tc.
    pub reason: String,
}

/// One next hop of a SID, route or path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// Address of the neighbour; absent if the destination itself is the neighbour (on-link).
    pub via: Option<String>,
    /// Port by which packets leave.
    pub port: String,
    /// Weight, which decides its share of the flows.
    pub weight: u16,
    /// The neighbour's MAC address, once resolved.
    pub mac: Option<String>,
    /// State: `up`, `down` (port), `unresolved` (neighbour).
    pub state: Health,
}

/// One local SID: `show sids`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SidStatus {
    /// Prefix that is matched.
    pub sid: String,
    /// Behaviour: `uN`, `uA`, `uDT6`, `End.X`, ...
    pub behavior: String,
    /// Flavors: `psp`, `usp`, `usd`.
    pub flavors: Vec<String>,
    /// Locator block and node + function length of a uSID, in bits: `[32, 16]`.
    pub csid: Option<[u8; 2]>,
    /// Routing table of the inner lookup (uDT*).
    pub table: Option<u32>,
    /// Next hops (uA, uDX*).
    pub next_hops: Vec<NextHopStatus>,
    /// Next hops that are used while all of `next_hops` are unusable.
    pub backup: Vec<NextHopStatus>,
    /// State: `up` if a packet for the SID can be processed.
    pub state: Health,
    /// Number of packets processed (RFC 8986 section 6).
    pub packets: u64,
    /// Number of bytes processed.
    pub bytes: u64,
}

/// One plain route: `show routes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// Destination prefix.
    pub prefix: String,
    /// Id of the routing table.
    pub table: u32,
    /// Type: `unicast`, `blackhole`, `unreachable` as in iproute2, or `kernel` for "left to the kernel".
    #[serde(rename = "type")]
    pub kind: String,
    /// Next hops of a `unicast` route.
    pub next_hops: Vec<NextHopStatus>,
}

/// One route of the kernel that stays with the kernel: `show routes --unfollowed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfollowedRoute {
    /// Destination prefix.
    pub prefix: String,
    /// Id of the routing table.
    pub table: u32,
    /// Why srv6d does not follow it.
    pub why: String,
}

/// One path of a steered prefix: `show paths`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Prefix of inner destinations.
    pub prefix: String,
    /// Id of the routing table of the prefix.
    pub table: u32,
    /// Name of the path.
    pub path: String,
    /// Mode of encapsulation: `encap.red` or `encap`.
    pub mode: String,
    /// Carriers in the order in which they are visited.
    pub segments: Vec<String>,
    /// The uSIDs inside the carriers, one list for each segment. A segment outside every block stays whole.
    pub usids: Vec<Vec<String>>,
    /// Configured weight, which decides its share of the flows.
    pub weight: u16,
    /// Largest outer packet in bytes, if a router on the way has reported one in the last ten minutes.
    pub learned_mtu: Option<u32>,
    /// What encapsulates the packets of local applications: `tc` or `worker`. Absent: `[host] engine` does not ask for
    /// `tc`, or the prefix is not in the main table.
    #[serde(default)]
    pub engine: Option<String>,
    /// Why it is `worker`, although `tc` is asked for. Empty: it is `tc`.
    #[serde(default)]
    pub engine_reason: String,
    /// Next hops from the configuration. Empty: packets take the route to the first segment.
    pub next_hops: Vec<NextHopStatus>,
    /// What probes say of it: `good`, `dead`, `unheard` or `not probed`. Absent: nothing is probed.
    #[serde(default)]
    pub probes: Option<String>,
    /// Probes have found it dead, and packets do not take it.
    #[serde(default)]
    pub left_out: bool,
    /// Number of packets encapsulated.
    pub packets: u64,
    /// Number of bytes encapsulated.
    pub bytes: u64,
    /// Share of the packets of this prefix, in percent with one decimal; absent before the first packet.
    pub share_percent: Option<f64>,
}

/// One neighbour: `show neighbors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighborStatus {
    /// Layer-3 address.
    pub address: String,
    /// Port by which it is reached.
    pub port: String,
    /// Layer-2 address; absent while unresolved.
    pub mac: Option<String>,
    /// State: `up` or `unresolved`.
    pub state: Health,
    /// Whether a next hop of a SID, route or path uses it.
    pub next_hop: bool,
}

/// One member of a group that chooses by a policy: `show balance`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Owner of the group: `route`, `steer` or `sid`, and the first of the prefixes that have the group.
    pub group: String,
    /// Number of further prefixes with the same members and the same policy.
    pub more: usize,
    /// Name of the policy.
    pub policy: String,
    /// Mode of the policy: `flowlet`, `adaptive`, `global` or `weighted`.
    pub mode: String,
    /// Next hop or path.
    pub member: String,
    /// Weight.
    pub weight: u16,
    /// Bits per second that the member's links can carry, if that is known. Only weighted policies have it.
    #[serde(default)]
    pub capacity: Option<u64>,
    /// Source of the weights of a weighted policy: `capacities`, `route` or `nothing`.
    #[serde(default)]
    pub weights_from: Option<String>,
    /// Quality of the own port, 0 to 7; 7 is the best. Only adaptive and global policies have one.
    pub band: Option<u8>,
    /// Quality of the ports behind the next hop, if heartbeats tell of them.
    #[serde(default)]
    pub far_band: Option<u8>,
    /// The quality that decides: the worse one of both.
    #[serde(default)]
    pub used_band: Option<u8>,
    /// How busy the port is, in permille, with `band`.
    pub score: Option<u16>,
    /// Packets that left by the member, including packets of other groups with the same member.
    pub packets: u64,
    /// Flowlets that began on the member.
    pub flowlets: u64,
    /// Flows that came to the member from another one, by reason: `gap`, `down`, `reactive`.
    pub moves: BTreeMap<String, u64>,
}

/// Heartbeats of this node and its neighbours: `show glb`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GlbView {
    /// Role of the node: `helper-only`, `load-balancer-only` or `both`.
    pub role: String,
    /// BGP identifier of this node.
    pub node: String,
    /// Why no heartbeat is sent or believed.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Heartbeats sent, one for each neighbour.
    pub sent: u64,
    /// Heartbeats received and believed.
    pub received: u64,
    /// Datagrams refused, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Ports of this node.
    pub ports: Vec<GlbPortRow>,
    /// Nodes that are expected to send heartbeats.
    pub peers: Vec<GlbPeerRow>,
    /// Links between the peers and the nodes behind them.
    pub links: Vec<GlbLinkRow>,
}

/// A port, as heartbeats tell of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlbPortRow {
    /// Name of the port.
    pub port: String,
    /// Node at the other end. Without one, heartbeats are refused.
    pub neighbor: Option<String>,
    /// Average load in permille, if the rate is known.
    pub load_permille: Option<u16>,
    /// Average share of the queue that is full, in permille, if the queue can be seen.
    pub queue_permille: Option<u16>,
    /// Bits per second.
    pub capacity: Option<u64>,
    /// Why heartbeats are not sent or received on it.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// A node that is expected to send heartbeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlbPeerRow {
    /// BGP identifier.
    pub node: String,
    /// Ports that lead to it.
    pub port: String,
    /// `fresh`, `unknown` after three silent periods, `suspect` after five, or `unheard`.
    pub state: String,
    /// Role of the peer: `helper-only` or `both`.
    pub role: Option<String>,
    /// Microseconds since the last heartbeat.
    pub age_us: Option<u64>,
    /// Longest time between two heartbeats of the peer, in milliseconds.
    pub period_ms: Option<u64>,
    /// Heartbeats received.
    pub received: u64,
    /// Heartbeats that are missing, by their sequence numbers.
    pub missed: u64,
    /// Restarts of the peer.
    pub restarts: u64,
}

/// A link from a peer to a node behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlbLinkRow {
    /// BGP identifier of the peer.
    pub node: String,
    /// BGP identifier of the node behind it.
    pub neighbor: String,
    /// The link is up.
    pub up: bool,
    /// Average load in permille.
    pub load_permille: u64,
    /// Average share of the queue that is full, in permille.
    pub queue_permille: u64,
    /// Bits per second.
    pub capacity: u64,
    /// Groups look at it: the node is one of `via_nodes`.
    pub looked_at: bool,
    /// Quality by the free capacity, compared with the other links to the same node, 0 to 7. `None`: unknown.
    pub band: Option<u8>,
}

/// A counter of one reason for which packets end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Name of the counter.
    pub reason: String,
    /// Number of packets.
    pub packets: u64,
    /// Meaning of the counter, in one line.
    pub meaning: String,
}

/// All packet counters: `show counters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountersView {
    /// Number of packets taken from the ports.
    pub rx: u64,
    /// Number of packets sent.
    pub tx: u64,
    /// Number of packets handed to the kernel of this node.
    pub kernel: u64,
    /// Number of packets that wait for a neighbour.
    pub held: u64,
    /// Number of packets in emulated ports.
    #[serde(default)]
    pub queued: u64,
    /// The part of both `rx` and `tx` that XDP programs and the tc program have forwarded without a worker.
    #[serde(default)]
    pub offloaded: u64,
    /// Packets of this node's applications that the kernel dropped in front of srv6d's own interface. They are not part
    /// of `rx`. `None`: the kernel does not tell.
    #[serde(default)]
    pub local_lost: Option<u64>,
    /// Decapsulated packets whose outer header was ECT and whose inner header was Not-ECT: a combination that no sender
    /// makes (RFC 6040 section 4.2).
    #[serde(default)]
    pub ecn_unused: u64,
    /// Packets answered by srv6d itself, by kind.
    pub reply: Vec<ReasonCount>,
    /// Packets dropped, by reason.
    pub drop: Vec<ReasonCount>,
    /// Sum of all counters except `rx`.
    pub accounted: u64,
    /// Whether `rx == accounted`: every packet ended in exactly one counter.
    pub balanced: bool,
    /// The counters of each port.
    pub ports: Vec<PortStatus>,
}

/// Numbers of entries of one kind that were added, removed and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Number of new entries.
    pub added: usize,
    /// Number of entries that are gone.
    pub removed: usize,
    /// Number of entries with new contents.
    pub changed: usize,
}

/// One published generation of the tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationSummary {
    /// Number of the generation, counted from the start of the daemon.
    pub generation: u64,
    /// When it was published: seconds since 1970-01-01 UTC.
    pub published: u64,
    /// Cause of the generation: `start`, `reload`, `kernel`, the name of a source, `rollback to N`.
    pub source: String,
    /// Changes by kind: `ports`, `sids`, `steers`, `routes`, `neighbors`, `addresses`.
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
    /// When the daemon started: seconds since 1970-01-01 UTC.
    pub started: u64,
    /// Path of the configuration file.
    pub config: String,
    /// Generations, newest first. The first one is in force.
    pub generations: Vec<GenerationSummary>,
    /// Numbers of publications of tables since the start of the daemon, by the way they were made.
    #[serde(default)]
    pub tables: Published,
    /// Kernel memory of the daemon's BPF maps and programs, in bytes. It is not part of any process's resident set.
    #[serde(default)]
    pub kernel_memory: u64,
    /// The generation to which a rollback has returned. Sources are not followed until the next reload.
    #[serde(default)]
    pub held: Option<u64>,
    /// Parts of the configuration that wait for something that the machine does not have yet.
    pub pending: Vec<String>,
    /// Notes: facts that are worth knowing and require no action.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Warnings about entries that were accepted but should be checked.
    pub warnings: Vec<String>,
    /// Why the last reload was refused. Empty: it was not refused.
    pub refused: Vec<String>,
}

/// Numbers of tables that have come into force so far, by the way they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Whole generations, compiled from all there is.
    pub whole: u64,
    /// Whole builds among them that were made for an amendment that could not be made in place.
    pub whole_for_amendment: u64,
    /// Amendments made in place.
    pub in_place: u64,
    /// Amendments among them that were made in a fresh copy of the tables, because a worker was still in the standby
    /// copy.
    pub copied: u64,
}

/// Privileges of a process according to the kernel. If its threads differ, the least restricted one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privileges {
    /// Effective user id.
    pub uid: u32,
    /// Capabilities that at least one thread has.
    pub capabilities: Vec<String>,
    /// Whether no thread can gain privileges by executing a program.
    pub no_new_privs: bool,
    /// Whether every thread has a seccomp filter.
    pub seccomp: bool,
    /// Whether Landlock restricts which files the process may change.
    #[serde(default)]
    pub landlock: bool,
    /// Number of threads.
    pub threads: usize,
}

/// The daemon's process and its privileges: `show process`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Process id.
    pub pid: u32,
    /// Capabilities, seccomp, threads.
    #[serde(flatten)]
    pub privileges: Privileges,
    /// Whether it has no more privileges than it needs.
    pub least_privilege: bool,
    /// Number of guard processes that have not ended.
    pub guards: usize,
    /// Number of open files.
    pub open_files: usize,
    /// Largest number of open files (`RLIMIT_NOFILE`).
    pub open_files_limit: u64,
}

/// One path controller, or FPM: `show source`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// Kind of source: `jalapeno`, `syd` or `fpm`.
    pub source: String,
    /// Address of its API; for `fpm`, the address on which srv6d listens.
    pub endpoint: String,
    /// State: `fresh`, `failing` (the last good paths stay), `waiting` (no answer yet), `refused` (it could not be
    /// started). For `fpm`: `connected`, `disconnected`, `waiting` (no peer was ever connected), `refused` (it cannot
    /// listen).
    pub state: String,
    /// Generation that a rollback keeps in force, whatever the controller answers now.
    #[serde(default)]
    pub held: Option<u64>,
    /// Number of peers for which it is asked.
    pub peers_total: usize,
    /// Number of peers whose paths are the ones of the controller's present answers.
    pub peers_fresh: usize,
    /// Number of rounds begun.
    pub attempts: u64,
    /// Number of rounds that ended with every peer fresh.
    pub successes: u64,
    /// Numbers of failed requests and refused answers, by cause.
    pub failures: BTreeMap<String, u64>,
    /// When a round last ended with every peer fresh: seconds since 1970-01-01 UTC.
    pub last_success: Option<u64>,
    /// Number of seconds since then.
    pub age_seconds: Option<u64>,
    /// Duration of the last round in milliseconds.
    pub last_duration_ms: u64,
    /// The last error, as long as it persists.
    pub last_error: Option<String>,
    /// Number of answers whose own carrier text differs from that of their path.
    pub text_mismatches: u64,
    /// One row per peer and prefix.
    pub peers: Vec<SourcePeerStatus>,
    /// Further state of `fpm`. The fields about rounds and peers are empty there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<FpmView>,
}

/// What FRR announces over FPM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FpmView {
    /// Address of the connected peer.
    pub peer: Option<String>,
    /// When the connection began or ended: seconds since 1970-01-01 UTC.
    pub since: Option<u64>,
    /// Number of seconds since then.
    pub since_seconds: Option<u64>,
    /// Number of connections so far.
    pub connections: u64,
    /// Dialect: `frr`, `sonic`, or `unknown` while the peer has sent nothing.
    pub dialect: String,
    /// Number of announced routes.
    pub routes: usize,
    /// Number of announced SIDs: as routes, or in messages of their own (SONiC's dialect).
    pub sids: usize,
    /// Number of announced next-hop objects.
    pub next_hops: usize,
    /// Number of routes that refer to a next-hop number that has not been announced.
    pub waiting: usize,
    /// Number of routes and SIDs of an earlier connection that the present one has not announced again.
    pub stale: usize,
    /// Number of routes and SIDs that were removed because they were not announced again.
    pub swept: u64,
    /// Number of routes that are not in force: they are left to the kernel, they wait, or the file says something else.
    pub unfollowed: usize,
    /// Number of routes in a VRF that has no device.
    pub without_vrf: usize,
    /// Number of Netlink messages read.
    pub messages: u64,
    /// Number of messages that could not be parsed.
    pub malformed: u64,
    /// Description of the last one of these.
    pub last_malformed: Option<String>,
    /// Number of unknown attributes.
    pub unknown_attributes: u64,
    /// Numbers of messages that are not used here, by kind.
    pub ignored: BTreeMap<String, u64>,
    /// Number of routes about which zebra was told that they are in force.
    pub answers: u64,
    /// Number of connections that were refused because their user or address is not allowed.
    #[serde(default)]
    pub turned_away: u64,
    /// Description of the last one of these, with the reason.
    #[serde(default)]
    pub last_turned_away: Option<String>,
    /// Number of announcements that were refused because there were too many.
    #[serde(default)]
    pub refused: u64,
    /// Description of the last one of these, with the reason.
    #[serde(default)]
    pub last_refused: Option<String>,
    /// The first few next-hop objects that cannot be used: `number: reason`.
    #[serde(default)]
    pub unusable_next_hops: Vec<String>,
}

/// One prefix of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcePeerStatus {
    /// Id of the peer in the controller.
    pub peer: String,
    /// Prefix of inner destinations; absent if none is known yet.
    pub prefix: Option<String>,
    /// State: `fresh`, `stale` (the last good paths), `missing` (there never were any), `waiting`.
    pub state: String,
    /// When it became stale: seconds since 1970-01-01 UTC.
    pub stale_since: Option<u64>,
    /// When its paths were last confirmed: seconds since 1970-01-01 UTC.
    pub synced: Option<u64>,
    /// Nodes and carriers of its paths.
    pub paths: Vec<String>,
    /// Whether the tables in force have it: `yes`, `pending`, `refused`, `no`.
    pub programmed: String,
    /// The last error, as long as it persists.
    pub error: Option<String>,
    /// Notes about facts that should be checked.
    pub notes: Vec<String>,
}

/// A worker: `show workers`. Counters and times run since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Number of the worker.
    pub worker: usize,
    /// Core that it is pinned to.
    pub core: Option<usize>,
    /// How it waits: `busy` or `adaptive`, as in `[workers] polling`.
    pub polling: String,
    /// Packets received.
    pub packets: u64,
    /// Rounds.
    pub rounds: u64,
    /// Rounds with packets.
    pub busy_rounds: u64,
    /// Rounds in which a port had as many packets as a round takes: more may have waited.
    pub full_rounds: u64,
    /// Rounds of more than a millisecond.
    pub late_rounds: u64,
    /// Nanoseconds of the longest of these since the start.
    pub longest_round_ns: u64,
    /// Nanoseconds since the start.
    pub lived_ns: u64,
    /// Nanoseconds in rounds with packets.
    pub busy_ns: u64,
    /// Nanoseconds asleep.
    pub asleep_ns: u64,
    /// Packets of the rounds that were timed stage by stage.
    pub timed_packets: u64,
    /// Stages of a round, in their order.
    pub stages_ns: Vec<StageTime>,
}

/// The time of a stage in the rounds that were timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTime {
    /// Name of the stage: `receive`, `look_up`, `write`, `send`.
    pub stage: String,
    /// Nanoseconds.
    pub nanoseconds: u64,
}

impl WorkerStatus {
    /// Returns the share of its time in rounds with packets, in permille.
    pub const fn busy_permille(&self) -> u64 {
        match self.busy_ns.saturating_mul(1000).checked_div(self.lived_ns) {
            Some(share) => share,
            None => 0,
        }
    }

    /// Returns what was counted since an earlier answer. A worker that was restarted since has counted all it has.
    #[must_use]
    pub fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier.filter(|earlier| earlier.lived_ns < self.lived_ns) else { return self.clone() };
        let stages = self.stages_ns.iter().map(|stage| {
            let before = earlier.stages_ns.iter().find(|before| before.stage == stage.stage);
            let nanoseconds = stage.nanoseconds.saturating_sub(before.map_or(0, |before| before.nanoseconds));
            StageTime { stage: stage.stage.clone(), nanoseconds }
        });
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            rounds: self.rounds.saturating_sub(earlier.rounds),
            busy_rounds: self.busy_rounds.saturating_sub(earlier.busy_rounds),
            full_rounds: self.full_rounds.saturating_sub(earlier.full_rounds),
            late_rounds: self.late_rounds.saturating_sub(earlier.late_rounds),
            lived_ns: self.lived_ns.saturating_sub(earlier.lived_ns),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            asleep_ns: self.asleep_ns.saturating_sub(earlier.asleep_ns),
            timed_packets: self.timed_packets.saturating_sub(earlier.timed_packets),
            stages_ns: stages.collect(),
            ..self.clone()
        }
    }
}

/// Path probes: `show probes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbesView {
    /// Milliseconds between two probes of a path.
    pub interval_ms: u64,
    /// Milliseconds after which a probe without an answer is judged.
    pub timeout_ms: u64,
    /// Number of probes lost in a row after which a path is dead.
    pub dead_after: u32,
    /// Milliseconds for which a dead path has to answer before it is used again.
    pub hold_ms: u64,
    /// Address to which probes come back.
    pub address: Option<String>,
    /// Why no probe comes back, or why not every path is probed.
    pub trouble: Option<String>,
    /// Times at which the daemon was so late that it judged nothing.
    pub late: u64,
    /// Datagrams refused as answers, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Paths.
    pub paths: Vec<ProbeRow>,
}

/// A path of a steered prefix, as its probes tell of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeRow {
    /// Prefix of inner destinations.
    pub prefix: String,
    /// Id of the routing table of the prefix.
    pub table: u32,
    /// Name of the path.
    pub path: String,
    /// `good`, `dead`, `unheard` before the first answer, or `not probed`.
    pub state: String,
    /// Packets may take the path. False: it is left out.
    pub in_use: bool,
    /// Milliseconds in this state.
    pub since_ms: u64,
    /// Probes sent.
    pub sent: u64,
    /// Probes that came back.
    pub received: u64,
    /// Probes lost.
    pub lost: u64,
    /// Probes that did not come back, and prove nothing: no probe of another path did at that time, or the daemon was late.
    pub unjudged: u64,
    /// Probes that came back after they had been judged as lost.
    pub overdue: u64,
    /// Probes that came back with the mark of congestion (CE).
    pub ce: u64,
    /// Share of the last 100 judged probes that got lost, in percent.
    pub loss_percent: Option<u32>,
    /// Median of the round-trip times, in microseconds.
    pub rtt_p50_us: Option<u64>,
    /// Round-trip time that 99 of 100 answers do not exceed, in microseconds.
    pub rtt_p99_us: Option<u64>,
    /// Longest of the recent round-trip times, in microseconds.
    pub rtt_max_us: Option<u64>,
    /// Difference between the medians of this path and of the fastest path of the prefix, in microseconds.
    pub skew_us: Option<u64>,
    /// Carrier of the probes.
    pub carrier: Option<String>,
    /// Why it is not probed, why the last probe was not sent, or why it is in use although it is dead.
    pub why: Option<String>,
}

/// The state that metrics are made of: all but routes, of which there may be a million.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Contents of `show counters`, which include those of `show ports`.
    pub counters: CountersView,
    /// Contents of `show workers`.
    #[serde(default)]
    pub workers: Vec<WorkerStatus>,
    /// Contents of `show sids`.
    pub sids: Vec<SidStatus>,
    /// Contents of `show paths`.
    pub paths: Vec<PathStatus>,
    /// Contents of `show neighbors`.
    pub neighbors: Vec<NeighborStatus>,
    /// Contents of `show generation`.
    pub generation: GenerationView,
    /// Contents of `show source`.
    pub sources: Vec<SourceView>,
    /// Contents of `show glb`, if heartbeats are configured.
    pub glb: Option<GlbView>,
    /// Contents of `show probes`, if probes are configured.
    #[serde(default)]
    pub probes: Option<ProbesView>,
    /// Ranks and paths of each job.
    #[serde(default)]
    pub jobs: Vec<JobCounts>,
}
