//! What is known of the peers, and what answers make of it.

use std::time::{Duration, SystemTime};

use super::PathKind;
use super::allocations::Allocations;
use super::asker::{Answered, Question};
use super::peer::Programmed;
use super::retries::Retries;
use crate::failure::Failure;
use crate::sid::Family;
use crate::snapshot::{Cause, Peer, PeerState, PrefixPaths, Snapshot, fail};
use crate::text::shown;

/// Everything that answers change.
#[derive(Debug)]
pub struct Known {
    pub snapshot: Snapshot,
    pub allocations: Allocations,
    pub retries: Retries,
}

impl Known {
    /// Questions of this round. A peer that is as it was under an unchanged topology is confirmed without one.
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

    /// Peers without an allocation, as far as their turn has come.
    pub fn unbooked(&self) -> Vec<Question> {
        let ids = self.snapshot.peers.keys().filter(|id| self.allocations.of(id).is_none());
        let due = ids.filter(|id| self.retries.is_due(id, false) && !self.retries.is_unanswered(id));
        due.map(|id| Question { peer: id.clone(), ..Question::default() }).collect()
    }

    /// Notes an answer.
    pub fn take(&mut self, id: &str, answer: &Result<Answered, Failure>, kind: &PathKind, interval: Duration) {
        let Some(peer) = self.snapshot.peers.get_mut(id) else { return };
        match answer {
            Ok(Answered { programmed: Err(why), allocated, .. }) => {
                if let Some(path) = allocated {
                    self.allocations.insert(id, path.clone());
                }
                fail(peer, &why.what);
                self.snapshot.health.failed(why.cause);
                // A way that the topology does not have is booked anew, as its loss would be: not at once.
                self.retries.failed(id, interval, allocated.is_some() && why.cause == Cause::VanishedNode);
            }
            Ok(Answered { programmed: Ok(programmed), allocated, unbooked }) => {
                self.snapshot.health.mismatches += programmed.mismatches;
                let Programmed { prefixes, notes, left_out, .. } = programmed;
                let stays = |known: &PrefixPaths| left_out.contains(&Family::of(known.prefix));
                let stay: Vec<PrefixPaths> = peer.prefixes.iter().filter(|known| stays(known)).cloned().collect();
                *peer = Peer {
                    prefixes: [prefixes.as_slice(), &stay].concat(),
                    state: PeerState::Fresh,
                    last_error: None,
                    synced: Some(SystemTime::now()),
                    notes: notes.iter().map(|note| shown(note)).collect(),
                };
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
                self.retries.failed(id, interval, *kind == PathKind::Load && may_have_counted(why));
            }
        }
    }

    /// Nobody was asked for them: the controller does not answer.
    pub fn not_asked(&mut self, ids: impl IntoIterator<Item = String>, why: &Failure) {
        for id in ids {
            if let Some(peer) = self.snapshot.peers.get_mut(&id) {
                fail(peer, &why.what);
            }
        }
    }

    /// The first peer whose paths are not what the controller says now, and why.
    pub fn first_failed(&self) -> Option<Failure> {
        let (id, peer) = self.snapshot.peers.iter().find(|(_, peer)| peer.state != PeerState::Fresh)?;
        let why = peer.last_error.clone().unwrap_or_else(|| format!("{id} has not been asked for"));
        Some(Failure::new(Cause::NotFound, why))
    }
}

/// `GET .../load` writes: whatever was not clearly refused may stand in the controller's books.
const fn may_have_counted(why: &Failure) -> bool {
    match why.cause {
        // A connection that was made and broke may have carried the question.
        Cause::Connect => !why.is_unsent,
        Cause::NotFound | Cause::UnknownId | Cause::Refused | Cause::NoMetric | Cause::State => false,
        // A gateway gives up on an answer that the controller goes on to make.
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
