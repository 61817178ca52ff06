//! The last generations: when, from what, what changed, and what they were made of.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use srv6d_dataplane::Generation;

use crate::api::state::{Changed, GenerationRow};
use crate::config::Config;
use crate::plan::Diff;
use crate::source::Offer;

/// Generations that are remembered.
const KEPT: usize = 20;

/// What a plan is made of, beside what the kernel shows.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The configuration file.
    pub config: Arc<Config>,
    /// What sources offered.
    pub offers: Arc<Vec<Offer>>,
}

impl Inputs {
    /// The same file as it was read once, and the same offers.
    pub fn same(&self, other: &Self) -> bool {
        let same_switch = match (&self.config.switch, &other.config.switch) {
            // Ports that came or went since then make no other file of it.
            (Some(own), Some(other)) => own.same_file(other),
            _ => false,
        };
        (Arc::ptr_eq(&self.config, &other.config) || same_switch) && self.offers == other.offers
    }
}

/// One generation and its inputs.
#[derive(Debug)]
struct Entry {
    row: GenerationRow,
    inputs: Inputs,
}

/// Newest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<Entry>);

impl History {
    /// A generation is in force from now on.
    pub fn push(&mut self, generation: Generation, source: &str, diff: &Diff, inputs: Inputs) {
        let count = |change: &crate::plan::Change| Changed {
            added: change.added.len(),
            removed: change.removed.len(),
            changed: change.changed.len(),
        };
        let changes = diff.kinds.iter().map(|(kind, change)| ((*kind).to_owned(), count(change))).collect();
        let row = GenerationRow { generation: generation.0, published: now(), source: source.to_owned(), changes };
        self.0.push_front(Entry { row, inputs });
        self.0.truncate(KEPT);
    }

    /// Newest first.
    pub fn rows(&self) -> Vec<GenerationRow> {
        self.0.iter().map(|entry| entry.row.clone()).collect()
    }

    /// Inputs of the generation of that number.
    pub fn inputs_of(&self, generation: u64) -> Option<&Inputs> {
        self.0.iter().find(|entry| entry.row.generation == generation).map(|entry| &entry.inputs)
    }

    /// The newest generation that was made of something else than `current`: the kernel's own changes are none to
    /// return from.
    pub fn before(&self, current: &Inputs) -> Option<u64> {
        self.0.iter().find(|entry| !entry.inputs.same(current)).map(|entry| entry.row.generation)
    }
}

/// Seconds since 1970-01-01 UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
