//! The first look-up of plain packets: whether they are plain so far, and where their destination leads.

use srv6d_wire::{Packet, eth};

use super::headers::{V4, V6, word};
use super::{HEAD, PlainPort};
use crate::lpm::{Search, Value};
use crate::tables::{Tables, Target};

/// What the first look-up of a plain packet led to. A packet that is not plain has none.
#[derive(Clone, Copy, Debug)]
pub struct Found(Value);

impl Found {
    /// Left to the walk.
    pub const NOTHING: Self = Self(Value::MAX);
    /// Beside a value, which is shorter.
    const IS_V4: u32 = 1 << 31;

    /// Where to, and whether it is IPv6.
    #[inline]
    pub(super) fn target(self) -> Option<(Target, bool)> {
        (self.0 != Self::NOTHING.0).then(|| (Target::decode(self.0 & !Self::IS_V4), self.0 & Self::IS_V4 == 0))
    }

    /// For one packet, which came in through `device`.
    pub(crate) fn of(tables: &Tables, device: u16, packet: &Packet<'_>) -> Self {
        let mut look_ups = LookUps::with_capacity(1);
        look_ups.read(tables, device, packet);
        look_ups.find(tables, device).next().unwrap_or(Self::NOTHING)
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

    /// Reads the headers of the packet with this number. Packets come in the order of their numbers, from 0.
    #[inline]
    pub fn read(&mut self, tables: &Tables, device: u16, packet: &Packet<'_>) {
        let found = self.look_up_at_once(tables, device, packet).unwrap_or(Found::NOTHING);
        self.found.push(found);
    }

    #[inline]
    fn look_up_at_once(&mut self, tables: &Tables, device: u16, packet: &Packet<'_>) -> Option<Found> {
        let port = tables.straight.ports.get(usize::from(device))?;
        let vrf = tables.vrfs.get(usize::from(port.vrf))?;
        let id = self.found.len();
        match plain_destination(tables, port, packet)? {
            Destination::V6(address) => vrf.v6.lookup_or(address, id, &mut self.v6).map(Found),
            Destination::V4(address) => {
                vrf.v4.lookup_or(address, id, &mut self.v4).map(|value| Found(value | Found::IS_V4))
            }
        }
    }

    /// What was found for the packets read, which came in through this device, in their order.
    pub fn find(&mut self, tables: &Tables, device: u16) -> impl Iterator<Item = Found> {
        let vrf =
            tables.straight.ports.get(usize::from(device)).and_then(|port| tables.vrfs.get(usize::from(port.vrf)));
        if let Some(vrf) = vrf {
            vrf.v6.lookup_all(&mut self.v6);
            vrf.v4.lookup_all(&mut self.v4);
        }
        for (searches, family) in [(&mut self.v6, 0), (&mut self.v4, Found::IS_V4)] {
            for search in searches.drain(..) {
                if let (Some(value), Some(found)) = (search.value(), self.found.get_mut(search.id())) {
                    *found = Found(value | family);
                }
            }
        }
        self.found.drain(..)
    }
}

/// Where a plain packet goes.
enum Destination {
    V6(u128),
    /// In the upper 32 bits.
    V4(u128),
}

#[inline]
fn plain_destination(tables: &Tables, port: &PlainPort, packet: &Packet<'_>) -> Option<Destination> {
    let len = packet.total_len();
    let head: &[u8; HEAD] = packet.bytes().first_chunk()?;
    if word(head, 0) >> 16 != port.mac || len < eth::MIN_FRAME || len > port.longest {
        return None;
    }
    match u16::from_be_bytes([head[12], head[13]]) {
        eth::IPV6 => {
            let header = V6::read(head, eth::LEN);
            let is_guarded = port.guards_blocks && tables.in_block(header.destination);
            (header.len() + eth::LEN == len && header.is_plain() && !is_guarded)
                .then_some(Destination::V6(header.destination))
        }
        eth::IPV4 => {
            let header = V4::read(head, eth::LEN);
            (header.len() + eth::LEN == len && header.is_plain()).then_some(Destination::V4(header.destination()))
        }
        _ => None,
    }
}
