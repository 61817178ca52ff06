//! Counters: each is written by one worker and summed up by control.
//!
//! Every received packet ends in exactly one of `tx`, `kernel`, `reply`, `drop`, or is still `held` or `queued`:
//! `rx = tx + kernel + Σ reply + Σ drop + held + queued`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use srv6d_balance::Sample;
use srv6d_srv6::{DropReason, MOVES, Verdict};

use crate::drops::{Dropped, LastDrops, Place};
use crate::emulated::State;
use crate::workload::{Workload, WorkloadCounters};

/// Largest number of devices on which a worker can have sockets.
pub(crate) const MAX_SOCKETS: usize = 256;
/// Number of buckets of the lateness with which packets leave an emulated port. The first bucket is for up to 1.024 µs,
/// each other one for up to twice the limit of the bucket before, and the last one for all longer times.
pub const LATE_BUCKETS: usize = 22;
/// Logarithm of the first bucket's limit in nanoseconds: 2¹⁰.
const FIRST_BUCKET: u32 = 10;
const REASONS: usize = DropReason::ALL.len();

/// The counters of one worker.
#[derive(Debug)]
pub struct WorkerCounters {
    rx: AtomicU64,
    tx: AtomicU64,
    kernel: AtomicU64,
    echo: AtomicU64,
    held: AtomicU64,
    queued: AtomicU64,
    errors: [AtomicU64; REASONS],
    drops: [AtomicU64; REASONS],
    sockets: Box<[SocketCounters]>,
    queues: Box<[SocketQueue]>,
    last_drops: LastDrops,
    workload: WorkloadCounters,
}

/// The emulated port of a socket.
#[derive(Debug, Default)]
struct SocketQueue {
    packets: AtomicU64,
    bytes: AtomicU64,
    peak: AtomicU64,
    load: AtomicU64,
    sent_bytes: AtomicU64,
    ce_marked: AtomicU64,
    wred_dropped: AtomicU64,
    queue_full: AtomicU64,
    wire_loss: AtomicU64,
    port_down: AtomicU64,
    late: [AtomicU64; LATE_BUCKETS],
    late_sum: AtomicU64,
}

#[derive(Debug, Default)]
struct SocketCounters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_dropped: AtomicU64,
    rx_refused: AtomicU64,
    score: AtomicU64,
}

/// Adds to a counter that has one writer, so that no locked instruction is needed.
#[inline]
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed) + amount, Relaxed);
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            rx: AtomicU64::default(),
            tx: AtomicU64::default(),
            kernel: AtomicU64::default(),
            echo: AtomicU64::default(),
            held: AtomicU64::default(),
            queued: AtomicU64::default(),
            errors: [const { AtomicU64::new(0) }; REASONS],
            drops: [const { AtomicU64::new(0) }; REASONS],
            sockets: (0..MAX_SOCKETS).map(|_| SocketCounters::default()).collect(),
            queues: (0..MAX_SOCKETS).map(|_| SocketQueue::default()).collect(),
            last_drops: LastDrops::default(),
            workload: WorkloadCounters::default(),
        }
    }
}

impl WorkerCounters {
    #[inline]
    pub(crate) fn received(&self, socket: usize, packets: usize, bytes: usize) {
        add(&self.rx, packets as u64);
        if let Some(counters) = self.sockets.get(socket) {
            add(&counters.rx_packets, packets as u64);
            add(&counters.rx_bytes, bytes as u64);
        }
    }

    #[inline]
    pub(crate) fn sent(&self, verdict: Verdict, socket: usize, packets: usize, bytes: usize) {
        let sent = packets as u64;
        match verdict {
            Verdict::Tx(_) => add(&self.tx, sent),
            Verdict::Kernel(_) => add(&self.kernel, sent),
            Verdict::Echo(_) => add(&self.echo, sent),
            Verdict::Error(reason, _) => count(&self.errors, reason, sent),
            Verdict::Drop(_) | Verdict::Hold(..) => return,
        }
        if let Some(counters) = self.sockets.get(socket) {
            add(&counters.tx_packets, sent);
            add(&counters.tx_bytes, bytes as u64);
        }
    }

