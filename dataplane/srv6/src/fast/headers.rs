//! Plain headers, read as words at fixed offsets.

use srv6d_wire::{ipv6, protocol};

/// Kind of what follows a header.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Behind {
    /// A transport header whose ports are part of the flow.
    Ports,
    /// A packet, or an extension header in front of one.
    Tunnel,
    /// Options (RFC 8200 section 4.2) or `ICMPv6` (neighbour discovery), which the slow path reads.
    LookInto,
    Other,
}

/// Kind of what follows, by next header: one load answers it.
#[allow(clippy::indexing_slicing, reason = "while it is compiled")]
static BEHIND: [Behind; 256] = {
    let mut behind = [Behind::Other; 256];
    behind[protocol::TCP as usize] = Behind::Ports;
    behind[protocol::UDP as usize] = Behind::Ports;
    behind[protocol::SCTP as usize] = Behind::Ports;
    behind[protocol::IPV4 as usize] = Behind::Tunnel;
    behind[protocol::IPV6 as usize] = Behind::Tunnel;
    behind[protocol::ROUTING as usize] = Behind::Tunnel;
    behind[protocol::HOP_BY_HOP as usize] = Behind::LookInto;
    behind[protocol::ICMPV6 as usize] = Behind::LookInto;
    behind[protocol::DEST_OPTIONS as usize] = Behind::LookInto;
    behind
};

/// An IPv6 header, with only the upper half of its source.
#[derive(Clone, Copy)]
pub(super) struct V6 {
    /// The eight bytes in front of the source.
    first: u64,
    source: u64,
    /// Upper and lower half of the destination.
    pub(super) destination: [u64; 2],
}

impl V6 {
    #[inline]
    pub(super) fn read<const N: usize>(frame: &[u8; N], at: usize) -> Self {
        Self {
            first: word(frame, at),
            source: word(frame, at + 8),
            destination: [word(frame, at + ipv6::DESTINATION), word(frame, at + ipv6::DESTINATION + 8)],
        }
    }

    /// Returns the destination as prefix tables have it.
    #[inline]
    pub(super) const fn destination(&self) -> u128 {
        joined(self.destination)
    }

    /// Returns the length of the whole packet, in bytes.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        ipv6::LEN + (self.first >> 16) as u16 as usize
    }

    #[inline]
    pub(super) const fn class(&self) -> u8 {
        (self.first >> 52) as u8
    }

    /// Returns the first word, which has the traffic class where an outer header has it. Its other bits are of no
    /// meaning.
    #[inline]
    pub(super) const fn class_in_place(&self) -> u64 {
        self.first
    }

    #[inline]
    pub(super) const fn next_header(&self) -> u8 {
        (self.first >> 8) as u8
    }

    /// Returns the kind of what follows the header.
    #[inline]
    pub(super) fn behind(&self) -> Behind {
        BEHIND.get(usize::from(self.next_header())).copied().unwrap_or(Behind::Other)
    }

    /// Returns true if the version is 6, the hop limit allows one more hop, the source is of global scope, and nothing
    /// behind the header has to be read.
    #[inline]
    pub(super) fn is_plain_but_destination(&self) -> bool {
        let hop_limit = self.first as u8;
        self.first >> 60 == 6 && hop_limit > 1 && self.behind() != Behind::LookInto && goes_everywhere(self.source)
    }

    /// Returns true if the destination is of global scope.
    #[inline]
    pub(super) const fn has_plain_destination(&self) -> bool {
        goes_everywhere(self.destination[0])
    }
}

/// Returns the source of the IPv6 header at an offset, as prefix tables have it.
#[inline]
pub(super) fn source_v6<const N: usize>(frame: &[u8; N], at: usize) -> u128 {
    joined([word(frame, at + 8), word(frame, at + 16)])
}

/// Joins the upper and the lower half of an address.
#[inline]
pub(super) const fn joined([high, low]: [u64; 2]) -> u128 {
    (high as u128) << 64 | low as u128
}

/// Returns true if an address with this upper half may be forwarded anywhere: it is neither in `::/64` (unspecified,
/// loopback), nor in `fe00::/7` (link-local and multicast).
#[inline]
const fn goes_everywhere(upper: u64) -> bool {
    upper.wrapping_sub(1) < (0xfe << 56) - 1
}

/// An IPv4 header.
#[derive(Clone, Copy)]
pub(super) struct V4 {
    words: [u64; 2],
    destination: u32,
}

