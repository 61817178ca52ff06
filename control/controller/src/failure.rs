//! A question that brought nothing.

use std::time::Duration;

use crate::snapshot::Cause;
use crate::text::shown;

/// Why a request brought nothing that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// By which it is counted.
    pub cause: Cause,
    /// For people: without control characters, and cut.
    pub what: String,
    /// The server asks to be left alone for so long.
    pub retry_after: Option<Duration>,
    /// HTTP status, where there was one and it was no success.
    pub status: Option<u16>,
    /// No connection was made: the server has not seen the request.
    pub is_unsent: bool,
}

impl Failure {
    /// Without a wish of the server. The text may be the server's own: it is escaped and cut.
    pub fn new(cause: Cause, what: impl AsRef<str>) -> Self {
        Self { cause, what: shown(what.as_ref()), retry_after: None, status: None, is_unsent: false }
    }

    /// The controller as a whole is in trouble, whatever it was asked for.
    pub const fn is_of_the_controller(&self) -> bool {
        matches!(self.cause, Cause::Connect | Cause::Timeout) || self.retry_after.is_some()
    }
}
