//! Choices that are left to a hash, taken one way after the other.

/// A run through the forwarder takes `script` first, and the first alternative of every choice beyond it.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    script: Vec<usize>,
    /// Taken, and out of how many.
    taken: Vec<(usize, usize)>,
}

impl Choices {
    /// One of `alternatives`. `None` when there are none.
    pub(crate) fn pick<T: Clone>(&mut self, alternatives: &[T]) -> Option<T> {
        let index = self.script.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push((index, alternatives.len()));
        alternatives.get(index).cloned()
    }

    /// The next run: the last choice that has an alternative left takes it.
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
