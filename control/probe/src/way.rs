//! The destinations that a packet goes through while nodes use up its SIDs.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

/// Largest number of segments, each of which may be a carrier.
pub const MAX_SEGMENTS: usize = 8;

/// Why a list of SIDs is no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WayError {
    /// There is none.
    #[error("a way needs at least one SID")]
    Empty,
    /// There are too many.
    #[error("{0} SIDs; at most {MAX_SEGMENTS} are supported")]
    TooMany(usize),
    /// It cannot be the destination of a probe.
    #[error("{0} cannot be a SID")]
    NotUnicast(Ipv6Addr),
    /// The block leaves no room for a uSID.
    #[error("a block of {block} bits and uSIDs of {usid} bits do not fit into an address")]
    Lengths {
        /// Length of the block in bits.
        block: u8,
        /// Length of a uSID in bits.
        usid: u8,
    },
}

/// What a packet's header has in front of one SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Segments left in the SRH; 0 without one.
    pub segments_left: u8,
}

/// A list of carriers and SIDs, with every state that a packet goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    segments: Vec<Ipv6Addr>,
    states: Vec<State>,
    block: Ipv6Net,
    usid_bits: u8,
}

impl Way {
    /// Makes a way. An address of `block` is a carrier of uSIDs of `usid_bits` bits; others are SIDs as a whole. So is an
    /// address with bits behind its first uSID of zero, because no shift leads there.
    ///
    /// # Errors
    /// Returns [`WayError`].
    pub fn new(segments: Vec<Ipv6Addr>, block: Ipv6Net, usid_bits: u8) -> Result<Self, WayError> {
        if segments.is_empty() {
            return Err(WayError::Empty);
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(WayError::TooMany(segments.len()));
        }
        if usid_bits == 0 || u16::from(block.prefix_len()) + u16::from(usid_bits) > 128 {
            return Err(WayError::Lengths { block: block.prefix_len(), usid: usid_bits });
        }
        if let Some(wrong) = segments.iter().find(|sid| sid.is_multicast() || sid.is_unspecified() || sid.is_loopback())
        {
            return Err(WayError::NotUnicast(*wrong));
        }
        let mut way = Self { segments, states: Vec::new(), block, usid_bits };
        for (left, segment) in (0u8..).zip(way.segments.iter().rev()) {
            let destinations = way.shifts(*segment);
            let states = destinations.into_iter().rev().map(|destination| State { destination, segments_left: left });
            way.states.extend(states);
        }
        way.states.reverse();
        Ok(way)
    }

    /// Returns the segments in the order in which they are visited.
    pub fn segments(&self) -> &[Ipv6Addr] {
        &self.segments
    }

