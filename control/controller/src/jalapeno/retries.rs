//! Retries for peers without a path. Each peer is asked for again after its own pause, independent of the others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::rounds::pause;

/// Minimum pause after a request whose answer was lost, because its allocation may have been made.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Retry {
    /// Number of consecutive attempts that failed.
    failed: u32,
    at: Instant,
    /// True if the controller may have allocated a path that this task does not know.
    unanswered: bool,
}

/// Retries by the id of the peer.
#[derive(Clone, Debug, Default)]
pub struct Retries(BTreeMap<String, Retry>);

impl Retries {
    /// Records that the last attempt failed.
    pub fn failed(&mut self, peer: &str, interval: Duration, unanswered: bool) {
        let failed = self.0.get(peer).map_or(0, |retry| retry.failed);
        let wait = pause(interval, failed, fastrand::f64());
        let wait = if unanswered { wait.max(UNANSWERED_PAUSE) } else { wait };
        let retry = Retry { failed: failed.saturating_add(1), at: Instant::now() + wait, unanswered };
        self.0.insert(peer.to_owned(), retry);
    }

    /// Records that the last attempt returned a path.
    pub fn succeeded(&mut self, peer: &str) {
        self.0.remove(peer);
    }

    /// Returns whether a peer may be asked for now. A changed topology is a reason to ask at once, but not to allocate
    /// twice.
    pub fn is_due(&self, peer: &str, changed: bool) -> bool {
        self.0.get(peer).is_none_or(|retry| Instant::now() >= retry.at || (changed && !retry.unanswered))
    }

    /// Returns whether the controller may have allocated a path to the peer that this task does not know.
    pub fn is_unanswered(&self, peer: &str) -> bool {
        self.0.get(peer).is_some_and(|retry| retry.unanswered)
    }

    /// Returns the peers that may have an allocation that this task does not know.
    pub fn unanswered(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|(_, retry)| retry.unanswered).map(|(peer, _)| peer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_peer_has_its_own_pace() {
        let mut retries = Retries::default();
        assert!(retries.is_due("a", false));
        retries.failed("a", INTERVAL, false);
        assert!(!retries.is_due("a", false));
        assert!(retries.is_due("a", true), "the topology is another one");
        assert!(retries.is_due("b", false));
        advance(INTERVAL.mul_f64(1.2)).await;
        assert!(retries.is_due("a", false));
        retries.failed("a", INTERVAL, false);
        advance(INTERVAL.mul_f64(1.2)).await;
        assert!(!retries.is_due("a", false), "twice as long the second time");
        retries.succeeded("a");
        assert!(retries.is_due("a", false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_been_allocated_is_not_asked_for_at_once() {
        let mut retries = Retries::default();
        retries.failed("a", INTERVAL, true);
        advance(UNANSWERED_PAUSE / 2).await;
        assert!(!retries.is_due("a", true));
        assert!(retries.is_unanswered("a"));
        advance(UNANSWERED_PAUSE / 2).await;
        assert!(retries.is_due("a", false));
        assert_eq!(retries.unanswered().collect::<Vec<_>>(), ["a"]);
    }
}
