//! One frame through the worker step that runs on AF_XDP, over ports in memory.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use srv6d_dataplane::memory::{Frame, Memory};
use srv6d_dataplane::{Snapshot, Step, Totals, WorkerCounters};
use srv6d_model::{Counted, Counts, Outcome};
use srv6d_srv6::model::{Desired, PortId};
use srv6d_srv6::tally::Count;
use srv6d_srv6::{BuildError, DropReason, Slots, Tables, Tally, Verdict};

/// What the packet path does with a frame that arrives on the device of port `port`.
///
/// # Errors
/// The state cannot become tables.
///
/// # Panics
/// The counters do not account for the frame.
pub fn outcome(desired: &Desired, port: u16, frame: &[u8]) -> Result<Outcome, BuildError> {
    let mut slots = Slots::default();
    let tables = Tables::build(desired, &mut slots)?;
    let tally = Arc::new(Tally::new(&slots));
    let snapshot = Snapshot::direct(tables, Arc::clone(&tally), desired.ports.len());
    let counters = Arc::new(WorkerCounters::default());
    let wanted: Arc<Mutex<Option<(PortId, IpAddr)>>> = Arc::default();
    let asked = Arc::clone(&wanted);
    let mut step = Step::new(0, Arc::clone(&counters), move |port, address| {
        if let Ok(mut asked) = asked.lock() {
            *asked = Some((port, address));
        }
    });
    let mut io = Memory::new(desired.ports.len());
    if let Some(socket) = io.port(usize::from(port)) {
        socket.rx.push_back(Frame::new(frame));
    }
    let received = step.round(&mut io, &snapshot, 0);

    let mut totals = Totals::default();
    counters.add_to(&mut totals);
    assert!(received == 1 && totals.rx == 1 && totals.balanced(), "not accounted for: {totals:?}");
    let sent = io.take_sent().pop();
    let device = sent.as_ref().and_then(|&(socket, _)| u16::try_from(socket).ok()).unwrap_or(u16::MAX);
    let held = wanted.lock().ok().and_then(|mut asked| asked.take());
    let verdict = verdict(&totals, device, held);
    if held.is_some() && matches!(verdict, Verdict::Hold(..)) {
        step.abandon_held(&mut io);
    }
    let bytes = sent.map(|(_, frame)| frame).or_else(|| io.recycled.pop());
    Ok(Outcome { verdict, frame: bytes.map(|frame| frame.bytes()).unwrap_or_default(), counts: counts(&slots, &tally) })
}

/// The verdict, from the one counter that the frame ended in.
fn verdict(totals: &Totals, device: u16, held: Option<(PortId, IpAddr)>) -> Verdict {
    let reason = |counted: &std::collections::BTreeMap<&'static str, u64>| {
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
