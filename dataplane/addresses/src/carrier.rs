//! SIDs, carriers and segment lists.
//!
//! ```text
//! F3216 carrier   | block 32 | uSID 16 | uSID 16 | uSID 16 | uSID 16 | uSID 16 | uSID 16 |   right-padded with zero
//! ```

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ipnet::Ipv6Net;

/// Largest number of segments in a list.
pub const MAX_SEGMENTS: usize = 8;
/// Number of 16-bit uSIDs that fit behind a 32-bit block.
pub const USIDS_PER_CARRIER: usize = 6;

/// The reason why a carrier or segment list was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierError {
    /// The text is not an IPv6 address.
    #[error("{0:?} is not an IPv6 address (a full carrier of six uSIDs has eight groups and no `::`)")]
    NotAnAddress(String),
    /// The address has no uSID behind its block.
    #[error("{0} carries no uSID behind its block")]
    Empty(Ipv6Addr),
    /// A uSID inside is 0. It ends a carrier and would cut this one short.
    #[error("{carrier} has uSID 0 at position {position}, before its last uSID: uSID 0 ends a carrier")]
    ZeroInside {
        /// The carrier.
        carrier: Ipv6Addr,
        /// Position of the zero uSID, from 1.
        position: usize,
    },
    /// The carrier lies outside of its block.
    #[error("{carrier} lies outside of the block {block}")]
    OutsideBlock {
        /// The carrier.
        carrier: Ipv6Addr,
        /// The block.
        block: Ipv6Net,
    },
    /// The list is empty.
    #[error("a path needs at least one segment")]
    NoSegments,
    /// The list has more segments than are supported.
    #[error("{0} segments; at most {MAX_SEGMENTS} are supported")]
    TooManySegments(usize),
    /// The segment is a multicast, unspecified or loopback address.
    #[error("{0} cannot be a segment")]
    NotUnicast(Ipv6Addr),
}

/// A validated carrier of an F3216 block: one to six uSIDs, and no zero uSID inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Carrier(Ipv6Addr);

impl Carrier {
    /// Checks an address as a carrier.
    ///
    /// # Errors
    /// Returns [`CarrierError::Empty`] or [`CarrierError::ZeroInside`].
    pub fn new(address: Ipv6Addr) -> Result<Self, CarrierError> {
        let [_, _, usids @ ..] = address.segments();
        let used = usids.iter().rposition(|&usid| usid != 0).ok_or(CarrierError::Empty(address))?;
        match usids.iter().take(used).position(|&usid| usid == 0) {
            Some(zero) => Err(CarrierError::ZeroInside { carrier: address, position: zero + 1 }),
            None => Ok(Self(address)),
        }
    }

    /// Packs uSIDs behind a block into as many carriers as they need (six in each).
    ///
    /// # Errors
    /// [`CarrierError::ZeroInside`] for a uSID 0, [`CarrierError::NoSegments`] for an empty list.
    pub fn pack(block: [u16; 2], usids: &[u16]) -> Result<Vec<Self>, CarrierError> {
        if usids.is_empty() {
            return Err(CarrierError::NoSegments);
        }
        usids
            .chunks(USIDS_PER_CARRIER)
            .map(|chunk| {
                let mut groups = [0u16; 8];
                let (head, tail) = groups.split_at_mut(2);
                head.copy_from_slice(&block);
                for (slot, &usid) in tail.iter_mut().zip(chunk) {
                    *slot = usid;
                }
                let carrier = Ipv6Addr::from(groups);
                match chunk.iter().position(|&usid| usid == 0) {
                    Some(zero) => Err(CarrierError::ZeroInside { carrier, position: zero + 1 }),
                    None => Self::new(carrier),
                }
            })
            .collect()
    }

    /// Returns the address that goes on the wire.
    pub const fn address(self) -> Ipv6Addr {
        self.0
    }

    /// Returns the uSIDs, first to last.
    pub fn usids(self) -> impl Iterator<Item = u16> {
        let [_, _, usids @ ..] = self.0.segments();
        usids.into_iter().take_while(|&usid| usid != 0)
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Carrier {
    type Err = CarrierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text.parse().map_err(|_| CarrierError::NotAnAddress(text.to_owned()))?)
    }
}

/// A list of 1 to [`MAX_SEGMENTS`] segments, in the order in which they are visited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentList(Vec<Ipv6Addr>);

impl SegmentList {
    /// Checks number and kind of the segments. A segment inside one of `blocks` must be a carrier.
    ///
    /// # Errors
    /// Returns [`CarrierError`].
    pub fn new(segments: Vec<Ipv6Addr>, blocks: &[Ipv6Net]) -> Result<Self, CarrierError> {
        if segments.is_empty() {
            return Err(CarrierError::NoSegments);
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(CarrierError::TooManySegments(segments.len()));
        }
        for &segment in &segments {
            if segment.is_multicast() || segment.is_unspecified() || segment.is_loopback() {
                return Err(CarrierError::NotUnicast(segment));
            }
            if blocks.iter().any(|block| block.prefix_len() == 32 && block.contains(&segment)) {
                Carrier::new(segment)?;
            }
        }
        Ok(Self(segments))
    }

    /// Returns the segments, first to last.
    pub fn addresses(&self) -> &[Ipv6Addr] {
        &self.0
    }

    /// Returns the first segment, which is the outer destination address.
    pub fn first(&self) -> Ipv6Addr {
        self.0.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED)
    }
}
