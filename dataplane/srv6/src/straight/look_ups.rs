//! The first look-up of plain packets: whether they are plain so far, and where their destination leads.

use prefetch_index::prefetch_index;
use srv6d_wire::{Packet, eth};

use super::headers::{V4, V6, word};
use super::{PlainPath, PlainPort};
use crate::lpm::{Lpm, Search, Value};
use crate::tables::{Tables, Target, Vrf};

/// What the first look-up of a plain packet led to. A packet that is not plain has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(Value);

impl Found {
    /// Left to the walk.
    pub const NOTHING: Self = Self(Value::MAX);
    /// Beside a value, which is shorter.
    const IS_V4: u32 = 1 << 31;

    /// Where to, as [`Target::decode`](crate::tables::Target::decode) takes it.
    #[inline]
    pub(super) fn value(self) -> Option<Value> {
        (self.0 != Self::NOTHING.0).then_some(self.0 & !Self::IS_V4)
    }

    #[inline]
    pub(super) const fn is_v6(self) -> bool {
        self.0 & Self::IS_V4 == 0
    }

    /// The index of the target, among those of its kind.
    #[inline]
    pub(super) const fn index(self) -> u32 {
        Target::index(self.0)
    }

    /// To a target of the same kind, in a packet of the same family.
    #[inline]
    pub(super) const fn is_like(self, other: Self) -> bool {
        Target::index(self.0 ^ other.0) == self.0 ^ other.0
    }

    /// For one packet, which came in through `device`.
    pub(crate) fn of(tables: &Tables, device: u16, packet: &Packet<'_>) -> Self {
        let Some((port, vrf)) = tables.came_in(device) else { return Self::NOTHING };
        match plain_destination(tables, port, packet) {
            Some(Destination::V6(address)) => vrf.v6.lookup(address).map_or(Self::NOTHING, Self),
            Some(Destination::V4(address)) => {
                vrf.v4.lookup(address).map_or(Self::NOTHING, |value| Self(value | Self::IS_V4))
            }
            None => Self::NOTHING,
        }
    }
}

/// The first look-ups of a burst: all together.
#[derive(Debug)]
pub struct LookUps {
    v6: Vec<Search>,
    v4: Vec<Search>,
    found: Vec<Found>,
}

impl LookUps {
    /// For so many packets, without further allocations.
    pub fn with_capacity(packets: usize) -> Self {
        Self { v6: Vec::with_capacity(packets), v4: Vec::with_capacity(packets), found: Vec::with_capacity(packets) }
    }

    /// Where these packets, which came in through `device`, are to go: one for each, in their order.
    #[inline(never)]
    pub fn find<'p>(
        &mut self,
        tables: &Tables,
        device: u16,
        packets: impl ExactSizeIterator<Item = Packet<'p>>,
    ) -> &[Found] {
        self.found.clear();
        self.found.resize(packets.len(), Found::NOTHING);
        let Some((port, vrf)) = tables.came_in(device) else { return &self.found };
        for (id, (packet, found)) in packets.zip(&mut self.found).enumerate() {
            let value = match plain_destination(tables, port, &packet) {
                Some(Destination::V6(address)) => vrf.v6.lookup_or(address, id, &mut self.v6),
                Some(Destination::V4(address)) => {
                    vrf.v4.lookup_or(address, id, &mut self.v4).map(|value| value | Found::IS_V4)
                }
                None => None,
            };
            *found = value.map_or(Found::NOTHING, Found);
        }
        self.search(tables, vrf);
        &self.found
    }

    /// What no index has answered.
    fn search(&mut self, tables: &Tables, vrf: &Vrf) {
        let (found, steers) = (&mut self.found, &tables.straight.steers);
        search(&vrf.v6, &mut self.v6, 0, found, steers);
        search(&vrf.v4, &mut self.v4, Found::IS_V4, found, steers);
    }
}

/// Paths are asked for, so that the cache lines of all of them are fetched at the same time: where packets are written,
/// each waits for its own.
#[inline(never)]
fn search(lpm: &Lpm, searches: &mut Vec<Search>, family: u32, found: &mut [Found], steers: &[PlainPath]) {
    lpm.lookup_all(searches, |id, value| {
        let Some(value) = value else { return };
        // Some path or none for a value that is no steered prefix: to ask what it is would take longer.
        prefetch_index(steers, Target::index(value) as usize);
        if let Some(found) = found.get_mut(id) {
            *found = Found(value | family);
        }
    });
}

impl Tables {
    /// What there is to know about a port before the first look-up.
    #[inline]
    fn came_in(&self, device: u16) -> Option<(&PlainPort, &Vrf)> {
        let port = self.straight.ports.get(usize::from(device))?;
        Some((port, self.vrfs.get(usize::from(port.vrf))?))
    }
}

/// Where a plain packet goes.
enum Destination {
    V6(u128),
    /// In the upper 32 bits.
    V4(u128),
}

#[inline(always)]
fn plain_destination(tables: &Tables, port: &PlainPort, packet: &Packet<'_>) -> Option<Destination> {
    let len = packet.total_len();
    let head: &[u8; eth::MIN_FRAME] = packet.bytes().first_chunk()?;
    if word(head, 0) >> 16 != port.mac || len > port.longest {
        return None;
    }
    let ether_type = [head[12], head[13]];
    if ether_type == eth::IPV6.to_be_bytes() {
        let header = V6::read(head, eth::LEN);
        let is_guarded = port.guards_blocks && tables.in_block(header.address());
        let is_plain = header.len() + eth::LEN == len && header.is_plain() && !is_guarded;
        is_plain.then(|| Destination::V6(header.address()))
    } else if ether_type == eth::IPV4.to_be_bytes() {
        let header = V4::read(head, eth::LEN);
        (header.len() + eth::LEN == len && header.is_plain()).then(|| Destination::V4(header.destination()))
    } else {
        None
    }
}