    /// Returns the destination that the probe is sent with.
    pub fn first(&self) -> Ipv6Addr {
        self.segments.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED)
    }

    /// Returns the destinations with which a packet may arrive at its last node, which checksums are made for (RFC 9800
    /// section 6.5): with the last uSID alone, or with the two last ones, if the node's last SID has both (uN and uDT in one).
    pub fn ends(&self) -> Vec<Ipv6Addr> {
        let is_last = |state: &&State| state.segments_left == 0;
        self.states.iter().rev().take_while(is_last).take(2).map(|state| state.destination).collect()
    }

    /// Returns how many SIDs there are.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns false: a way has at least one SID.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Returns the state after `used` SIDs, if there is a further one.
    pub fn state(&self, used: usize) -> Option<State> {
        self.states.get(used).copied()
    }

    /// Returns how many SIDs have been used up when a packet has this state, `from` or more. `None`: no shift leads there.
    pub fn used(&self, state: State, from: usize) -> Option<usize> {
        let later = self.states.iter().enumerate().skip(from);
        later.filter(|(_, known)| **known == state).map(|(used, _)| used).next()
    }

    /// Returns the text of the SID behind `used` others: the digits of a uSID, or a whole address.
    pub fn name(&self, used: usize) -> Option<String> {
        let state = self.states.get(used)?;
        if !self.is_carrier(state.destination) {
            return Some(state.destination.to_string());
        }
        let digits = usize::from(self.usid_bits.div_ceil(4));
        Some(format!("{:0digits$x}", self.active(state.destination)))
    }

    /// Returns an address after one shift, or `None` if nothing stands behind its first uSID.
    pub fn shifted(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        let (block, usid) = (u32::from(self.block.prefix_len()), u32::from(self.usid_bits));
        let argument = u128::from(address).checked_shl(block + usid).unwrap_or(0);
        let mask = u128::from(self.block.netmask());
        (argument != 0).then(|| Ipv6Addr::from(u128::from(address) & mask | argument.checked_shr(block).unwrap_or(0)))
    }

    /// Returns the block of the uSIDs.
    pub const fn block(&self) -> Ipv6Net {
        self.block
    }

    /// Returns the length of a uSID in bits.
    pub const fn usid_bits(&self) -> u8 {
        self.usid_bits
    }

    /// Returns the destinations that a segment goes through: itself, and one for each shift.
    fn shifts(&self, segment: Ipv6Addr) -> Vec<Ipv6Addr> {
        if !self.is_carrier(segment) {
            return vec![segment];
        }
        std::iter::successors(Some(segment), |address| self.shifted(*address)).collect()
    }

    /// Returns true if an address of the block is nothing but uSIDs.
    fn is_carrier(&self, address: Ipv6Addr) -> bool {
        if !self.block.contains(&address) {
            return false;
        }
        std::iter::successors(Some(address), |address| self.shifted(*address)).all(|address| self.active(address) != 0)
    }

    /// Returns the first uSID of an address.
    fn active(&self, address: Ipv6Addr) -> u128 {
        let behind = u128::from(address).checked_shl(u32::from(self.block.prefix_len())).unwrap_or(0);
        behind.checked_shr(128 - u32::from(self.usid_bits)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn way(segments: &[&str]) -> Way {
        let segments = segments.iter().map(|segment| segment.parse().unwrap()).collect();
        Way::new(segments, "fcbb::/32".parse().unwrap(), 16).unwrap()
    }

    #[test]
    fn a_carrier_goes_through_its_shifts() {
        let way = way(&["fcbb:0:1004:1001:1006:fe06::"]);
        let names: Vec<String> = (0..9).filter_map(|used| way.name(used)).collect();
        assert_eq!(names, ["1004", "1001", "1006", "fe06"]);
        let state = State { destination: "fcbb:0:1006:fe06::".parse().unwrap(), segments_left: 0 };
        assert_eq!(way.used(state, 0), Some(2));
        assert_eq!(way.used(state, 3), None);
        assert_eq!(way.ends(), ["fcbb:0:fe06::", "fcbb:0:1006:fe06::"].map(|end| end.parse::<Ipv6Addr>().unwrap()));
    }

    #[test]
    fn segments_are_told_apart_by_what_is_left_of_them() {
        let way = way(&["fcbb:0:1:2::", "2001:db8::7", "fcbb:0:1:2::"]);
        let names: Vec<String> = (0..9).filter_map(|used| way.name(used)).collect();
        assert_eq!(names, ["0001", "0002", "2001:db8::7", "0001", "0002"]);
        let again = State { destination: "fcbb:0:2::".parse().unwrap(), segments_left: 0 };
        assert_eq!((way.used(way.state(1).unwrap(), 0), way.used(again, 0)), (Some(1), Some(4)));
        assert_eq!(self::way(&["fcbb:0:1:2::", "2001:db8::7"]).ends().len(), 1);
    }

    #[test]
    fn an_address_that_no_shift_leads_to_is_a_sid_as_a_whole() {
        for address in ["fcbb:0:800:2::2", "fcbb::7", "2001:db8::1"] {
            let way = way(&[address]);
            assert_eq!((way.len(), way.ends()), (1, vec![address.parse().unwrap()]));
        }
        assert_eq!(way(&["fcbb:0:1:2:3:4:5:6"]).len(), 6);
    }

    #[test]
    fn other_lengths_shift_otherwise() {
        let segments = || vec!["2001:db8:11:22:33::".parse().unwrap()];
        let way = Way::new(segments(), "2001:db8::/32".parse().unwrap(), 32).unwrap();
        let names: Vec<String> = (0..9).filter_map(|used| way.name(used)).collect();
        assert_eq!(names, ["00110022", "00330000"]);
        for (block, usid) in [("::/0", 128), ("2001:db8::/120", 8), ("2001:db8:11:22:33::/127", 1)] {
            let way = Way::new(segments(), block.parse().unwrap(), usid).unwrap();
            assert!((1..=128).contains(&way.len()), "{block}: {}", way.len());
        }
        for (block, usid) in [("::/120", 16), ("::/32", 0)] {
            assert!(matches!(Way::new(segments(), block.parse().unwrap(), usid), Err(WayError::Lengths { .. })));
        }
    }
}
