//! Packets that wait for their next hop to resolve (RFC 4861 section 7.2.2). They are kept as received, and go through
//! the tables again when those change.

use std::net::IpAddr;

use srv6d_srv6::model::PortId;

/// Packets kept for one neighbour.
const PER_NEIGHBOR: usize = 3;
/// Packets kept in all.
const IN_ALL: usize = 192;
/// How long, in nanoseconds: the kernel gives up after three solicitations, a second apart.
const PATIENCE: u64 = 3_500_000_000;

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    socket: usize,
    neighbor: (PortId, IpAddr),
    since: u64,
}

/// The packets of one worker that wait.
#[derive(Debug)]
pub(crate) struct Held<F>(Vec<Waiting<F>>);

impl<F> Held<F> {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(IN_ALL))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps a packet.
    ///
    /// # Errors
    /// The frame comes back when enough others wait.
    pub(crate) fn keep(&mut self, frame: F, socket: usize, neighbor: (PortId, IpAddr), since: u64) -> Result<(), F> {
        let same = self.0.iter().filter(|waiting| waiting.neighbor == neighbor).count();
        if same >= PER_NEIGHBOR || self.0.len() >= IN_ALL {
            return Err(frame);
        }
        self.0.push(Waiting { frame, socket, neighbor, since });
        Ok(())
    }

    /// Takes all packets, in the order they came: socket, since when, frame.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (usize, u64, F)> + use<F> {
        std::mem::take(&mut self.0).into_iter().map(|waiting| (waiting.socket, waiting.since, waiting.frame))
    }

    /// Takes the packets that have waited too long.
    pub(crate) fn take_expired(&mut self, now: u64) -> Vec<F> {
        let expired = self.0.iter().take_while(|waiting| now.saturating_sub(waiting.since) > PATIENCE).count();
        self.0.drain(..expired).map(|waiting| waiting.frame).collect()
    }
}
