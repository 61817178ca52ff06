//! The known state of the peers, and its changes by answers.

use std::time::{Duration, SystemTime};

use super::Criterion;
use super::allocations::Allocations;
use super::asker::{Answered, Question};
use super::peer::ComposedPrefixes;
use super::retries::Retries;
use crate::allowed::Allowed;
use crate::failure::Failure;
use crate::sid::Family;
use crate::snapshot::{Cause, Peer, PeerState, PrefixPaths, Snapshot, fail};
use srv6d_text::shown;

/// The state of a task that answers change.
#[derive(Debug)]
pub struct Known {
    pub snapshot: Snapshot,
    pub allocations: Allocations,
    pub retries: Retries,
}

impl Known {
    /// Restores carriers from before a restart for peers without any, as far as these carriers are still allowed.
    pub fn recall(&mut self, allowed: &Allowed) {
        for (id, peer) in self.snapshot.peers.iter_mut().filter(|(_, peer)| peer.prefixes.is_empty()) {
            let good = self.allocations.last_good(id).iter().filter(|known| !known.paths.is_empty());
            peer.prefixes = good.filter(|known| known.is_allowed(allowed)).cloned().collect();
            if !peer.prefixes.is_empty() {
                fail(peer, "restarted: not asked yet");
            }
        }
    }

    /// Returns the peers to ask for in this round. A peer that is fresh under an unchanged topology is confirmed
    /// without a request.
    pub fn due(&mut self, changed: bool) -> Vec<Question> {
        let now = SystemTime::now();
        let mut due = Vec::new();
        for (id, peer) in &mut self.snapshot.peers {
            if !changed && peer.state == PeerState::Fresh {
                peer.synced = Some(now);
            } else if self.retries.is_due(id, changed) {
                due.push(Question {
                    peer: id.clone(),
                    allocated: self.allocations.of(id).cloned(),
                    unanswered: self.retries.is_unanswered(id),
                });
            }
        }
        due
    }

    /// Returns the peers without an allocation that may be asked for now.
    pub fn unbooked(&self) -> Vec<Question> {
        let ids = self.snapshot.peers.keys().filter(|id| self.allocations.of(id).is_none());
        let due = ids.filter(|id| self.retries.is_due(id, false) && !self.retries.is_unanswered(id));
        due.map(|id| Question { peer: id.clone(), ..Question::default() }).collect()
    }

    /// Applies an answer to the state of a peer.
    pub fn apply(&mut self, id: &str, answer: &Result<Answered, Failure>, kind: &Criterion, interval: Duration) {
        let Some(peer) = self.snapshot.peers.get_mut(id) else { return };
        match answer {
            Ok(Answered { composed: Err(why), allocated, .. }) => {
                if let Some(path) = allocated {
                    self.allocations.insert(id, path.clone());
                }
                fail(peer, &why.what);
                self.snapshot.health.failed(why.cause);
                // If the topology does not have the path, it is booked again later, as if the answer had been lost.
                self.retries.failed(id, interval, allocated.is_some() && why.cause == Cause::VanishedNode);
            }
            Ok(Answered { composed: Ok(composed), allocated, unbooked }) => {
                self.snapshot.health.mismatches += composed.mismatches;
                let ComposedPrefixes { prefixes, notes, left_out, .. } = composed;
                let stays = |known: &PrefixPaths| left_out.contains(&Family::of(known.prefix));
                let stay: Vec<PrefixPaths> = peer.prefixes.iter().filter(|known| stays(known)).cloned().collect();
                *peer = Peer {
                    prefixes: [prefixes.as_slice(), &stay].concat(),
                    state: PeerState::Fresh,
                    last_error: None,
                    synced: Some(SystemTime::now()),
                    notes: notes.iter().map(|note| shown(note)).collect(),
                };
                self.allocations.remember(id, &peer.prefixes);
                self.retries.succeeded(id);
                if *unbooked {
                    self.snapshot.health.failed(Cause::Bookkeeping);
                }
                if let Some(path) = allocated {
                    self.allocations.insert(id, path.clone());
                }
            }
            Err(why) => {
                fail(peer, &why.what);
                self.snapshot.health.failed(why.cause);
                self.retries.failed(id, interval, *kind == Criterion::Load && may_have_counted(why));
            }
        }
    }

    /// Marks peers as failed that were not asked for, because the controller does not answer.
    pub fn not_asked(&mut self, ids: impl IntoIterator<Item = String>, why: &Failure) {
        for id in ids {
            if let Some(peer) = self.snapshot.peers.get_mut(&id) {
                fail(peer, &why.what);
            }
        }
    }

    /// Returns the error of the first peer whose paths are not what the controller currently answers.
    pub fn first_failed(&self) -> Option<Failure> {
        let (id, peer) = self.snapshot.peers.iter().find(|(_, peer)| peer.state != PeerState::Fresh)?;
        let why = peer.last_error.clone().unwrap_or_else(|| format!("{id} has not been asked for"));
        Some(Failure::new(Cause::NotFound, why))
    }
}

/// Returns whether a failed `GET .../load` may have changed the controller's books, which is so unless it was clearly
/// refused.
const fn may_have_counted(why: &Failure) -> bool {
    match why.cause {
        // A connection that broke later may have transmitted the request.
        Cause::Connect => !why.is_unsent,
        Cause::NotFound | Cause::UnknownId | Cause::Refused | Cause::NoMetric | Cause::State => false,
        // A gateway may time out although the controller completes the request.
        Cause::Status => matches!(why.status, Some(502..=504)),
        Cause::Timeout
        | Cause::Body
        | Cause::WrongDestination
        | Cause::VanishedNode
        | Cause::InvalidCarrier
        | Cause::NotAllowed
        | Cause::Bookkeeping => true,
    }
}
