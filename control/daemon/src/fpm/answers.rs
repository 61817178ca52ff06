//! Answers that tell zebra which routes are in force. With `--asic-offload=notify_on_offload` zebra waits for them
//! before it announces a route to others. Any other zebra ignores them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use srv6d_fpm::{Rib, RouteKey, offloaded};

use super::InForce;

/// Number of bytes that may wait to be sent. Further answers are written when there is room.
const WAITING: usize = 64 * 1024;

/// Answers that are due now or later.
#[derive(Debug, Default)]
pub struct Answers {
    /// Routes that were announced and not answered, with the serial number of the first snapshot that has them.
    open: BTreeMap<RouteKey, u64>,
    /// Routes that are in force and to be answered. Each is here once, however often it was announced and however
    /// slowly the peer reads.
    due: BTreeSet<RouteKey>,
    bytes: Vec<u8>,
    /// Number of answers written.
    pub written: u64,
}

impl Answers {
    /// Forgets all answers: no peer waits for them any more.
    pub fn forget(&mut self) {
        let written = self.written;
        *self = Self { written, ..Self::default() };
    }

    /// Notes that the snapshot with this serial number is the first that has the route.
    pub fn announced(&mut self, key: RouteKey, serial: u64) {
        self.open.insert(key, serial);
    }

    /// Notes that a route was withdrawn: no answer is needed any more.
    pub fn withdrawn(&mut self, key: &RouteKey) {
        self.open.remove(key);
        self.due.remove(key);
    }

    /// Notes that a snapshot has been planned. Routes that are not in force yet are checked again after the next one.
    pub fn planned(&mut self, in_force: &InForce, rib: &Rib) {
        let without: HashSet<&RouteKey> = in_force.without.iter().collect();
        let due = &mut self.due;
        self.open.retain(|key, serial| {
            let is_in_force = *serial <= in_force.serial && !without.contains(key) && rib.protocol(key).is_some();
            if is_in_force {
                due.insert(*key);
            }
            !is_in_force
        });
    }

    /// Returns the bytes to send next.
    pub fn bytes(&mut self, rib: &Rib) -> &[u8] {
        while self.bytes.len() < WAITING
            && let Some(key) = self.due.pop_first()
        {
            // The route may be gone meanwhile, or announced anew with an unknown next hop.
            if let Some(protocol) = rib.protocol(&key) {
                self.bytes.extend_from_slice(&offloaded(&key, protocol));
                self.written += 1;
            }
        }
        &self.bytes
    }

    /// Notes that this many of the bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes.drain(..bytes.min(self.bytes.len()));
    }

    /// Whether there is anything to send.
    pub fn pending(&self) -> bool {
        !self.bytes.is_empty() || !self.due.is_empty()
    }
}
