//! "This route is in force": what zebra with `--asic-offload=notify_on_offload` waits for before it tells others of a
//! route. Any other zebra passes over it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use srv6d_fpm::{Rib, RouteKey, offloaded};

use super::InForce;

/// Bytes that may wait to be sent: further answers are written when there is room.
const WAITING: usize = 64 * 1024;

/// Answers that are due, now or later.
#[derive(Debug, Default)]
pub struct Answers {
    /// Announced and not answered, with the first snapshot that has them.
    open: BTreeMap<RouteKey, u64>,
    /// In force. Each once, however often it was announced and however slowly the peer reads.
    due: BTreeSet<RouteKey>,
    bytes: Vec<u8>,
    /// How many were written.
    pub written: u64,
}

impl Answers {
    /// Nobody waits any more.
    pub fn forget(&mut self) {
        let written = self.written;
        *self = Self { written, ..Self::default() };
    }

    /// The next snapshot, of that number, has the route.
    pub fn announced(&mut self, key: RouteKey, serial: u64) {
        self.open.insert(key, serial);
    }

    /// Nobody asks for that route any more.
    pub fn withdrawn(&mut self, key: &RouteKey) {
        self.open.remove(key);
        self.due.remove(key);
    }

    /// A snapshot is in force. What is not in force yet is asked for again when the next one is.
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

    /// Bytes to send next.
    pub fn bytes(&mut self, rib: &Rib) -> &[u8] {
        while self.bytes.len() < WAITING
            && let Some(key) = self.due.pop_first()
        {
            // Gone meanwhile, or announced anew with a next hop that nobody knows.
            if let Some(protocol) = rib.protocol(&key) {
                self.bytes.extend_from_slice(&offloaded(&key, protocol));
                self.written += 1;
            }
        }
        &self.bytes
    }

    /// So many of them were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes.drain(..bytes.min(self.bytes.len()));
    }

    /// Something is to be sent.
    pub fn pending(&self) -> bool {
        !self.bytes.is_empty() || !self.due.is_empty()
    }
}
