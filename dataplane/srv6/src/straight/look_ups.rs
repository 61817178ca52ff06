//! The first look-up of plain packets: whether they are plain so far, and where their destination leads.

use std::ops::Range;

use prefetch_index::prefetch_index;
use srv6d_wire::{Packet, eth, protocol};

use super::destination_cache::{DestinationCache, Of, Places, Trust, Valid};
use super::headers::{V4, V6, source_v6, word};
use super::inside::{Inside, Kept};
use super::{Frames, PlainPath, PlainPort};
use crate::changes::Doubt;
use crate::lpm::{Lpm, Search, Value};
use crate::tables::{Edition, Tables, Target, Vrf, VrfIndex};

/// What a look-up of a plain packet led to. A packet that is not plain has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(Value);

impl Found {
    /// Left to the walk.
    pub const NOTHING: Self = Self(Value::MAX);
    /// Beside a value, which is shorter.
    pub(super) const IS_V4: u32 = 1 << 31;

    /// Where to, as [`Target::decode`](crate::tables::Target::decode) takes it.
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

    /// To a SID of this node.
    #[inline]
    fn is_sid(self) -> bool {
        self.value().is_some_and(|value| matches!(Target::decode(value), Target::Sid(_)))
    }

    /// For one packet, which came in through `device`.
    pub(crate) fn of(tables: &Tables, device: u16, packet: &Packet<'_>) -> Self {
        Self::of_plain(tables, device, packet).unwrap_or(Self::NOTHING)
    }

    fn of_plain(tables: &Tables, device: u16, packet: &Packet<'_>) -> Option<Self> {
        let (port, vrf) = tables.came_in(device)?;
        let (head, len) = (port.admits(packet)?, packet.total_len());
        match ether_type(head) {
            IPV6 => {
                let header = V6::read_plain(tables, port, head, len).filter(V6::is_plain_to)?;
                vrf.v6.lookup(header.address()).map(Self).filter(|found| !port.guards_sids || !found.is_sid())
            }
            IPV4 => {
                let header = V4::read_plain(tables, port, head, len).filter(V4::is_plain_to)?;
                vrf.v4.lookup(header.destination()).map(|value| Self(value | Self::IS_V4))
            }
            _ => None,
        }
    }
}

/// How the cache takes part.
#[derive(Clone, Copy)]
pub(super) struct Cached {
    /// It is asked at all.
    pub(super) asks: bool,
    /// What it knows is renewed.
    pub(super) renews: bool,
    /// About tables that are to come.
    pub(super) is_aside: bool,
}

/// How many devices are told apart by what is worth remembering.
const DEVICES: usize = 16;

/// The first look-ups of a burst: all together.
#[derive(Debug)]
pub struct LookUps {
    v6: Vec<Search>,
    v4: Vec<Search>,
    found: Vec<Found>,
    cache: DestinationCache,
    /// By device, some of which share one.
    service: [Service; DEVICES],
    /// In this burst.
    renewed: Renewed,
    inside: Kept,
}

/// How what is remembered serves what comes in through a port.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    trust: Trust,
    renewal: Renewal,
}

/// Whether much of it is not of these tables yet.
#[derive(Clone, Copy, Debug, Default)]
struct Renewal {
    edition: Edition,
    is_done: bool,
}

/// Packets of a burst whose destination was remembered, and those of them for which that was not of these tables yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renewed {
    remembered: usize,
    older: usize,
}

impl Renewal {
    /// For the next burst.
    #[inline]
    fn is_due(&mut self, edition: Edition) -> bool {
        if self.edition != edition {
            *self = Self { edition, ..Self::default() };
        }
        !self.is_done
    }

    /// After a burst in which it was due, of so many packets, and so many searched for. A single one that has nothing to do
    /// with what is remembered tells nothing of others.
    fn note(&mut self, packets: usize, searched: usize, Renewed { remembered, older }: Renewed) {
        let asked_nothing = packets > 1 && searched == 0;
        self.is_done = older == 0 && (remembered > 0 || asked_nothing);
    }
}

impl LookUps {
    /// For so many packets, without further allocations.
    pub fn with_capacity(packets: usize) -> Self {
        Self {
            v6: Vec::with_capacity(packets),
            v4: Vec::with_capacity(packets),
            found: Vec::with_capacity(packets),
            cache: DestinationCache::default(),
            service: [Service::default(); DEVICES],
            renewed: Renewed::default(),
            inside: Kept::with_capacity(packets),
        }
    }

