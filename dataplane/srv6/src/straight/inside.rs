//! The second look-up of packets that are decapsulated: of those inside, in the VRF of the SID.

use srv6d_wire::{Packet, eth, ipv6, protocol};

use super::destination_cache::{Places, Trust};
use super::headers::{V4, V6};
use super::look_ups::{Cached, Family, Found, Header, Looked, Renewed};
use super::write::{NESTED_V4, NESTED_V6};
use super::{Decapsulate, Frames, HEAD};
use crate::lpm::Search;
use crate::tables::Tables;

/// What is kept from burst to burst, so that nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Kept {
    v6: Vec<Search>,
    v4: Vec<Search>,
    found: Vec<Found>,
    trust: Trust,
    /// Whether the cache is asked, until it is judged again.
    asks: bool,
    /// Since it was judged: how many packets there were, and those of them that were searched for.
    packets: usize,
    searched: usize,
}

impl Kept {
    /// Packets after which the cache is judged: those with one SID may be few at a time.
    const ENOUGH: usize = 64;

    pub(super) fn with_capacity(packets: usize) -> Self {
        let searches = || Vec::with_capacity(packets);
        Self { v6: searches(), v4: searches(), found: Vec::with_capacity(packets), ..Self::default() }
    }

    /// Whether to ask the cache about the next packets.
    fn asks(&mut self, tables: &Tables) -> bool {
        if self.packets >= Self::ENOUGH || !self.asks {
            if self.asks {
                self.trust.learn(self.packets, self.searched);
            }
            self.asks = self.trust.asks(tables.changes.since());
            (self.packets, self.searched) = (0, 0);
        }
        self.asks
    }
}

/// Looks up what is inside of packets that are decapsulated.
pub struct Inside<'l> {
    pub(super) kept: &'l mut Kept,
    pub(super) cache: Places<'l>,
    /// A packet of this burst was not plain, and what was found for those behind it is lost. They are looked up each by
    /// itself: together again and again, behind every such packet, would be a square of look-ups.
    pub(super) is_given_up: bool,
}

impl Inside<'_> {
    /// Where the packets inside of these, which are for one SID, are to go: one for each, in their order.
    pub(super) fn find<F: Frames>(
        &mut self,
        tables: &Tables,
        sid: &Decapsulate,
        io: &F,
        frames: &mut [F::Frame],
    ) -> &[Found] {
        self.kept.found.clear();
        self.kept.found.resize(frames.len(), Found::NOTHING);
        let Some(vrf) = tables.vrfs.get(usize::from(sid.vrf)) else { return &self.kept.found };
        let asks = self.kept.asks(tables);
        let cache = if asks { self.cache } else { Places::none() };
        let (v6, v4) = Family::both(tables, sid.vrf, vrf, Cached { asks, renews: false, is_aside: false });
        let Kept { v6: to_v6, v4: to_v4, found, packets, searched, .. } = &mut *self.kept;
        let mut done = 0;
        while done < frames.len() {
            done += Row { sid, family: &v6, cache, searches: to_v6 }.look_up::<V6, F>(io, frames, found, done);
            done += Row { sid, family: &v4, cache, searches: to_v4 }.look_up::<V4, F>(io, frames, found, done);
        }
        *packets += frames.len();
        *searched += to_v6.len() + to_v4.len();
        v6.search(to_v6, found, cache);
        v4.search(to_v4, found, cache);
        found
    }
}

/// Packets of one family one behind the other.
struct Row<'r> {
    sid: &'r Decapsulate,
    family: &'r Family<'r>,
    cache: Places<'r>,
    searches: &'r mut Vec<Search>,
}

impl Row<'_> {
    /// All behind `first` that have no packet of the other family inside. How many it were.
    #[inline(never)]
    fn look_up<H: Inner, F: Frames>(self, io: &F, frames: &mut [F::Frame], found: &mut [Found], first: usize) -> usize {
        let frames = frames.get_mut(first..).unwrap_or_default();
        let found = found.get_mut(first..).unwrap_or_default();
        for (at, (frame, found)) in frames.iter_mut().zip(found).enumerate() {
            let packet = io.packet(frame);
            let Some(outer) = outer(&packet) else { continue };
            if outer.next_header() == H::OTHER {
                return at;
            }
            let Some(header) = H::read_inside(self.sid, outer, &packet) else { continue };
            match self.family.look_up::<false>(self.cache, &header, &mut Renewed::default()) {
                Looked::At(led_to) => *found = led_to,
                Looked::AtNothing => {}
                Looked::Elsewhere => self.searches.push(Search::new(header.address(), first + at)),
            }
        }
        frames.len()
    }
}

#[inline(always)]
fn outer(packet: &Packet<'_>) -> Option<V6> {
    Some(V6::read(packet.head::<HEAD>()?, eth::LEN))
}

/// A header that stands behind an outer one.
trait Inner: Header {
    /// Protocol of the other family.
    const OTHER: u8;

    /// It is plain but for its destination, and so is what is around it.
    fn read_inside(sid: &Decapsulate, outer: V6, packet: &Packet<'_>) -> Option<Self>;
}

impl Inner for V6 {
    const OTHER: u8 = protocol::IPV4;

    #[inline(always)]
    fn read_inside(sid: &Decapsulate, outer: V6, packet: &Packet<'_>) -> Option<Self> {
        let inner = Self::read(packet.head::<NESTED_V6>()?, HEAD);
        let is_its_own = sid.v6 && outer.next_header() == protocol::IPV6 && sid.takes(outer);
        (is_its_own && is_all(outer, inner.class(), inner.len()) && inner.is_plain_from()).then_some(inner)
    }
}

impl Inner for V4 {
    const OTHER: u8 = protocol::IPV6;

    #[inline(always)]
    fn read_inside(sid: &Decapsulate, outer: V6, packet: &Packet<'_>) -> Option<Self> {
        let inner = Self::read(packet.head::<NESTED_V4>()?, HEAD);
        let is_its_own = sid.v4 && outer.next_header() == protocol::IPV4 && sid.takes(outer);
        (is_its_own && is_all(outer, inner.class(), inner.len()) && inner.is_plain_from()).then_some(inner)
    }
}

impl Decapsulate {
    /// For one packet.
    #[inline(always)]
    pub(super) fn look_up(&self, tables: &Tables, packet: &Packet<'_>) -> Option<Found> {
        let outer = outer(packet)?;
        if outer.next_header() == protocol::IPV6 {
            let header = V6::read_inside(self, outer, packet).filter(V6::is_plain_to)?;
            tables.find_v6(self.vrf, header.address()).map(Found::from_bits)
        } else {
            let header = V4::read_inside(self, outer, packet).filter(V4::is_plain_to)?;
            tables.find_v4(self.vrf, header.destination()).map(|value| Found::from_bits(value | Found::IS_V4))
        }
    }

    /// Nothing stands in the bits behind the SID that have to be zero.
    #[inline(always)]
    fn takes(&self, outer: V6) -> bool {
        let [high, low] = outer.destination;
        high & self.argument[0] | low & self.argument[1] == 0
    }
}

/// Whether nothing stands behind an inner packet of this class and length, and its ECN stays.
#[inline(always)]
fn is_all(outer: V6, inner: u8, len: usize) -> bool {
    // An outer ECN of Not-ECT, or the inner one: the inner one stays (RFC 6040 section 4.2).
    let outer_ecn = outer.class() & 3;
    let ecn_stays = outer_ecn == 0 || outer_ecn == inner & 3;
    ecn_stays && len + ipv6::LEN == outer.len() && len + eth::LEN >= eth::MIN_FRAME
}