impl V4 {
    #[inline]
    pub(super) fn read<const N: usize>(frame: &[u8; N], at: usize) -> Self {
        // The last load repeats four bytes of the source, so that all of it lies inside the header.
        Self { words: [word(frame, at), word(frame, at + 8)], destination: word(frame, at + 12) as u32 }
    }

    /// Returns the source, in the upper 32 bits.
    #[inline]
    pub(super) const fn source(&self) -> u128 {
        (self.words[1] as u32 as u128) << 96
    }

    /// Returns the destination, in the upper 32 bits.
    #[inline]
    pub(super) const fn destination(&self) -> u128 {
        (self.destination as u128) << 96
    }

    /// Returns the length of the whole packet, in bytes.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        (self.words[0] >> 32) as u16 as usize
    }

    #[inline]
    pub(super) const fn class(&self) -> u8 {
        (self.words[0] >> 48) as u8
    }

    /// Returns a word that has the traffic class where an outer IPv6 header has it. Its other bits are of no meaning.
    #[inline]
    pub(super) const fn class_in_place(&self) -> u64 {
        self.words[0] << 4
    }

    /// Returns true if the header has no options and a correct checksum, the TTL allows one more hop, and the source
    /// is of global scope.
    #[inline]
    pub(super) fn is_plain_but_destination(&self) -> bool {
        let [first, second] = self.words;
        // The ones' complement sum of the 16-bit words of a correct header is 0xffff, so the sum of the longer words
        // is a multiple of 65,535 too.
        let sum = added_up(added_up(first, second), u64::from(self.destination));
        first >> 56 == 0x45 && (second >> 56) > 1 && goes_everywhere_v4(second as u32) && sum.is_multiple_of(0xffff)
    }

    /// Returns true if the destination is of global scope.
    #[inline]
    pub(super) fn has_plain_destination(&self) -> bool {
        goes_everywhere_v4(self.destination)
    }
}

/// Returns the ones' complement sum: the carry is added again.
#[inline]
const fn added_up(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// First octets of addresses of this host, and of loopback, link-local, multicast and broadcast addresses.
#[allow(clippy::indexing_slicing, reason = "while it is compiled")]
static MAY_STAY_NEAR: [bool; 256] = {
    let mut octets = [false; 256];
    (octets[0], octets[127], octets[169]) = (true, true, true);
    let mut octet = 224;
    while octet < 256 {
        octets[octet] = true;
        octet += 1;
    }
    octets
};

/// Returns true if an IPv4 address may be forwarded anywhere: it is not one of the addresses that `MAY_STAY_NEAR`
/// names. Of 169.0.0.0/8, only 169.254.0.0/16 is link-local.
#[inline]
fn goes_everywhere_v4(address: u32) -> bool {
    MAY_STAY_NEAR.get(usize::from((address >> 24) as u8)) == Some(&false) || is_169_but_not_link_local(address)
}

#[cold]
#[inline(never)]
const fn is_169_but_not_link_local(address: u32) -> bool {
    address >> 24 == 169 && address >> 16 != 0xa9fe
}

/// Returns the eight bytes at an offset as a number.
#[inline]
pub(super) fn word<const N: usize>(frame: &[u8; N], at: usize) -> u64 {
    frame.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[inline]
pub(super) const fn spend_hop(limit: &mut u8) {
    *limit = limit.wrapping_sub(1);
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::flow;

    #[test]
    fn what_has_ports_is_what_a_flow_tells_apart_by_them() {
        for next_header in 0..=u8::MAX {
            let mut bytes = [0; 64];
            (bytes[0], bytes[6], bytes[7]) = (0x60, next_header, 64);
            let key = |bytes: &[u8; 64]| flow::inner_v6(bytes, ipv6::Header::parse(bytes).unwrap(), false);
            let without = key(&bytes);
            bytes[ipv6::LEN + 3] = 1;
            let has_ports = V6::read(&bytes, 0).behind() == Behind::Ports;
            assert_eq!(has_ports, key(&bytes) != without, "next header {next_header}");
        }
    }

    #[test]
    fn addresses_that_stay_near_are_not_plain() {
        for octet in 0..=u8::MAX {
            let stays = matches!(octet, 0 | 127 | 224..);
            assert_eq!(goes_everywhere_v4(u32::from(octet) << 24 | 0x0001_0203), !stays, "{octet}.1.2.3");
        }
        assert!(!goes_everywhere_v4(0xa9fe_0001) && goes_everywhere_v4(0xa9fd_0001));
    }
}
