//! The first look-up of plain packets: whether they are plain so far, and where their destination leads.

use std::ops::Range;

use prefetch_index::prefetch_index;
use srv6d_fib::PathRow;
use srv6d_wire::{Packet, eth, protocol};

use super::destination_cache::{Bypass, DestinationCache, Entries, Tag};
use super::headers::{V4, V6, source_v6, word};
use super::inner::{InnerLookUps, InnerScratch};
use super::{Frames, PlainPort};
use crate::lpm::{Lpm, Search, Value};
use crate::tables::{Tables, Target, Vrf, VrfIndex};

/// The result of a look-up: where a plain packet goes. A packet that is not plain has [no result](Self::NOTHING).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUpResult(Value);

impl LookUpResult {
    /// No result: the packet is left to the slow path.
    pub const NOTHING: Self = Self(Value::MAX);
    /// The bit that marks results of IPv4. Table values do not use it.
    pub(super) const IS_V4: u32 = 1 << 31;

    /// Returns the table value, which [`Target::decode`](crate::tables::Target::decode) takes.
    #[inline]
    pub(super) fn value(self) -> Option<Value> {
        (self.0 != Self::NOTHING.0).then_some(self.0 & !Self::IS_V4)
    }

    #[inline]
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) const fn is_v6(self) -> bool {
        self.0 & Self::IS_V4 == 0
    }

    /// Returns the index of the target among those of its kind.
    #[inline]
    pub(super) const fn index(self) -> u32 {
        Target::index(self.0)
    }

    /// Returns true if both results have targets of the same kind, for packets of the same family.
    #[inline]
    pub(super) const fn is_like(self, other: Self) -> bool {
        Target::index(self.0 ^ other.0) == self.0 ^ other.0
    }

    /// Returns true if the target is a SID of this node.
    #[inline]
    fn is_sid(self) -> bool {
        self.value().is_some_and(|value| matches!(Target::decode(value), Target::Sid(_)))
    }

    /// Looks up one packet, which came in through `device`.
    pub(crate) fn of(tables: &Tables, device: u16, packet: &Packet<'_>) -> Self {
        Self::of_plain(tables, device, packet).unwrap_or(Self::NOTHING)
    }

    fn of_plain(tables: &Tables, device: u16, packet: &Packet<'_>) -> Option<Self> {
        let (port, vrf) = tables.came_in(device)?;
        let (head, len) = (port.admits(packet)?, packet.total_len());
        match ether_type(head) {
            IPV6 => {
                let header = V6::read_plain(tables, &port, head, len).filter(V6::has_plain_destination)?;
                vrf.v6.look_up(header.destination()).map(Self).filter(|found| !port.guards_sids || !found.is_sid())
            }
            IPV4 => {
                let header = V4::read_plain(tables, &port, head, len).filter(V4::has_plain_destination)?;
                vrf.v4.look_up(header.destination()).map(|value| Self(value | Self::IS_V4))
            }
            _ => None,
        }
    }
}

/// Number of devices that have a cache bypass of their own. Devices with higher numbers share one with another device.
const DEVICES: usize = 16;

/// Looks up the packets of a burst together.
#[derive(Debug)]
pub struct LookUps {
    v6: Vec<Search>,
    v4: Vec<Search>,
    found: Vec<LookUpResult>,
    cache: DestinationCache,
    /// Cache bypass by device, modulo [`DEVICES`].
    bypass: [Bypass; DEVICES],
    inside: InnerScratch,
}

impl LookUps {
    /// Allocates memory for this number of packets, so that nothing is allocated later.
    pub fn with_capacity(packets: usize) -> Self {
        Self {
            v6: Vec::with_capacity(packets),
            v4: Vec::with_capacity(packets),
            found: Vec::with_capacity(packets),
            cache: DestinationCache::default(),
            bypass: [Bypass::default(); DEVICES],
            inside: InnerScratch::with_capacity(packets),
        }
    }

