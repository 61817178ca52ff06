//! Snapshots: tables, wiring and counters of one moment, as workers see them.

use std::sync::Arc;

use srv6d_srv6::desired::Emulation;
use srv6d_srv6::{Tables, Tally};
use srv6d_wire::eth;
use srv6d_xsk::arrivals::port_of;

/// The mapping between ports and sockets.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// Socket of each port, by the port's index. `None` means that it is not attached.
    pub socket_of: Vec<Option<usize>>,
    /// Port (index of the device's untagged port) of each socket.
    pub port_of: Vec<Option<u16>>,
    /// Tagged ports of each socket: VID, and the slot of the port's counters. It is empty if no port is tagged.
    pub vlans: Vec<Vec<(u16, usize)>>,
    /// Emulated ports, by socket. It is empty if there are none.
    pub emulated: Vec<Option<EmulatedPort>>,
    /// Socket of srv6d's own veth. It may receive what has arrived on other ports.
    pub own_veth: Option<usize>,
}

/// An emulated port as the tables have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedPort {
    /// Name of the device, which its random numbers depend on.
    pub device: String,
    /// What it emulates.
    pub emulation: Emulation,
    /// Whether the device is up.
    pub is_up: bool,
}

impl Wiring {
    /// Returns the wiring in which socket n is port n.
    pub fn direct(ports: usize) -> Self {
        Self {
            socket_of: (0..ports).map(Some).collect(),
            port_of: (0..ports).map(|port| u16::try_from(port).ok()).collect(),
            ..Self::default()
        }
    }
}

/// Tables, the sockets of their ports, and their counters.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of the snapshot, counted up with each one, also when a port is attached. 0 means that nothing was published
    /// yet. The generation that operators see is [`Dataplane::generation`](crate::Dataplane::generation).
    pub revision: u64,
    /// The compiled tables.
    pub tables: Tables,
    /// The sockets of their ports.
    pub wiring: Wiring,
    /// Counters, one set per worker.
    pub tallies: Vec<Arc<Tally>>,
}

/// Moves large tables to huge pages. With pages of 4 kB they have more pages than the TLB of a core holds, which
/// costs a quarter of a look-up's time.
pub(crate) fn in_huge_pages(tables: &Tables) {
    tables.ranges().for_each(srv6d_xsk::in_huge_pages);
}

impl Snapshot {
    pub(crate) fn new(revision: u64, tables: Tables, wiring: Wiring, tallies: Vec<Arc<Tally>>) -> Self {
        in_huge_pages(&tables);
        Self { revision, tables, wiring, tallies }
    }

    /// A snapshot for tests and benches: one worker, and socket n is port n.
    pub fn direct(tables: Tables, tally: Arc<Tally>, ports: usize) -> Self {
        Self::new(1, tables, Wiring::direct(ports), vec![tally])
    }

    /// Returns the socket of the port that a frame has arrived on, if it came through the own veth with a tag that names
    /// that port.
    pub(crate) fn arrived_on(&self, frame: &[u8]) -> Option<usize> {
        let &[high, low] = frame.get(eth::TYPE_AT..)?.first_chunk()?;
        if u16::from_be_bytes([high, low]) != eth::VLAN {
            return None;
        }
        let socket = port_of(eth::parse(frame)?.vlan?)?;
        self.wiring.port_of.get(socket).map(|_| socket)
    }

    pub(crate) fn is_emulated(&self, socket: usize) -> bool {
        self.wiring.emulated.get(socket).is_some_and(Option::is_some)
    }

    /// Returns true if frames of this socket may belong to tagged ports.
    pub(crate) fn has_vlans(&self, socket: usize) -> bool {
        self.wiring.vlans.get(socket).is_some_and(|vlans| !vlans.is_empty())
    }

    /// Returns the counter slot of the tagged port to which a frame belongs.
    pub(crate) fn vlan_slot(&self, socket: usize, frame: &[u8]) -> Option<usize> {
        let vlans = self.wiring.vlans.get(socket).filter(|vlans| !vlans.is_empty())?;
        let vid = eth::parse(frame)?.vlan?;
        vlans.iter().find(|(known, _)| *known == vid).map(|(_, slot)| *slot)
    }
}
