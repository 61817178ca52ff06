//! Why a lab command did not do what it was asked.

use std::io;
use std::path::Path;

/// A lab command failed. Every text names what is wrong, where, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The topology file or the command line is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The machine did not do what it was told.
    #[error("{0}")]
    Failed(String),
    /// SIGINT, SIGTERM or SIGHUP arrived.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    /// Exit status: 2 for what the user wrote, 1 for what went wrong while running.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Invalid(_) => 2,
            Self::Failed(_) | Self::Interrupted => 1,
        }
    }

    /// `cannot VERB PATH: reason`.
    pub(super) fn io(verb: &str, path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("cannot {verb} {}: {error}", path.display()))
    }
}
