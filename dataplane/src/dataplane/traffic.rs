//! The counter of what a port has sent, for threads that are neither a worker nor control.

use std::sync::Arc;

use srv6d_balance::{FarPorts, Sample};

use super::Dataplane;
use crate::counters::WorkerCounters;

/// Reads what a port has sent. It may be read on any thread, at any time.
#[derive(Clone, Debug)]
pub struct PortTraffic {
    workers: Vec<Arc<WorkerCounters>>,
    socket: usize,
    is_emulated: bool,
}

impl PortTraffic {
    /// Returns bytes sent so far, and bytes in the queue. A port that is not emulated has no queue that could be seen.
    pub fn read(&self) -> Sample {
        let mut sum = Sample::default();
        for counters in &self.workers {
            let of_worker = if self.is_emulated {
                counters.emulated(self.socket)
            } else {
                Sample { sent_bytes: counters.sent_bytes(self.socket), queue: 0 }
            };
            sum.sent_bytes += of_worker.sent_bytes;
            sum.queue += of_worker.queue;
        }
        sum
    }
}

impl Dataplane {
    /// Returns the traffic of a device. `None`: it was never attached.
    pub fn traffic(&self, device: &str, is_emulated: bool) -> Option<PortTraffic> {
        let socket = *self.numbers.get(device)?;
        let workers = self.workers.iter().map(|worker| Arc::clone(&worker.counters)).collect();
        Some(PortTraffic { workers, socket, is_emulated })
    }

    /// Returns the place where it is written how busy the ports behind neighbours are. The workers read it.
    pub const fn far_ports(&self) -> &Arc<FarPorts> {
        &self.far
    }
}
