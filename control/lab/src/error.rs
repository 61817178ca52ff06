//! The reasons why a lab command failed.

use std::io;
use std::path::Path;

/// An error of a lab command. Every text names what is wrong, where, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The topology file or the command line is wrong.
    #[error("{0}")]
    Invalid(String),
    /// An operation failed on this machine.
    #[error("{0}")]
    Failed(String),
    /// SIGINT, SIGTERM or SIGHUP arrived.
    #[error("interrupted")]
    Interrupted,
}

impl From<srv6d_netns::Error> for LabError {
    fn from(error: srv6d_netns::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl LabError {
    /// Returns the exit status: 2 for mistakes in the user's input, 1 for errors at run time.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Invalid(_) => 2,
            Self::Failed(_) | Self::Interrupted => 1,
        }
    }

    /// Makes the error `cannot VERB PATH: reason`.
    pub(super) fn io(verb: &str, path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("cannot {verb} {}: {error}", path.display()))
    }
}
