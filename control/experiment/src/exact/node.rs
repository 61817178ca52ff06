//! One node of the exact mode: the worker step of a srv6d, its tables, and its ports in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use srv6d_dataplane::io::Io;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{DeviceCounters, EmulatedPort, Publisher, QueueCounters, Step, Totals, Wiring, WorkerCounters};
use srv6d_srv6::desired::{Desired, PortId};

use crate::agenda::{PS_PER_NS, Ps};

/// A node.
pub(super) struct Node {
    io: Memory,
    step: Step<Memory>,
    publisher: Publisher,
    counters: Arc<WorkerCounters>,
    /// Time of its next round. Other events of the node are out of date.
    pub due: Option<Ps>,
}

/// The frames that a round has sent or dropped.
pub(super) struct Handed {
    /// Frames that have left, with the numbers of their ports in the node.
    pub sent: Vec<(usize, MemoryFrame)>,
    /// Frames that were dropped.
    pub dropped: Vec<MemoryFrame>,
}

impl Node {
    /// Creates a node with this desired state.
    ///
    /// # Errors
    /// The state cannot be compiled. The text says why.
    pub fn new(desired: Desired) -> Result<Self, String> {
        let counters = Arc::new(WorkerCounters::default());
        let mut node = Self {
            io: Memory::new(desired.ports.len()),
            step: Step::new(0, Arc::clone(&counters), |_, _| {}),
            publisher: Publisher::new(1),
            counters,
            due: None,
        };
        node.publish(desired)?;
        Ok(node)
    }

    /// Puts another state in force. The next round follows it.
    ///
    /// # Errors
    /// The state cannot be compiled. The text says why.
    pub fn publish(&mut self, desired: Desired) -> Result<(), String> {
        let wiring =
            |desired: &Desired, _: &_| Wiring { emulated: emulated(desired), ..Wiring::direct(desired.ports.len()) };
        self.publisher.publish(Some(Arc::new(desired)), wiring).map_err(|why| why.to_string())
    }

    /// Puts a frame into the receive ring of a port.
    pub fn receive(&mut self, port: usize, frame: MemoryFrame) {
        if let Some(port) = self.io.port(port) {
            port.rx.push_back(frame);
        }
    }

    /// Makes a round of the worker.
    pub fn round(&mut self, now: Ps) -> Handed {
        self.step.round(&mut self.io, &self.publisher.current(), now / PS_PER_NS);
        Handed { sent: self.io.take_sent(), dropped: std::mem::take(&mut self.io.recycled) }
    }

    /// Returns the time at which the worker has to make a round although it receives nothing.
    pub fn next_event(&self) -> Option<Ps> {
        self.step.next_event().map(|at| at.saturating_mul(PS_PER_NS))
    }

    /// Returns true if a burst has left frames in a receive ring.
    pub fn has_received(&mut self) -> bool {
        (0..self.io.sockets()).any(|port| self.io.port(port).is_some_and(|port| !port.rx.is_empty()))
    }

    /// Returns the counters of an emulated port.
    pub fn queue(&self, port: usize) -> QueueCounters {
        let mut queue = QueueCounters::default();
        self.counters.add_queue_to(port, &mut queue);
        queue
    }

    /// Returns the numbers of packets and bytes that have left through a port.
    pub fn sent(&self, port: usize) -> (u64, u64) {
        let mut device = DeviceCounters::default();
        self.counters.add_socket_to(port, &mut device);
        (device.tx_packets, device.tx_bytes)
    }

    /// Returns the drops by reason, answers included.
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut totals = Totals::default();
        self.counters.add_to(&mut totals);
        totals.drop.into_iter().chain(totals.reply).collect()
    }
}

/// Returns the emulated ports, by port.
fn emulated(desired: &Desired) -> Vec<Option<EmulatedPort>> {
    let port = |(index, port): (u16, &srv6d_srv6::desired::Port)| {
        let emulation = *desired.emulated.get(&PortId(index))?;
        Some(EmulatedPort { device: port.name.clone(), emulation, is_up: port.up })
    };
    (0..).zip(&desired.ports).map(port).collect()
}
