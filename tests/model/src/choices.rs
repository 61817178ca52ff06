//! Choices that are left to a hash; the model tries all alternatives one after the other.

/// Choices of one run through the forwarder: first those of `script`, then the first alternative of every further
/// choice.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    script: Vec<usize>,
    /// Choices of this run: the index taken, and the number of alternatives.
    taken: Vec<(usize, usize)>,
}

impl Choices {
    /// Chooses one of `alternatives`. Returns `None` if there are none.
    pub(crate) fn pick<T: Clone>(&mut self, alternatives: &[T]) -> Option<T> {
        let index = self.script.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push((index, alternatives.len()));
        alternatives.get(index).cloned()
    }

    /// Returns the choices of the next run, in which the last choice with an alternative left takes that one. `None`:
    /// all have been tried.
    pub(crate) fn next(mut self) -> Option<Self> {
        while let Some((index, count)) = self.taken.pop() {
            if index + 1 < count {
                let mut script: Vec<usize> = self.taken.iter().map(|&(index, _)| index).collect();
                script.push(index + 1);
                return Some(Self { script, taken: Vec::new() });
            }
        }
        None
    }
}