    #[inline]
    pub(crate) fn dropped(&self, reason: DropReason) {
        count(&self.drops, reason, 1);
    }

    /// Records the first bytes of a packet that is dropped.
    #[cold]
    pub(crate) fn note_dropped(&self, reason: DropReason, place: Place, bytes: &[u8], length: usize) {
        self.last_drops.note(reason, place, bytes, length);
    }

    /// Returns the last packets of each drop reason.
    pub fn last_drops(&self) -> Vec<Dropped> {
        self.last_drops.read()
    }

    /// Counters of how busy the worker is.
    #[inline]
    pub(crate) const fn workload(&self) -> &WorkloadCounters {
        &self.workload
    }

    /// Returns how busy the worker has been so far.
    pub fn read_workload(&self) -> Workload {
        self.workload.read(self.rx.load(Relaxed))
    }

    /// Counts a received packet of this socket that is dropped.
    pub(crate) fn refused(&self, socket: usize) {
        if let Some(counters) = self.sockets.get(socket) {
            add(&counters.rx_refused, 1);
        }
    }

    /// Sets how busy a socket's port is, in permille.
    pub(crate) fn set_score(&self, socket: usize, score: u16) {
        if let Some(counters) = self.sockets.get(socket) {
            counters.score.store(score.into(), Relaxed);
        }
    }

    /// Counts a packet that found the ring of its socket full.
    pub(crate) fn not_sent(&self, socket: usize) {
        if let Some(counters) = self.sockets.get(socket) {
            add(&counters.tx_dropped, 1);
        }
    }

    /// Returns the number of bytes that a socket has sent so far.
    pub(crate) fn sent_bytes(&self, socket: usize) -> u64 {
        self.sockets.get(socket).map_or(0, |counters| counters.tx_bytes.load(Relaxed))
    }

    /// Returns the bytes that the emulated port of a socket has sent so far, overhead included, and the bytes that wait in it.
    pub(crate) fn emulated(&self, socket: usize) -> Sample {
        let of = |queue: &SocketQueue| (queue.sent_bytes.load(Relaxed), queue.bytes.load(Relaxed));
        let (sent_bytes, queue) = self.queues.get(socket).map(of).unwrap_or_default();
        Sample { sent_bytes, queue }
    }

    pub(crate) fn set_held(&self, held: usize) {
        self.held.store(held as u64, Relaxed);
    }

    pub(crate) fn set_queued(&self, queued: usize) {
        self.queued.store(queued as u64, Relaxed);
    }

    /// Sets the counters of a socket's emulated port.
    pub(crate) fn set_queue(&self, socket: usize, state: &State) {
        let Some(queue) = self.queues.get(socket) else { return };
        queue.packets.store(state.packets as u64, Relaxed);
        queue.bytes.store(state.bytes, Relaxed);
        queue.peak.store(state.since.peak_queue, Relaxed);
        queue.load.store(state.load, Relaxed);
        add(&queue.sent_bytes, state.since.sent_bytes);
        add(&queue.ce_marked, state.since.ce_marked);
        add(&queue.wred_dropped, state.since.wred_dropped);
        add(&queue.queue_full, state.since.queue_full);
        add(&queue.wire_loss, state.since.wire_loss);
        add(&queue.port_down, state.since.port_down);
    }

    /// Counts a packet that leaves an emulated port `late` nanoseconds too late.
    pub(crate) fn released(&self, socket: usize, late: u64) {
        let Some(queue) = self.queues.get(socket) else { return };
        let bits = u64::BITS - late.saturating_sub(1).leading_zeros();
        let bucket = (bits.saturating_sub(FIRST_BUCKET) as usize).min(LATE_BUCKETS - 1);
        if let Some(bucket) = queue.late.get(bucket) {
            add(bucket, 1);
        }
        add(&queue.late_sum, late);
    }

