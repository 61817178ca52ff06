//! The engines.

mod kernel;
mod model;
mod paths;
mod programs;
mod worker;

use std::cell::RefCell;
use std::rc::Rc;

use srv6d_model::{Counted, Counts};
use srv6d_srv6::desired::Desired;
use srv6d_srv6::tally::Count;
use srv6d_srv6::{Slots, Tables, Tally};

pub use kernel::Kernel;
pub use model::Model;
pub use paths::{FastPath, SlowPath};
pub use programs::{TcProgram, XdpProgram};
pub use worker::Worker;

/// Nanoseconds between frames. With the lowest rate limit (`icmp_per_second = 1`) an ICMP error is allowed after one
/// second, whatever the rate was when the previous error was sent. So no error is suppressed.
const APART: u64 = 2_000_000_000;

/// A state, and the tables that it was built into.
#[derive(Debug)]
struct Compiled {
    desired: Desired,
    tables: Tables,
    slots: Slots,
}

impl Compiled {
    /// Compiles a state. Returns `None` if it cannot be built into tables. Engines that are configured with the same
    /// state one after the other share its tables.
    fn of(desired: &Desired) -> Option<Rc<Self>> {
        thread_local!(static LAST: RefCell<Option<Rc<Compiled>>> = const { RefCell::new(None) });
        LAST.with_borrow_mut(|last| {
            if last.as_ref().is_none_or(|last| last.desired != *desired) {
                let mut slots = Slots::default();
                let tables = Tables::build(desired, &mut slots).ok()?;
                *last = Some(Rc::new(Self { desired: desired.clone(), tables, slots }));
            }
            last.clone()
        })
    }
}

/// Returns all counters of SIDs, paths and next hops that are not zero.
fn counts(slots: &Slots, tally: &Tally) -> Counts {
    let read = |counters: &[Count], slot: usize| counters.get(slot).map(Count::read).unwrap_or_default();
    let ecn_unused = (Counted::EcnUnused, tally.ecn_unused.read());
    let counts = named(slots, |kind, slot| match kind {
        Kind::Sid => read(&tally.sids, slot),
        Kind::Path => read(&tally.paths, slot),
        Kind::NextHop => read(&tally.adjacencies, slot),
    });
    counts.chain([ecn_unused]).filter(|&(_, count)| count != (0, 0)).collect()
}

/// A kind of counter that has slots.
#[derive(Clone, Copy)]
enum Kind {
    Sid,
    Path,
    NextHop,
}

/// Returns the counters of all slots by what they count.
fn named(slots: &Slots, read: impl Fn(Kind, usize) -> (u64, u64)) -> impl Iterator<Item = (Counted, (u64, u64))> {
    let sids = slots.sids.iter().map(|(sid, slot)| (Counted::Sid(*sid), Kind::Sid, slot));
    let paths = slots.paths.iter().map(|(name, slot)| (Counted::Path(name.clone()), Kind::Path, slot));
    let hops = slots.adjacencies.iter();
    let hops = hops.map(|((port, to), slot)| (Counted::NextHop(port.clone(), *to), Kind::NextHop, slot));
    sids.chain(paths).chain(hops).map(move |(counted, kind, slot)| (counted, read(kind, slot)))
}
