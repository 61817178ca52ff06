//! Errors for users.

use std::fmt::Display;

/// A message that says what is wrong, where and, if possible, how to fix it.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct BenchError(pub String);

impl From<srv6d_netns::Error> for BenchError {
    fn from(error: srv6d_netns::Error) -> Self {
        Self(error.to_string())
    }
}

impl BenchError {
    /// Makes the error that `what` failed because of `why`.
    pub fn of(what: impl Display, why: impl Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}
