//! Frames through the worker step that runs on AF_XDP, over ports in memory.
//!
//! There is one worker for all frames of a thread. What it remembers, of other frames in the same tables, or of other
//! tables, must not show.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_dataplane::{Snapshot, Step, Totals, WorkerCounters};
use srv6d_model::{Counted, Counts, Outcome};
use srv6d_srv6::model::{Desired, PortId};
use srv6d_srv6::tally::Count;
use srv6d_srv6::{BuildError, DropReason, Slots, Tables, Tally, Verdict};

/// Nanoseconds between frames. An ICMP error takes a second at most (`icmp_per_second = 1`), whatever the rate was
/// when the one before it was sent: none is left out.
const APART: u64 = 2_000_000_000;

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::new());
}

/// What the packet path does with a frame that arrives on the device of port `port`.
///
/// # Errors
/// The state cannot become tables.
///
/// # Panics
/// The counters do not account for the frame.
pub fn outcome(desired: &Desired, port: u16, frame: &[u8]) -> Result<Outcome, BuildError> {
    WORKER.with_borrow_mut(|worker| {
        worker.go_over(desired)?;
        Ok(worker.forward(port, frame))
    })
}

/// What it does with the same frame four times: it looks for where the destination leads, looks again, because a cache
/// that did not know it is left alone for a burst, knows it in tables that are new, and knows it.
///
/// # Errors
/// The state cannot become tables.
///
/// # Panics
/// The counters do not account for the frame.
pub fn four_times(desired: &Desired, port: u16, frame: &[u8]) -> Result<[Outcome; 4], BuildError> {
    WORKER.with_borrow_mut(|worker| {
        worker.go_over(desired)?;
        Ok([(); 4].map(|()| worker.forward(port, frame)))
    })
}

struct Worker {
    step: Step<Memory>,
    counters: Arc<WorkerCounters>,
    wanted: Arc<Mutex<Option<(PortId, IpAddr)>>>,
    now: u64,
    /// What the tables are built from.
    desired: Desired,
    slots: Slots,
    snapshot: Snapshot,
}

impl Worker {
    fn new() -> Self {
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

    /// To other tables, unless these are the right ones: what is known of them stays known.
    fn go_over(&mut self, desired: &Desired) -> Result<(), BuildError> {
        if *desired == self.desired && !self.snapshot.tallies.is_empty() {
            return Ok(());
        }
        let mut slots = Slots::default();
        let tables = Tables::build(desired, &mut slots)?;
        self.snapshot = Snapshot::direct(tables, Arc::new(Tally::new(&slots)), desired.ports.len());
        (self.desired, self.slots) = (desired.clone(), slots);
        Ok(())
    }

    fn forward(&mut self, port: u16, frame: &[u8]) -> Outcome {
        let mut io = Memory::new(self.desired.ports.len());
        if let Some(socket) = io.port(usize::from(port)) {
            socket.rx.push_back(Frame::new(frame));
        }
        let tally = Arc::new(Tally::new(&self.slots));
        self.snapshot.tallies = vec![Arc::clone(&tally)];
        self.now += APART;
        let before = self.totals();
        let received = self.step.round(&mut io, &self.snapshot, self.now);

        let totals = self.totals();
        assert!(totals.balanced(), "not accounted for: {totals:?}");
        let totals = since(&before, totals);
        assert!(received == 1 && totals.rx == 1, "not accounted for: {totals:?}");
        let sent = io.take_sent().pop();
        let device = sent.as_ref().and_then(|&(socket, _)| u16::try_from(socket).ok()).unwrap_or(u16::MAX);
        let held = self.wanted.lock().ok().and_then(|mut asked| asked.take());
        let verdict = verdict(&totals, device, held);
        if held.is_some() && matches!(verdict, Verdict::Hold(..)) {
            self.step.abandon_held(&mut io);
        }
        let bytes = sent.map(|(_, frame)| frame).or_else(|| io.recycled.pop());
        let frame = bytes.map(|frame| frame.bytes()).unwrap_or_default();
        Outcome { verdict, frame, counts: counts(&self.slots, &tally) }
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        totals
    }
}

/// What has been counted since then.
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

/// The verdict, from the one counter that the frame ended in.
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

/// All that has counted something.
fn counts(slots: &Slots, tally: &Tally) -> Counts {
    let read = |counters: &[Count], slot: usize| counters.get(slot).map(Count::read).unwrap_or_default();
    let sids = slots.sids.iter().map(|(sid, slot)| (Counted::Sid(*sid), read(&tally.sids, slot)));
    let paths = slots.paths.iter().map(|(name, slot)| (Counted::Path(name.clone()), read(&tally.paths, slot)));
    let hops = slots
        .adjacencies
        .iter()
        .map(|((port, neighbor), slot)| (Counted::NextHop(port.clone(), *neighbor), read(&tally.adjacencies, slot)));
    let ecn_unused = (Counted::EcnUnused, tally.ecn_unused.read());
    sids.chain(paths).chain(hops).chain([ecn_unused]).filter(|&(_, count)| count != (0, 0)).collect()
}
