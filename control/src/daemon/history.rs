//! The last generations: when, from what, what changed.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use srv6d_dataplane::Generation;

use crate::api::state::{Changed, GenerationRow};
use crate::plan::Diff;

/// Generations that are remembered.
const KEPT: usize = 20;

/// Newest first.
#[derive(Debug, Default)]
pub struct History(VecDeque<GenerationRow>);

impl History {
    /// A generation is in force from now on.
    pub fn push(&mut self, generation: Generation, source: &str, diff: &Diff) {
        let count = |change: &crate::plan::Change| Changed {
            added: change.added.len(),
            removed: change.removed.len(),
            changed: change.changed.len(),
        };
        let changes = diff.kinds.iter().map(|(kind, change)| ((*kind).to_owned(), count(change))).collect();
        self.0.push_front(GenerationRow {
            generation: generation.0,
            published: now(),
            source: source.to_owned(),
            changes,
        });
        self.0.truncate(KEPT);
    }

    /// Newest first.
    pub fn rows(&self) -> Vec<GenerationRow> {
        self.0.iter().cloned().collect()
    }
}

/// Seconds since 1970-01-01 UTC.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