    /// The same with a destination cache: what was found is remembered as long as the tables are the same.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cache = DestinationCache::new();
        self
    }

    /// Where the cache is.
    pub fn cache(&self) -> Range<*const u8> {
        self.cache.range()
    }

    /// Where these packets, which came in through `device`, are to go: one for each, in their order. And what the packets
    /// inside of those that are decapsulated are looked up with.
    #[inline(never)]
    pub fn find<F: Frames>(
        &mut self,
        tables: &Tables,
        device: u16,
        io: &F,
        frames: &mut [F::Frame],
    ) -> (&[Found], Inside<'_>) {
        let mut service = self.service_of(device);
        let asks = service.trust.asks(tables.changes.since());
        let renews = service.renewal.is_due(tables.edition) && asks;
        let searched = self.find_all(tables, device, Cached { asks, renews, is_aside: false }, io, frames);
        if asks {
            service.trust.learn(frames.len(), searched);
        }
        if renews {
            service.renewal.note(frames.len(), searched, std::mem::take(&mut self.renewed));
        }
        if let Some(known) = self.service.get_mut(usize::from(device) % DEVICES) {
            *known = service;
        }
        (&self.found, Inside { kept: &mut self.inside, cache: self.cache.view(), is_given_up: false })
    }

    /// The same in tables that are to come, so that their destinations are remembered by then. What is remembered of those
    /// in force stays.
    #[inline(never)]
    pub fn look_ahead<F: Frames>(&mut self, tables: &Tables, device: u16, io: &F, frames: &mut [F::Frame]) {
        let asks = self.service_of(device).trust.is_asked();
        self.find_all(tables, device, Cached { asks, renews: false, is_aside: true }, io, frames);
    }

    fn service_of(&self, device: u16) -> Service {
        self.service.get(usize::from(device) % DEVICES).copied().unwrap_or_default()
    }

    /// How many had to be searched for.
    #[inline(always)]
    fn find_all<F: Frames>(
        &mut self,
        tables: &Tables,
        device: u16,
        cached: Cached,
        io: &F,
        frames: &mut [F::Frame],
    ) -> usize {
        self.found.clear();
        self.found.resize(frames.len(), Found::NOTHING);
        let Some((port, vrf)) = tables.came_in(device) else { return 0 };
        let (v6, v4) = Family::both(tables, port.vrf, vrf, cached);
        if cached.renews {
            self.look_up_all::<true, F>((tables, port), (&v6, &v4), io, frames);
        } else {
            self.look_up_all::<false, F>((tables, port), (&v6, &v4), io, frames);
        }
        let searched = self.v6.len() + self.v4.len();
        v6.search(&mut self.v6, &mut self.found, self.cache.view());
        v4.search(&mut self.v4, &mut self.found, self.cache.view());
        if port.guards_sids {
            self.found.iter_mut().filter(|found| found.is_sid()).for_each(|found| *found = Found::NOTHING);
        }
        searched
    }

    /// Everything but the searches.
    #[inline(always)]
    fn look_up_all<const RENEWS: bool, F: Frames>(
        &mut self,
        came_in: (&Tables, &PlainPort),
        (v6, v4): (&Family<'_>, &Family<'_>),
        io: &F,
        frames: &mut [F::Frame],
    ) {
        let mut done = 0;
        while done < frames.len() {
            done += self.look_up::<V6, RENEWS, F>(came_in, v6, io, frames, done);
            done += self.look_up::<V4, RENEWS, F>(came_in, v4, io, frames, done);
        }
    }

    /// All behind `first` that are not of the other family. How many it were.
    #[inline(never)]
    fn look_up<H: Header, const RENEWS: bool, F: Frames>(
        &mut self,
        (tables, port): (&Tables, &PlainPort),
        family: &Family<'_>,
        io: &F,
        frames: &mut [F::Frame],
        first: usize,
    ) -> usize {
        let frames = frames.get_mut(first..).unwrap_or_default();
        let found = self.found.get_mut(first..).unwrap_or_default();
        let cache = if family.asks { self.cache.view() } else { Places::none() };
        let searches = if H::ETHER_TYPE == IPV6 { &mut self.v6 } else { &mut self.v4 };
        let mut renewed = self.renewed;
        for (at, (frame, found)) in frames.iter_mut().zip(found).enumerate() {
            let packet = io.packet(frame);
            let Some(head) = port.admits(&packet) else { continue };
            let ether_type = ether_type(head);
            if ether_type != H::ETHER_TYPE {
                if ether_type == IPV6 || ether_type == IPV4 {
                    self.renewed = renewed;
                    return at;
                }
                continue;
            }
            let Some(header) = H::read_plain(tables, port, head, packet.total_len()) else { continue };
            match family.look_up::<RENEWS>(cache, &header, &mut renewed) {
                Looked::At(led_to) => *found = led_to,
                Looked::AtNothing => {}
                Looked::Elsewhere => searches.push(Search::new(header.address(), first + at)),
            }
        }
        self.renewed = renewed;
        frames.len()
    }
}

