//! One generation as workers see it.

use std::sync::Arc;

use srv6d_srv6::{Tables, Tally};
use srv6d_wire::eth;

/// Most rounds that a worker looks at tables before it goes over to them.
const MOST_BESIDE: usize = 2048;
/// Bytes of prefix tables that are worth one such round: small ones are in a cache before long.
const BYTES_PER_ROUND: usize = 1 << 14;

/// Where the ports of tables are.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// Socket of each port (by the port's index); `None`: not attached.
    pub socket_of: Vec<Option<usize>>,
    /// Port (index of the device's untagged port) of each socket.
    pub port_of: Vec<Option<u16>>,
    /// Tagged ports of each socket: VID, and the slot of the port's counters. Empty where there is no tagged port at
    /// all.
    pub vlans: Vec<Vec<(u16, usize)>>,
}

impl Wiring {
    /// Socket n is port n.
    pub fn direct(ports: usize) -> Self {
        Self {
            socket_of: (0..ports).map(Some).collect(),
            port_of: (0..ports).map(|port| u16::try_from(port).ok()).collect(),
            vlans: Vec::new(),
        }
    }
}

/// Tables, where their ports are, and where to count.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of the generation; 0: nothing was published yet.
    pub generation: u64,
    /// The generation that was compiled as a whole, of which this is a copy, amended or not.
    pub compiled: u64,
    /// In force only while the copy that workers know is changed: that one follows at once.
    pub is_passing: bool,
    /// Most rounds in which a worker with packets looks at these tables before it goes over to them from others.
    pub rounds_beside: u32,
    /// What to do with packets.
    pub tables: Tables,
    /// Socket of each port (by the port's index); `None`: not attached.
    pub socket_of: Vec<Option<usize>>,
    /// Port (index of the device's untagged port) of each socket.
    pub port_of: Vec<Option<u16>>,
    /// Tagged ports of each socket: VID, and the slot of the port's counters. Empty where there is no tagged port at
    /// all, which is what is asked for every packet.
    pub vlans: Vec<Vec<(u16, usize)>>,
    /// Counters, one set per worker.
    pub tallies: Vec<Arc<Tally>>,
}

/// A large table in pages of 4 kB has more of them than a core keeps addresses of: a quarter of a look-up's time.
pub(crate) fn in_huge_pages(tables: &Tables) {
    tables.ranges().for_each(srv6d_xsk::in_huge_pages);
}

impl Snapshot {
    pub(crate) fn new(generation: u64, tables: Tables, wiring: Wiring, tallies: Vec<Arc<Tally>>) -> Self {
        let Wiring { socket_of, port_of, vlans } = wiring;
        in_huge_pages(&tables);
        let rounds_beside = u32::try_from(MOST_BESIDE.min(tables.memory() / BYTES_PER_ROUND)).unwrap_or(0);
        Self {
            generation,
            compiled: generation,
            is_passing: false,
            rounds_beside,
            tables,
            socket_of,
            port_of,
            vlans,
            tallies,
        }
    }

    /// A snapshot for tests and benches: one worker, and socket n is port n.
    pub fn direct(tables: Tables, tally: Arc<Tally>, ports: usize) -> Self {
        Self::new(1, tables, Wiring::direct(ports), vec![tally])
    }

    /// Slot of the tagged port that a frame belongs to.
    pub(crate) fn vlan_slot(&self, socket: usize, frame: &[u8]) -> Option<usize> {
        let vlans = self.vlans.get(socket).filter(|vlans| !vlans.is_empty())?;
        let vid = eth::parse(frame)?.vlan?;
        vlans.iter().find(|(known, _)| *known == vid).map(|(_, slot)| *slot)
    }
}
