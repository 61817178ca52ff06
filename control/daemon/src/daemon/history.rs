//! The last generations: their time, cause, changes and inputs.
//!
//! Each kind of cause has its own limit. Events of the kernel, which happen all day, therefore never displace the
//! files or paths that an operator wants to return to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use srv6d_dataplane::Generation;

use srv6d_api::state::{Changed, GenerationSummary};
use srv6d_config::{Config, Errors};
use srv6d_offer::Offer;
use srv6d_plan::{self as plan, Diff, Environment, Plan};

use super::overlay::Configured;

/// Number of generations that are kept of each [`Brought`].
const KEPT: usize = 20;

/// The inputs of a plan, besides the state of the kernel.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The configuration, and what an extension adds to it.
    pub configured: Configured,
    /// The offers of sources.
    pub offers: Arc<Vec<Offer>>,
}

impl Inputs {
    /// Returns true if both inputs come from the same reading of a file and have the same offers.
    pub fn same(&self, other: &Self) -> bool {
        self.same_file(other) && self.offers == other.offers
    }

    fn same_file(&self, other: &Self) -> bool {
        self.configured.is_same_text(&other.configured)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.configured.config
    }

    /// Plans the inputs with what the kernel shows.
    ///
    /// # Errors
    /// The errors are those of [`plan::plan_with`].
    pub fn plan(&self, environment: &Environment) -> Result<Plan, Errors> {
        plan::plan_with(self.config(), &self.configured.environment(environment), &self.offers)
    }
}

/// The difference of a generation from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brought {
    /// The generation has another configuration file.
    File,
    /// The generation has other paths of a controller.
    Offers,
    /// The generation only reflects an event of the kernel, FRR or a router on a path.
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
    row: GenerationSummary,
    inputs: Inputs,
    brought: Brought,
}

/// Generations, the newest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<Entry>);

impl History {
    /// Records a generation that is in force from now on.
    pub fn push(&mut self, generation: Generation, source: &str, diff: &Diff, inputs: Inputs) {
        let count = |change: &srv6d_plan::Change| Changed {
            added: change.added.len(),
            removed: change.removed.len(),
            changed: change.changed.len(),
        };
        let changes = diff.kinds.iter().map(|(kind, change)| ((*kind).to_owned(), count(change))).collect();
        let row = GenerationSummary { generation: generation.0, published: now(), source: source.to_owned(), changes };
        let brought = Brought::by(&inputs, self.0.front());
        self.0.push_front(Entry { row, inputs, brought });
        self.forget_oldest(brought);
    }

    /// Removes the oldest generation of a kind if there are more than [`KEPT`].
    fn forget_oldest(&mut self, kind: Brought) {
        let of_kind = |entry: &Entry| entry.brought == kind;
        if self.0.iter().filter(|entry| of_kind(entry)).count() > KEPT
            && let Some(oldest) = self.0.iter().rposition(of_kind)
        {
            self.0.remove(oldest);
        }
    }

    /// Returns the rows, the newest first.
    pub fn rows(&self) -> Vec<GenerationSummary> {
        self.0.iter().map(|entry| entry.row.clone()).collect()
    }

    /// Returns the inputs of the generation of that number.
    pub fn inputs_of(&self, generation: u64) -> Option<&Inputs> {
        self.0.iter().find(|entry| entry.row.generation == generation).map(|entry| &entry.inputs)
    }

    /// Returns the newest generation whose inputs differ from `current`. A rollback never returns to a generation
    /// that differs only by events of the kernel. While a rollback holds a generation, only earlier ones count, so that
    /// the next rollback goes further back.
    pub fn before(&self, current: &Inputs, held: Option<u64>) -> Option<u64> {
        let generation = |entry: &Entry| entry.row.generation;
        let mut earlier = self.0.iter().filter(|entry| held.is_none_or(|held| generation(entry) < held));
        earlier.find(|entry| !entry.inputs.same(current)).map(generation)
    }
}

/// Returns the time in seconds since 1970-01-01 UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use srv6d_srv6::desired::Desired;

    use super::*;
    use srv6d_plan as plan;

    fn file() -> Inputs {
        Inputs { configured: Configured { config: Arc::new(Config::default()), overlay: None }, ..Inputs::default() }
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
        assert_eq!(history.before(&second, None), Some(1));
        assert!(history.inputs_of(1).unwrap().same(&first) && history.inputs_of(2).unwrap().same(&second));
        assert_eq!(history.rows().len(), 2 + KEPT);
        assert_eq!(history.rows().first().unwrap().generation, 999, "newest first");
        assert!(history.rows().is_sorted_by(|newer, older| newer.generation > older.generation));
    }

    #[test]
    fn each_rollback_goes_one_further_back() {
        let (mut history, diff) = (History::default(), nothing_changed());
        let files = [file(), file(), file()];
        for (generation, inputs) in (1..).zip(&files) {
            history.push(Generation(generation), "reload", &diff, inputs.clone());
        }
        let [first, second, third] = &files;
        assert_eq!(history.before(third, None), Some(2));
        history.push(Generation(4), "rollback to 2", &diff, second.clone());
        assert_eq!(history.before(second, Some(2)), Some(1));
        history.push(Generation(5), "rollback to 1", &diff, first.clone());
        assert_eq!(history.before(first, Some(1)), None, "not to the second one again");
        history.push(Generation(6), "reload", &diff, third.clone());
        assert_eq!(history.before(third, None), Some(5), "what was in force before the reload");
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
