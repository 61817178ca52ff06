//! The second look-up of packets that are decapsulated: the inner packet is looked up in the VRF of the SID.

use srv6d_fib::{DECAPSULATES_V4, DECAPSULATES_V6};
use srv6d_wire::{Packet, eth, ipv6, protocol};

use super::destination_cache::{Bypass, Entries};
use super::headers::{V4, V6};
use super::look_ups::{AtOnce, FamilyTable, Header, LookUpResult};
use super::write::{NESTED_V4, NESTED_V6};
use super::{Decapsulate, Frames, HEAD};
use crate::lpm::Search;
use crate::tables::Tables;

/// Buffers and counts that are kept from burst to burst, so that nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct InnerScratch {
    v6: Vec<Search>,
    v4: Vec<Search>,
    found: Vec<LookUpResult>,
    bypass: Bypass,
    /// Whether the cache is read. It stays so until the next decision.
    asks: bool,
    /// Number of packets since the last decision, and number of those packets that needed a search.
    packets: usize,
    searched: usize,
}

impl InnerScratch {
    /// Number of packets after which it is decided whether the cache is worth reading. It spans several bursts, because
    /// few packets of a burst may have one SID.
    const ENOUGH: usize = 64;

    pub(super) fn with_capacity(packets: usize) -> Self {
        let searches = || Vec::with_capacity(packets);
        Self { v6: searches(), v4: searches(), found: Vec::with_capacity(packets), ..Self::default() }
    }

    /// Returns true if the cache is to be read for the next packets.
    fn asks(&mut self, tables: &Tables) -> bool {
        if self.packets >= Self::ENOUGH || !self.asks {
            if self.asks {
                self.bypass.learn(self.packets, self.searched);
            }
            self.asks = self.bypass.asks(tables.epoch);
            (self.packets, self.searched) = (0, 0);
        }
        self.asks
    }
}

/// Looks up the inner packets of packets that are decapsulated.
pub struct InnerLookUps<'l> {
    pub(super) kept: &'l mut InnerScratch,
    pub(super) cache: Entries<'l>,
    /// Whether a packet of this burst was not plain. The remaining packets of the burst are then looked up one by one.
    /// Looking them up together again behind each such packet would take quadratic time.
    pub(super) is_given_up: bool,
}

impl InnerLookUps<'_> {
    /// Looks up the inner packets of frames that are addressed to one SID. Returns one result for each, in their
    /// order.
    pub(super) fn look_up<F: Frames>(
        &mut self,
        tables: &Tables,
        sid: Decapsulate<'_>,
        io: &F,
        frames: &mut [F::Frame],
    ) -> &[LookUpResult] {
        self.kept.found.clear();
        self.kept.found.resize(frames.len(), LookUpResult::NOTHING);
        let Some(vrf) = tables.vrfs.get(usize::from(sid.0.table)) else { return &self.kept.found };
        let asks = self.kept.asks(tables);
        let cache = if asks { self.cache } else { Entries::none() };
        let (v6, v4) = FamilyTable::both(tables, sid.0.table, vrf, asks);
        let InnerScratch { v6: to_v6, v4: to_v4, found, packets, searched, .. } = &mut *self.kept;
        let mut done = 0;
        while done < frames.len() {
            done +=
                InnerRun { sid, family: &v6, cache, searches: to_v6 }.look_up_family::<V6, F>(io, frames, found, done);
            done +=
                InnerRun { sid, family: &v4, cache, searches: to_v4 }.look_up_family::<V4, F>(io, frames, found, done);
        }
        *packets += frames.len();
        *searched += to_v6.len() + to_v4.len();
        v6.search(to_v6, found, cache);
        v4.search(to_v4, found, cache);
        found
    }
}

/// Consecutive packets whose inner packets have one family.
struct InnerRun<'r> {
    sid: Decapsulate<'r>,
    family: &'r FamilyTable<'r>,
    cache: Entries<'r>,
    searches: &'r mut Vec<Search>,
}