    /// Adds the counters of the emulated port of one socket of this worker to `queue`.
    pub fn add_queue_to(&self, socket: usize, queue: &mut QueueCounters) {
        let Some(counters) = self.queues.get(socket) else { return };
        queue.packets += counters.packets.load(Relaxed);
        queue.bytes += counters.bytes.load(Relaxed);
        queue.peak_bytes += counters.peak.load(Relaxed);
        queue.load_permille += counters.load.load(Relaxed);
        queue.ce_marked += counters.ce_marked.load(Relaxed);
        queue.wred_dropped += counters.wred_dropped.load(Relaxed);
        queue.queue_full += counters.queue_full.load(Relaxed);
        queue.wire_loss += counters.wire_loss.load(Relaxed);
        queue.port_down += counters.port_down.load(Relaxed);
        for (sum, bucket) in queue.late.iter_mut().zip(&counters.late) {
            *sum += bucket.load(Relaxed);
        }
        queue.late_ns += counters.late_sum.load(Relaxed);
    }

    /// Adds this worker's totals to `totals`.
    pub fn add_to(&self, totals: &mut Totals) {
        totals.rx += self.rx.load(Relaxed);
        totals.tx += self.tx.load(Relaxed);
        totals.kernel += self.kernel.load(Relaxed);
        totals.held += self.held.load(Relaxed);
        totals.queued += self.queued.load(Relaxed);
        let echo = self.echo.load(Relaxed);
        if echo > 0 {
            *totals.reply.entry("echo").or_default() += echo;
        }
        for reason in DropReason::ALL {
            let sum = |counters: &[AtomicU64], into: &mut BTreeMap<&'static str, u64>| {
                let value = counters.get(reason.index()).map_or(0, |counter| counter.load(Relaxed));
                if value > 0 {
                    *into.entry(reason.name()).or_default() += value;
                }
            };
            sum(&self.errors, &mut totals.reply);
            sum(&self.drops, &mut totals.drop);
        }
    }

    /// Adds the counters of one socket of this worker to `device`.
    pub fn add_socket_to(&self, socket: usize, device: &mut DeviceCounters) {
        if let Some(counters) = self.sockets.get(socket) {
            device.rx_packets += counters.rx_packets.load(Relaxed);
            device.rx_bytes += counters.rx_bytes.load(Relaxed);
            device.tx_packets += counters.tx_packets.load(Relaxed);
            device.tx_bytes += counters.tx_bytes.load(Relaxed);
            device.tx_dropped += counters.tx_dropped.load(Relaxed);
            device.rx_refused += counters.rx_refused.load(Relaxed);
            device.score = device.score.max(counters.score.load(Relaxed));
        }
    }
}

#[inline]
fn count(counters: &[AtomicU64; REASONS], reason: DropReason, packets: u64) {
    if let Some(counter) = counters.get(reason.index()) {
        add(counter, packets);
    }
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Sums over ports and workers.
    pub total: Totals,
    /// Counters of each device.
    pub devices: Vec<DeviceCounters>,
    /// Counters of each tagged port. The counters of its device include them.
    pub vlans: Vec<VlanCounters>,
    /// Counters of each SID.
    pub sids: Vec<SidCounters>,
    /// Counters of each path.
    pub paths: Vec<PathCounters>,
    /// Counters of each next hop.
    pub next_hops: Vec<NextHopCounters>,
    /// Decapsulated packets whose outer header was ECT and inner header Not-ECT (RFC 6040 section 4.2).
    pub ecn_unused: u64,
    /// Flows that were still sending and were forgotten, because the table of flows was full.
    pub evicted_flows: u64,
}

/// Counters of how often policies have chosen a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChoiceCounters {
    /// Flowlets that began on the member.
    pub flowlets: u64,
    /// Flows that moved to the member from another one, by reason ([`MOVES`]).
    pub moves: [u64; MOVES.len()],
}

/// Sums over all received packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Packets received.
    pub rx: u64,
    /// Packets forwarded.
    pub tx: u64,
    /// Packets given to the kernel of this node.
    pub kernel: u64,
    /// Packets turned into an answer, by reason.
    pub reply: BTreeMap<&'static str, u64>,
    /// Packets dropped, by reason.
    pub drop: BTreeMap<&'static str, u64>,
    /// Packets that wait for a next hop now.
    pub held: u64,
    /// Packets in emulated ports now.
    pub queued: u64,
    /// Packets that the XDP program received and forwarded, past the workers. `rx` and `tx` include them.
    pub offloaded: u64,
}

