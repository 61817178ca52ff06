//! Connections of clients: how many there may be at a time, and what happens where the process can take none.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::task::AbortHandle;
use tracing::warn;

/// Time until the next try after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that are being served. One that is too many takes the place of the oldest: a client with a question is
/// answered in milliseconds, and so goes in front of any number of clients that only stay.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    open: VecDeque<AbortHandle>,
}

impl Connections {
    /// At most `limit` at a time.
    pub const fn at_most(limit: usize) -> Self {
        Self { limit, open: VecDeque::new() }
    }

    /// Serves one more.
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

/// A listener whose last connection could not be taken, and whether that was said.
#[derive(Debug, Default)]
pub struct Refusals {
    is_told: bool,
}

impl Refusals {
    /// A connection was taken.
    pub fn over(&mut self) {
        self.is_told = false;
    }

    /// None could be taken: says why, once, and gives others time to close their descriptors.
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
