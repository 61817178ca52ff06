//! The worker's step that also runs on AF_XDP, over ports in memory.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{Snapshot, Step, Totals, WorkerCounters};
use srv6d_model::Outcome;
use srv6d_srv6::desired::{Desired, PortId};
use srv6d_srv6::{DropReason, Slots, Tally, Verdict};

use super::{APART, Compiled, counts};
use crate::engine::{Engine, Node, Treatment};

/// The worker: fast path and slow path, as its step chooses. What it has cached for other frames or for other tables must
/// not change any result.
pub struct Worker {
    step: Step<Memory>,
    counters: Arc<WorkerCounters>,
    wanted: Arc<Mutex<Option<(PortId, IpAddr)>>>,
    now: u64,
    /// The state that the present tables were built from.
    desired: Desired,
    slots: Slots,
    snapshot: Snapshot,
}

impl Default for Worker {
    fn default() -> Self {
        let counters = Arc::new(WorkerCounters::default());
        let wanted: Arc<Mutex<Option<(PortId, IpAddr)>>> = Arc::default();
        let asked = Arc::clone(&wanted);
        let step = Step::new(0, Arc::clone(&counters), move |port, address| {
            if let Ok(mut asked) = asked.lock() {
                *asked = Some((port, address));
            }
        });
        let (desired, slots, snapshot) = (Desired::default(), Slots::default(), Snapshot::default());
        Self { step, counters, wanted, now: 0, desired, slots, snapshot }
    }
}

impl Engine for Worker {
    fn name(&self) -> &'static str {
        "worker"
    }

    /// If the tables of this state are in force already, everything cached for them stays.
    fn go_over(&mut self, node: Node<'_>) -> Result<bool, String> {
        if *node.desired == self.desired && !self.snapshot.tallies.is_empty() {
            return Ok(true);
        }
        let Some(compiled) = Compiled::of(node.desired) else { return Ok(false) };
        let Compiled { desired, tables, slots } = &*compiled;
        self.snapshot = Snapshot::direct(tables.clone(), Arc::new(Tally::new(slots)), desired.ports.len());
        (self.desired, self.slots) = (desired.clone(), slots.clone());
        Ok(true)
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Result<Treatment, String> {
        let mut io = Memory::new(self.desired.ports.len());
        if let Some(socket) = io.port(usize::from(port)) {
            socket.rx.push_back(MemoryFrame::new(frame));
        }
        let tally = Arc::new(Tally::new(&self.slots));
        self.snapshot.tallies = vec![Arc::clone(&tally)];
        self.now += APART;
        let before = self.totals();
        let received = self.step.round(&mut io, &self.snapshot, self.now);

        let totals = self.totals();
        if !totals.balanced() {
            return Err(format!("not accounted for: {totals:?}"));
        }
        let totals = since(&before, totals);
        if received != 1 || totals.rx != 1 {
            return Err(format!("not accounted for: {totals:?}"));
        }
        let sent = io.take_sent().pop();
        let device = sent.as_ref().and_then(|&(socket, _)| u16::try_from(socket).ok()).unwrap_or(u16::MAX);
        let held = self.wanted.lock().ok().and_then(|mut asked| asked.take());
        let verdict = verdict(&totals, device, held);
        if held.is_some() && matches!(verdict, Verdict::Hold(..)) {
            self.step.abandon_held(&mut io);
        }
        let bytes = sent.map(|(_, frame)| frame).or_else(|| io.recycled.pop());
        let frame = bytes.map(|frame| frame.bytes()).unwrap_or_default();
        Ok(Treatment::Outcomes(vec![Outcome { verdict, frame, counts: counts(&self.slots, &tally) }]))
    }

    /// Returns four: the first two times the worker searches for the destination, because after a miss the cache is
    /// bypassed for one burst. The other two times it finds the destination in the cache.
    fn times(&self) -> usize {
        4
    }
}

impl Worker {
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        totals
    }
}

/// Returns what has been counted since `before`.
fn since(before: &Totals, mut totals: Totals) -> Totals {
    totals.rx -= before.rx;
    totals.tx -= before.tx;
    totals.kernel -= before.kernel;
    for (before, now) in [(&before.reply, &mut totals.reply), (&before.drop, &mut totals.drop)] {
        for (reason, count) in now {
            *count -= before.get(reason).copied().unwrap_or_default();
        }
    }
    totals
}

/// Returns the verdict, which follows from the only counter that has grown.
fn verdict(totals: &Totals, device: u16, held: Option<(PortId, IpAddr)>) -> Verdict {
    let reason = |counted: &BTreeMap<&'static str, u64>| {
        let name = counted.iter().find(|&(_, &count)| count > 0).map(|(&name, _)| name);
        DropReason::ALL.into_iter().find(|reason| Some(reason.name()) == name)
    };
    if totals.tx > 0 {
        return Verdict::Tx(device);
    }
    if totals.kernel > 0 {
        return Verdict::Kernel(device);
    }
    if let Some(reason) = reason(&totals.drop) {
        return Verdict::Drop(reason);
    }
    match (held, reason(&totals.reply)) {
        (Some((port, neighbor)), _) => Verdict::Hold(port, neighbor),
        (None, Some(reason)) => Verdict::Error(reason, device),
        (None, None) => Verdict::Echo(device),
    }
}