impl Totals {
    /// Returns true if every received packet is accounted for.
    pub fn balanced(&self) -> bool {
        self.rx == self.accounted()
    }

    /// Number of received packets that have ended in a counter, or are held or queued.
    pub fn accounted(&self) -> u64 {
        let [reply, drop] = [&self.reply, &self.drop].map(|reasons| reasons.values().sum::<u64>());
        self.tx + self.kernel + reply + drop + self.held + self.queued
    }

    /// Returns every term of the balance: `rx 10 = tx 6 + kernel 1 + reply 1 + drop 2 + held 0 + queued 0: balanced`.
    pub fn equation(&self) -> String {
        let [reply, drop] = [&self.reply, &self.drop].map(|reasons| reasons.values().sum::<u64>());
        let Self { rx, tx, kernel, held, queued, .. } = self;
        let (sign, verdict) = match i128::from(*rx) - i128::from(self.accounted()) {
            0 => ("=", "balanced".to_owned()),
            rest => ("!=", format!("NOT balanced, {rest} unaccounted")),
        };
        let ends = format!("tx {tx} + kernel {kernel} + reply {reply} + drop {drop} + held {held} + queued {queued}");
        format!("rx {rx} {sign} {ends}: {verdict}")
    }
}

/// Packets and bytes (Ethernet frames without FCS) of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounters {
    /// Name of the device.
    pub name: String,
    /// Packets taken from the device.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Packets handed to the device.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
    /// Packets for the device that were dropped because its transmit ring was full (`tx_full`).
    pub tx_dropped: u64,
    /// Packets for srv6d that were lost on the way to a worker, as the kernel counts them at the sockets (a full
    /// ring, no chunk to receive into), and packets longer than a socket takes. Packets that wait in a ring are not
    /// lost.
    pub rx_dropped: u64,
    /// Received packets of the device that were dropped with a drop reason.
    pub rx_refused: u64,
    /// How busy the port is, in permille, if a policy asks for it.
    pub score: u64,
    /// Packets that the XDP program left to the kernel.
    pub to_kernel: u64,
    /// Received packets that the XDP program forwarded, past the workers.
    pub offloaded: u64,
    /// The queue of the device, if it is an emulated port.
    pub queue: Option<QueueCounters>,
}

/// The queue of an emulated port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueCounters {
    /// Packets in the port now.
    pub packets: u64,
    /// Bytes that are not yet on the wire, overhead included.
    pub bytes: u64,
    /// Largest number of these bytes so far.
    pub peak_bytes: u64,
    /// Share of the last tenth of a second for which the link was busy, in permille.
    pub load_permille: u64,
    /// Packets that were marked with CE here.
    pub ce_marked: u64,
    /// Packets dropped because they should have been marked and do not support ECN.
    pub wred_dropped: u64,
    /// Packets dropped because the queue had no room.
    pub queue_full: u64,
    /// Packets that got lost on the wire.
    pub wire_loss: u64,
    /// Packets dropped because the port was down.
    pub port_down: u64,
    /// Numbers of packets by their lateness: up to 1.024 µs, up to 2.048 µs, and so on. The last bucket counts all others.
    pub late: [u64; LATE_BUCKETS],
    /// Sum of the lateness of all packets in nanoseconds.
    pub late_ns: u64,
}

/// Packets and bytes (Ethernet frames without FCS) of one tagged port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VlanCounters {
    /// Name of the port, `device.vid`.
    pub port: String,
    /// Packets received in the VLAN.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Packets sent into the VLAN.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
}

/// Packets and bytes (IPv6 length as received) of one SID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SidCounters {
    /// Matched prefix.
    pub sid: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Packets and bytes (outer IPv6 length) of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathCounters {
    /// Name of the path.
    pub path: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Choices of the path by policies.
    pub choices: ChoiceCounters,
}

/// Packets and bytes (layer-3 length) sent to one next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextHopCounters {
    /// Name of the port.
    pub port: String,
    /// Address of the neighbour.
    pub address: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Choices of the next hop by policies.
    pub choices: ChoiceCounters,
}