    /// Adds a destination cache. A result stays valid as long as the tables are the same.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cache = DestinationCache::new();
        self
    }

    /// Returns the address range of the cache's memory.
    pub fn cache(&self) -> Range<*const u8> {
        self.cache.range()
    }

    /// Looks up packets that came in through `device`. Returns one result for each, in their order, and the means to
    /// look up the inner packets of packets that are decapsulated.
    #[inline(never)]
    pub fn look_up<F: Frames>(
        &mut self,
        tables: &Tables,
        device: u16,
        io: &F,
        frames: &mut [F::Frame],
    ) -> (&[LookUpResult], InnerLookUps<'_>) {
        self.found.clear();
        self.found.resize(frames.len(), LookUpResult::NOTHING);
        if let Some((port, vrf)) = tables.came_in(device) {
            let mut bypass = self.bypass.get(usize::from(device) % DEVICES).copied().unwrap_or_default();
            let asks = bypass.asks(tables.epoch);
            let (v6, v4) = FamilyTable::both(tables, port.table, vrf, asks);
            let mut done = 0;
            while done < frames.len() {
                done += self.look_up_family::<V6, F>((tables, &port), &v6, io, frames, done);
                done += self.look_up_family::<V4, F>((tables, &port), &v4, io, frames, done);
            }
            if asks {
                bypass.learn(frames.len(), self.v6.len() + self.v4.len());
            }
            if let Some(known) = self.bypass.get_mut(usize::from(device) % DEVICES) {
                *known = bypass;
            }
            v6.search(&mut self.v6, &mut self.found, self.cache.entries());
            v4.search(&mut self.v4, &mut self.found, self.cache.entries());
            if port.guards_sids {
                self.found.iter_mut().filter(|found| found.is_sid()).for_each(|found| *found = LookUpResult::NOTHING);
            }
        }
        (&self.found, InnerLookUps { kept: &mut self.inside, cache: self.cache.entries(), is_given_up: false })
    }

    /// Looks up the packets from `first` up to the next one of the other family, and collects those that have to be
    /// searched for. Returns their number.
    #[inline(never)]
    fn look_up_family<H: Header, F: Frames>(
        &mut self,
        (tables, port): (&Tables, &PlainPort<'_>),
        family: &FamilyTable<'_>,
        io: &F,
        frames: &mut [F::Frame],
        first: usize,
    ) -> usize {
        let frames = frames.get_mut(first..).unwrap_or_default();
        let found = self.found.get_mut(first..).unwrap_or_default();
        let cache = if family.asks { self.cache.entries() } else { Entries::none() };
        let searches = if H::ETHER_TYPE == IPV6 { &mut self.v6 } else { &mut self.v4 };
        for (at, (frame, found)) in frames.iter_mut().zip(found).enumerate() {
            let packet = io.packet(frame);
            let Some(head) = port.admits(&packet) else { continue };
            let ether_type = ether_type(head);
            if ether_type != H::ETHER_TYPE {
                if ether_type == IPV6 || ether_type == IPV4 {
                    return at;
                }
                continue;
            }
            let Some(header) = H::read_plain(tables, port, head, packet.total_len()) else { continue };
            match family.look_up_at_once(cache, &header) {
                AtOnce::Hit(result) => *found = result,
                AtOnce::Nowhere => {}
                AtOnce::Miss => searches.push(Search::new(header.destination(), first + at)),
            }
        }
        frames.len()
    }
}

/// A header that look-ups read.
pub(super) trait Header: Sized {
    const ETHER_TYPE: u16;

    /// Reads the header, if it is plain but for its destination, which the caller still has to check.
    fn read_plain(tables: &Tables, port: &PlainPort<'_>, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self>;

    /// Returns the destination as prefix tables have it.
    fn destination(&self) -> u128;

    /// Returns true if the destination is of global scope.
    fn has_plain_destination(&self) -> bool;
}

impl V6 {
    /// Returns true if a packet from outside the SR domain is plain: its destination is outside the SID space, its
    /// source is not an address of this node, and it has no header that may list segments.
    fn is_plain_from_outside(&self, tables: &Tables, vrf: VrfIndex, source: u128) -> bool {
        !matches!(self.next_header(), protocol::ROUTING | protocol::FRAGMENT | protocol::AUTHENTICATION)
            && !tables.sid_space.contains(self.destination())
            && !tables.own_sources.contains(vrf, true, source)
    }
}

impl Header for V6 {
    const ETHER_TYPE: u16 = IPV6;

    #[inline(always)]
    fn read_plain(tables: &Tables, port: &PlainPort<'_>, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self> {
        let header = Self::read(head, eth::LEN);
        if header.len() + eth::LEN != len || !header.is_plain_but_destination() {
            return None;
        }
        let source = || source_v6(head, eth::LEN);
        let is_admitted = (!port.guards_sids || header.is_plain_from_outside(tables, port.table, source()))
            && (!port.checks_sources || port.admits_v6(source()));
        is_admitted.then_some(header)
    }

    #[inline(always)]
    fn destination(&self) -> u128 {
        self.destination()
    }

    #[inline(always)]
    fn has_plain_destination(&self) -> bool {
        self.has_plain_destination()
    }
}

impl Header for V4 {
    const ETHER_TYPE: u16 = IPV4;

    #[inline(always)]
    fn read_plain(tables: &Tables, port: &PlainPort<'_>, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self> {
        let header = Self::read(head, eth::LEN);
        if header.len() + eth::LEN != len || !header.is_plain_but_destination() {
            return None;
        }
        let is_admitted = (!port.guards_sids || !tables.own_sources.contains(port.table, false, header.source()))
            && (!port.checks_sources || port.admits_v4(header.source()));
        is_admitted.then_some(header)
    }

    #[inline(always)]
    fn destination(&self) -> u128 {
        self.destination()
    }

    #[inline(always)]
    fn has_plain_destination(&self) -> bool {
        self.has_plain_destination()
    }
}

/// The prefixes of one family in a VRF.
pub(super) struct FamilyTable<'t> {
    lpm: &'t Lpm,
    /// Upper 32 bits of the block that the index of the LPM answers for; most nodes have one block only. A value of
    /// more than 32 bits means that there is none.
    block: u64,
    paths: &'t [PathRow],
    tag: Tag,
    /// Whether the cache is read for this burst.
    asks: bool,
}

