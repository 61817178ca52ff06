//! The error of a request to a controller.

use std::time::Duration;

use crate::snapshot::Cause;
use srv6d_text::shown;

/// Reason why a request has no usable result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// Cause under which the failure is counted.
    pub cause: Cause,
    /// Message for the user: without control characters, and cut at a maximum length.
    pub what: String,
    /// Time for which the server asks clients to send no requests (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// HTTP status of the answer, if there was one and the status is not a success.
    pub status: Option<u16>,
    /// Whether no connection was made, so that the server cannot have seen the request.
    pub is_unsent: bool,
}

impl Failure {
    /// Returns a failure without `Retry-After` and status. The text may be the server's own: it is escaped and cut.
    pub fn new(cause: Cause, what: impl AsRef<str>) -> Self {
        Self { cause, what: shown(what.as_ref()), retry_after: None, status: None, is_unsent: false }
    }

    /// Returns whether the failure concerns the controller as a whole, independent of the request.
    pub const fn is_of_the_controller(&self) -> bool {
        matches!(self.cause, Cause::Connect | Cause::Timeout) || self.retry_after.is_some()
    }
}
