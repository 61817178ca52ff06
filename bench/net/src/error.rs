//! What went wrong, for people.

use std::fmt::Display;

/// A sentence that names what is wrong, where, and where possible the fix.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BenchError(pub String);

impl BenchError {
    /// `what` failed because of `why`.
    pub fn of(what: impl Display, why: impl Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}