/// The answer about a destination without a search.
pub(super) enum AtOnce {
    Hit(LookUpResult),
    /// The destination has no route, or is not plain.
    Nowhere,
    /// The destination has to be searched for.
    Miss,
}

impl<'t> FamilyTable<'t> {
    /// Returns the IPv6 and the IPv4 prefixes of a VRF.
    #[inline]
    pub(super) fn both(tables: &'t Tables, vrf: VrfIndex, of: &'t Vrf, asks: bool) -> (Self, Self) {
        let epoch = tables.epoch;
        (Self::new(&of.v6, tables, Tag::v6(epoch, vrf), asks), Self::new(&of.v4, tables, Tag::v4(epoch, vrf), asks))
    }

    fn new(lpm: &'t Lpm, tables: &'t Tables, tag: Tag, asks: bool) -> Self {
        let block = lpm.first_block().map_or(u64::MAX, u64::from);
        Self { lpm, block, paths: &tables.fast.path_by_steer, tag, asks }
    }

    /// Reads the index of the block or the cache. A destination in the cache is plain.
    #[inline(always)]
    pub(super) fn look_up_at_once(&self, cache: Entries<'_>, header: &impl Header) -> AtOnce {
        let address = header.destination();
        if (address >> 96) as u64 == self.block {
            return match self.lpm.look_up_in_first_block(address).filter(|_| header.has_plain_destination()) {
                Some(value) => AtOnce::Hit(LookUpResult(value | self.tag.mark())),
                None => AtOnce::Nowhere,
            };
        }
        if let Some(result) = cache.get(self.tag, address).or_else(|| self.look_up_second(cache, address)) {
            self.ask_for_path(result);
            return AtOnce::Hit(result);
        }
        if header.has_plain_destination() { AtOnce::Miss } else { AtOnce::Nowhere }
    }

    /// Reads the second entry of the cache.
    #[inline(always)]
    fn look_up_second(&self, cache: Entries<'_>, address: u128) -> Option<LookUpResult> {
        if self.asks { cache.get_second(&self.tag, address) } else { None }
    }

    /// Searches for the destinations that neither an index nor the cache has answered.
    pub(super) fn search(&self, searches: &mut Vec<Search>, found: &mut [LookUpResult], cache: Entries<'_>) {
        if !searches.is_empty() {
            self.search_all(searches, found, cache);
        }
    }

    #[inline(never)]
    fn search_all(&self, searches: &mut Vec<Search>, found: &mut [LookUpResult], cache: Entries<'_>) {
        self.lpm.look_up_all(searches, |search, value| {
            let Some(value) = value else { return };
            let result = LookUpResult(value | self.tag.mark());
            self.ask_for_path(result);
            if self.asks {
                cache.put(self.tag, search.address(), result);
            }
            if let Some(found) = found.get_mut(search.id()) {
                *found = result;
            }
        });
    }

    /// Prefetches the path, so that the cache lines of all packets are fetched at the same time, instead of one by
    /// one when the packets are written. If the result is not a steered prefix, another line or none is fetched: a
    /// test would take longer.
    #[inline(always)]
    fn ask_for_path(&self, result: LookUpResult) {
        prefetch_index(self.paths, result.index() as usize);
    }
}

impl Tables {
    /// Returns the port of a device and its VRF, which the first look-up needs.
    #[inline]
    fn came_in(&self, device: u16) -> Option<(PlainPort<'_>, &Vrf)> {
        let port = self.fast.port(device)?;
        Some((port, self.vrfs.get(usize::from(port.table))?))
    }
}

impl PlainPort<'_> {
    /// Returns true if the port accepts an IPv6 source (RFC 2827). It is not inlined, because it would take registers
    /// of a loop that mostly does not call it.
    #[inline(never)]
    fn admits_v6(&self, source: u128) -> bool {
        let [v6, _] = self.sources;
        v6.contains(source)
    }

    /// Returns true if the port accepts an IPv4 source, which stands in the upper 32 bits.
    #[inline(never)]
    fn admits_v4(&self, source: u128) -> bool {
        let [_, v4] = self.sources;
        v4.contains(source)
    }

    /// Returns the first bytes of a packet, if it is addressed to the port and not too long.
    #[inline(always)]
    fn admits<'p>(&self, packet: &'p Packet<'_>) -> Option<&'p [u8; eth::MIN_FRAME]> {
        let head: &[u8; eth::MIN_FRAME] = packet.head()?;
        (word(head, 0) >> 16 == self.mac && packet.total_len() <= self.longest).then_some(head)
    }
}

/// The two Ethernet types in network byte order.
const IPV6: u16 = eth::IPV6.to_be();
const IPV4: u16 = eth::IPV4.to_be();

/// Returns the Ethernet type of a frame, in network byte order.
#[inline(always)]
const fn ether_type(head: &[u8; eth::MIN_FRAME]) -> u16 {
    u16::from_ne_bytes([head[12], head[13]])
}
