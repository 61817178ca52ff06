//! Limits on clients' connections, and the handling of errors when a connection cannot be accepted.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::task::AbortHandle;
use tracing::warn;

/// Time until the next try after accepting a connection has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections that are being served. If there are too many, a new one replaces the oldest. A client with a request
/// is answered within milliseconds, so it is served even if any number of clients keep idle connections.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    open: VecDeque<AbortHandle>,
}

impl Connections {
    /// Allows at most `limit` connections at a time.
    pub const fn at_most(limit: usize) -> Self {
        Self { limit, open: VecDeque::new() }
    }

    /// Serves one more connection.
    pub fn serve(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.open.retain(|task| !task.is_finished());
        if self.open.len() >= self.limit
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        self.open.push_back(tokio::spawn(connection).abort_handle());
    }
}

/// State of a listener that may fail to accept connections, and whether the failure has been logged.
#[derive(Debug, Default)]
pub struct AcceptFailures {
    is_told: bool,
}

impl AcceptFailures {
    /// Notes that a connection was accepted, so that the next failure is logged again.
    pub fn over(&mut self) {
        self.is_told = false;
    }

    /// Notes that accepting a connection failed. Logs the reason once, and waits so that others can close their
    /// descriptors.
    pub async fn pause(&mut self, what: &str, why: &io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            warn!(
                "{what}: cannot take a connection: {why}; `LimitNOFILE=` in the unit or `ulimit -n` raises the limit of open files"
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn one_too_many_takes_the_place_of_the_oldest() {
        let mut connections = Connections::at_most(2);
        let (closed, mut gone): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<()>()).unzip();
        for sender in closed {
            connections.serve(async move {
                std::future::pending::<()>().await;
                drop(sender);
            });
        }
        let oldest = gone.remove(0);
        assert!(oldest.await.is_err(), "its task, and what it held, are gone");
        for kept in &mut gone {
            assert_eq!(kept.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        }
    }
}