/// A header that look-ups read.
pub(super) trait Header: Sized {
    const ETHER_TYPE: u16;

    /// It is plain but for its destination, which is still to be looked at.
    fn read_plain(tables: &Tables, port: &PlainPort, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self>;

    /// The destination, as prefix tables have it.
    fn address(&self) -> u128;

    /// The destination may go everywhere.
    fn is_plain_to(&self) -> bool;
}

impl V6 {
    /// Sent to no SID space, and without a header that may name segments.
    fn is_plain_from_outside(&self, tables: &Tables) -> bool {
        !matches!(self.next_header(), protocol::ROUTING | protocol::FRAGMENT)
            && !tables.sid_space.contains(self.address())
    }
}

impl Header for V6 {
    const ETHER_TYPE: u16 = IPV6;

    #[inline(always)]
    fn read_plain(tables: &Tables, port: &PlainPort, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self> {
        let header = Self::read(head, eth::LEN);
        if header.len() + eth::LEN != len || !header.is_plain_from() {
            return None;
        }
        let is_admitted = (!port.guards_sids || header.is_plain_from_outside(tables))
            && (!port.checks_sources || port.admits_v6(source_v6(head, eth::LEN)));
        is_admitted.then_some(header)
    }

    #[inline(always)]
    fn address(&self) -> u128 {
        self.address()
    }

    #[inline(always)]
    fn is_plain_to(&self) -> bool {
        self.is_plain_to()
    }
}

impl Header for V4 {
    const ETHER_TYPE: u16 = IPV4;

    #[inline(always)]
    fn read_plain(_: &Tables, port: &PlainPort, head: &[u8; eth::MIN_FRAME], len: usize) -> Option<Self> {
        let header = Self::read(head, eth::LEN);
        let is_plain = header.len() + eth::LEN == len && header.is_plain_from();
        (is_plain && (!port.checks_sources || port.admits_v4(header.source()))).then_some(header)
    }

    #[inline(always)]
    fn address(&self) -> u128 {
        self.destination()
    }

    #[inline(always)]
    fn is_plain_to(&self) -> bool {
        self.is_plain_to()
    }
}

/// The prefixes of one family in a VRF.
pub(super) struct Family<'t> {
    lpm: &'t Lpm,
    /// The upper 32 bits of the block that an index answers for, most nodes have no other one; more than 32 bits: none.
    block: u64,
    steers: &'t [PlainPath],
    valid: Valid<'t>,
    /// The cache is asked about this burst.
    asks: bool,
}

/// What a first look at a destination came to.
pub(super) enum Looked {
    At(Found),
    /// It leads nowhere, or is not plain.
    AtNothing,
    /// It has to be searched.
    Elsewhere,
}

impl<'t> Family<'t> {
    /// IPv6 and IPv4.
    #[inline]
    pub(super) fn both(tables: &'t Tables, vrf: VrfIndex, of: &'t Vrf, cached: Cached) -> (Self, Self) {
        let Cached { asks, is_aside, .. } = cached;
        let v6 = tables.valid(|edition| Of::v6(edition, vrf), tables.changes.of_v6(), is_aside);
        let v4 = tables.valid(|edition| Of::v4(edition, vrf), tables.changes.of_v4(), is_aside);
        (Self::new(&of.v6, tables, v6, asks), Self::new(&of.v4, tables, v4, asks))
    }

    fn new(lpm: &'t Lpm, tables: &'t Tables, valid: Valid<'t>, asks: bool) -> Self {
        let block = lpm.first_block().map_or(u64::MAX, u64::from);
        Self { lpm, block, steers: &tables.straight.steers, valid, asks }
    }

