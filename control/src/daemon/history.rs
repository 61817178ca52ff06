//! The last generations: when, from what, what changed, and what they were made of.
//!
//! Each kind of cause has room of its own, so that events of the kernel, which come by themselves all day, never push out
//! the file or the paths that an operator wants to return to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use srv6d_dataplane::Generation;

use crate::api::state::{Changed, GenerationRow};
use crate::config::Config;
use crate::plan::Diff;
use crate::source::Offer;

/// Generations that are remembered of each [`Brought`].
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
        self.same_file(other) && self.offers == other.offers
    }

    fn same_file(&self, other: &Self) -> bool {
        let same_switch = match (&self.config.switch, &other.config.switch) {
            // Ports that came or went since then make no other file of it.
            (Some(own), Some(other)) => own.same_file(other),
            _ => false,
        };
        Arc::ptr_eq(&self.config, &other.config) || same_switch
    }
}

/// What a generation has that the one before it had not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brought {
    /// Another configuration file.
    File,
    /// Other paths of a controller.
    Offers,
    /// Nothing but what the kernel, FRR or a router on a path said.
    Event,
}

impl Brought {
    fn by(inputs: &Inputs, before: Option<&Entry>) -> Self {
        match before {
            Some(before) if inputs.same(&before.inputs) => Self::Event,
            Some(before) if inputs.same_file(&before.inputs) => Self::Offers,
            _ => Self::File,
        }
    }
}

/// One generation and its inputs.
#[derive(Debug)]
struct Entry {
    row: GenerationRow,
    inputs: Inputs,
    brought: Brought,
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
        let brought = Brought::by(&inputs, self.0.front());
        self.0.push_front(Entry { row, inputs, brought });
        self.forget_oldest(brought);
    }

    /// Of more than [`KEPT`] generations of a kind the oldest goes.
    fn forget_oldest(&mut self, kind: Brought) {
        let of_kind = |entry: &Entry| entry.brought == kind;
        if self.0.iter().filter(|entry| of_kind(entry)).count() > KEPT
            && let Some(oldest) = self.0.iter().rposition(of_kind)
        {
            self.0.remove(oldest);
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use srv6d_srv6::model::Desired;

    use super::*;
    use crate::plan;

    fn file() -> Inputs {
        Inputs { config: Arc::new(Config::default()), ..Inputs::default() }
    }

    fn nothing_changed() -> Diff {
        plan::diff(&Desired::default(), &Desired::default())
    }

    #[test]
    fn a_day_of_kernel_events_leaves_the_files_to_return_to() {
        let (mut history, diff) = (History::default(), nothing_changed());
        let (first, second) = (file(), file());
        history.push(Generation(1), "start", &diff, first.clone());
        history.push(Generation(2), "reload", &diff, second.clone());
        for event in 3..1000 {
            history.push(Generation(event), "kernel", &diff, second.clone());
        }
        assert_eq!(history.before(&second), Some(1));
        assert!(history.inputs_of(1).unwrap().same(&first) && history.inputs_of(2).unwrap().same(&second));
        assert_eq!(history.rows().len(), 2 + KEPT);
        assert_eq!(history.rows().first().unwrap().generation, 999, "newest first");
        assert!(history.rows().is_sorted_by(|newer, older| newer.generation > older.generation));
    }

    #[test]
    fn a_controller_that_moves_paths_all_day_leaves_the_files_to_return_to() {
        let (mut history, diff) = (History::default(), nothing_changed());
        let (first, second) = (file(), file());
        history.push(Generation(1), "start", &diff, first);
        for round in 2..200 {
            let offer = Offer { source: format!("round {round}"), ..Offer::default() };
            let offers = Arc::new(vec![offer]);
            history.push(Generation(round), "jalapeno", &diff, Inputs { offers, ..second.clone() });
        }
        assert!(history.inputs_of(1).is_some());
        assert_eq!(history.rows().len(), 2 + KEPT, "both files, and the last paths");
    }
}