impl InnerRun<'_> {
    /// Looks up the packets from `first` up to the next inner packet of the other family. Returns their number.
    #[inline(never)]
    fn look_up_family<H: Inner, F: Frames>(
        self,
        io: &F,
        frames: &mut [F::Frame],
        found: &mut [LookUpResult],
        first: usize,
    ) -> usize {
        let frames = frames.get_mut(first..).unwrap_or_default();
        let found = found.get_mut(first..).unwrap_or_default();
        for (at, (frame, found)) in frames.iter_mut().zip(found).enumerate() {
            let packet = io.packet(frame);
            let Some(outer) = outer(&packet) else { continue };
            if outer.next_header() == H::OTHER {
                return at;
            }
            let Some(header) = H::read_inside(self.sid, outer, &packet) else { continue };
            match self.family.look_up_at_once(self.cache, &header) {
                AtOnce::Hit(result) => *found = result,
                AtOnce::Nowhere => {}
                AtOnce::Miss => self.searches.push(Search::new(header.destination(), first + at)),
            }
        }
        frames.len()
    }
}

#[inline(always)]
fn outer(packet: &Packet<'_>) -> Option<V6> {
    Some(V6::read(packet.head::<HEAD>()?, eth::LEN))
}

/// A header that stands behind an outer header.
trait Inner: Header {
    /// Protocol number of the other family.
    const OTHER: u8;

    /// Reads the inner header, if it is plain but for its destination and the outer header is plain too.
    fn read_inside(sid: Decapsulate<'_>, outer: V6, packet: &Packet<'_>) -> Option<Self>;
}

impl Inner for V6 {
    const OTHER: u8 = protocol::IPV4;

    #[inline(always)]
    fn read_inside(sid: Decapsulate<'_>, outer: V6, packet: &Packet<'_>) -> Option<Self> {
        let inner = Self::read(packet.head::<NESTED_V6>()?, HEAD);
        let is_its_own =
            sid.0.flags & DECAPSULATES_V6 != 0 && outer.next_header() == protocol::IPV6 && sid.takes(outer);
        (is_its_own && is_all(outer, inner.class(), inner.len()) && inner.is_plain_but_destination()).then_some(inner)
    }
}

impl Inner for V4 {
    const OTHER: u8 = protocol::IPV6;

    #[inline(always)]
    fn read_inside(sid: Decapsulate<'_>, outer: V6, packet: &Packet<'_>) -> Option<Self> {
        let inner = Self::read(packet.head::<NESTED_V4>()?, HEAD);
        let is_its_own =
            sid.0.flags & DECAPSULATES_V4 != 0 && outer.next_header() == protocol::IPV4 && sid.takes(outer);
        (is_its_own && is_all(outer, inner.class(), inner.len()) && inner.is_plain_but_destination()).then_some(inner)
    }
}

impl Decapsulate<'_> {
    /// Looks up the inner packet of one packet.
    #[inline(always)]
    pub(super) fn look_up_one(self, tables: &Tables, packet: &Packet<'_>) -> Option<LookUpResult> {
        let outer = outer(packet)?;
        if outer.next_header() == protocol::IPV6 {
            let header = V6::read_inside(self, outer, packet).filter(V6::has_plain_destination)?;
            tables.look_up_v6(self.0.table, header.destination()).map(LookUpResult::from_bits)
        } else {
            let header = V4::read_inside(self, outer, packet).filter(V4::has_plain_destination)?;
            tables
                .look_up_v4(self.0.table, header.destination())
                .map(|value| LookUpResult::from_bits(value | LookUpResult::IS_V4))
        }
    }

    /// Returns true if the bits behind the SID that have to be zero are zero.
    #[inline(always)]
    fn takes(self, outer: V6) -> bool {
        let [high, low] = outer.destination;
        high & self.0.argument[0] | low & self.0.argument[1] == 0
    }
}

/// Returns true if the inner packet, of this class and length, fills the outer one, and its ECN field stays as it is.
#[inline(always)]
fn is_all(outer: V6, inner: u8, len: usize) -> bool {
    // The inner ECN field stays if the outer one is Not-ECT or equal to it (RFC 6040 section 4.2).
    let outer_ecn = outer.class() & 3;
    let ecn_stays = outer_ecn == 0 || outer_ecn == inner & 3;
    ecn_stays && len + ipv6::LEN == outer.len() && len + eth::LEN >= eth::MIN_FRAME
}