    /// A destination in the cache is plain.
    #[inline(always)]
    pub(super) fn look_up<const RENEWS: bool>(
        &self,
        cache: Places<'_>,
        header: &impl Header,
        renewed: &mut Renewed,
    ) -> Looked {
        let address = header.address();
        if (address >> 96) as u64 == self.block {
            return match self.lpm.lookup(address).filter(|_| header.is_plain_to()) {
                Some(value) => Looked::At(Found(value | self.valid.of.mark())),
                None => Looked::AtNothing,
            };
        }
        let known = if RENEWS { self.renew(cache, address, renewed) } else { cache.get(self.valid.of, address) };
        if let Some(led_to) = known.or_else(|| self.recall(cache, address)) {
            self.ask_for_path(led_to);
            return Looked::At(led_to);
        }
        if header.is_plain_to() { Looked::Elsewhere } else { Looked::AtNothing }
    }

    #[inline(always)]
    fn renew(&self, cache: Places<'_>, address: u128, renewed: &mut Renewed) -> Option<Found> {
        let (led_to, is_older) = cache.renew(&self.valid, address)?;
        renewed.remembered += 1;
        renewed.older += usize::from(is_older);
        Some(led_to)
    }

    #[inline(always)]
    fn recall(&self, cache: Places<'_>, address: u128) -> Option<Found> {
        if self.asks { cache.recall(&self.valid, address) } else { None }
    }

    /// What neither an index nor the cache has answered.
    pub(super) fn search(&self, searches: &mut Vec<Search>, found: &mut [Found], cache: Places<'_>) {
        if !searches.is_empty() {
            self.search_all(searches, found, cache);
        }
    }

    #[inline(never)]
    fn search_all(&self, searches: &mut Vec<Search>, found: &mut [Found], cache: Places<'_>) {
        self.lpm.lookup_all(searches, |search, value| {
            let Some(value) = value else { return };
            let led_to = Found(value | self.valid.of.mark());
            self.ask_for_path(led_to);
            if self.asks {
                cache.put(&self.valid, search.address(), led_to);
            }
            if let Some(found) = found.get_mut(search.id()) {
                *found = led_to;
            }
        });
    }

    /// Its cache line is asked for, so that those of all packets are fetched at the same time: where packets are written,
    /// each waits for its own. Some path or none where it is no steered prefix: to ask what it is would take longer.
    #[inline(always)]
    fn ask_for_path(&self, led_to: Found) {
        prefetch_index(self.steers, led_to.index() as usize);
    }
}

impl Tables {
    /// What there is to know about a port before the first look-up.
    #[inline]
    fn came_in(&self, device: u16) -> Option<(&PlainPort, &Vrf)> {
        let port = self.straight.ports.get(usize::from(device))?;
        Some((port, self.vrfs.get(usize::from(port.vrf))?))
    }

    /// Answers of one family that count for these tables.
    fn valid<'t>(&self, of: impl Fn(Edition) -> Of, doubt: Doubt<'t>, is_aside: bool) -> Valid<'t> {
        let [of, since, before_last] = [self.edition, self.changes.since(), self.changes.before_last()].map(of);
        Valid { of, since, doubt, before_last, is_aside }
    }
}

impl PlainPort {
    /// RFC 2827: the source is one that may send here. Not inlined, as it would take the registers of a loop that mostly
    /// goes without.
    #[inline(never)]
    fn admits_v6(&self, source: u128) -> bool {
        let [v6, _] = &self.sources;
        v6.contains(source)
    }

    /// The same, with the source in the upper 32 bits.
    #[inline(never)]
    fn admits_v4(&self, source: u128) -> bool {
        let [_, v4] = &self.sources;
        v4.contains(source)
    }

    /// What is plain for the port itself: its first bytes.
    #[inline(always)]
    fn admits<'p>(&self, packet: &'p Packet<'_>) -> Option<&'p [u8; eth::MIN_FRAME]> {
        let head: &[u8; eth::MIN_FRAME] = packet.head()?;
        (word(head, 0) >> 16 == self.mac && packet.total_len() <= self.longest).then_some(head)
    }
}

/// As they stand in a frame.
const IPV6: u16 = eth::IPV6.to_be();
const IPV4: u16 = eth::IPV4.to_be();

/// As it stands in the frame.
#[inline(always)]
const fn ether_type(head: &[u8; eth::MIN_FRAME]) -> u16 {
    u16::from_ne_bytes([head[12], head[13]])
}
