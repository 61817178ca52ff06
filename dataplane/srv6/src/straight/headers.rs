//! Plain headers, read by words at fixed offsets.

use srv6d_wire::{checksum, ipv4, ipv6, protocol};

/// Next headers with more to look at: options (RFC 8200 section 4.2), `ICMPv6` (neighbour discovery). One load tells.
#[allow(clippy::indexing_slicing, reason = "while it is compiled")]
static LOOK_INTO: [bool; 256] = {
    let mut headers = [false; 256];
    headers[protocol::HOP_BY_HOP as usize] = true;
    headers[protocol::ICMPV6 as usize] = true;
    headers[protocol::DEST_OPTIONS as usize] = true;
    headers
};

/// An IPv6 header, with the upper half of its source.
#[derive(Clone, Copy)]
pub(super) struct V6 {
    /// All in front of the source.
    first: u64,
    source: u64,
    /// Upper and lower half.
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

    /// As prefix tables have it.
    #[inline]
    pub(super) const fn address(&self) -> u128 {
        joined(self.destination)
    }

    /// The whole packet.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        ipv6::LEN + (self.first >> 16) as u16 as usize
    }

    #[inline]
    pub(super) const fn class(&self) -> u8 {
        (self.first >> 52) as u8
    }

    /// The first word: the class where an outer header has it, among others.
    #[inline]
    pub(super) const fn class_in_place(&self) -> u64 {
        self.first
    }

    #[inline]
    pub(super) const fn next_header(&self) -> u8 {
        (self.first >> 8) as u8
    }

    /// The hop limit allows one more hop, the addresses may go everywhere, and nothing behind has to be looked at.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        let hop_limit = self.first as u8;
        self.first >> 60 == 6
            && hop_limit > 1
            && LOOK_INTO.get(usize::from(self.next_header())) == Some(&false)
            && goes_everywhere(self.source)
            && goes_everywhere(self.destination[0])
    }
}

/// Upper and lower half as one.
#[inline]
pub(super) const fn joined([high, low]: [u64; 2]) -> u128 {
    (high as u128) << 64 | low as u128
}

/// Whether an address with this upper half is neither in `::/64` (unspecified, loopback), nor in `fe00::/7` (link-local and
/// multicast).
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
        // The last four bytes come with the four in front of them: all of it lies inside the header.
        Self { words: [word(frame, at), word(frame, at + 8)], destination: word(frame, at + 12) as u32 }
    }

    /// In the upper 32 bits.
    #[inline]
    pub(super) const fn destination(&self) -> u128 {
        (self.destination as u128) << 96
    }

    /// The whole packet.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        (self.words[0] >> 32) as u16 as usize
    }

    #[inline]
    pub(super) const fn class(&self) -> u8 {
        (self.words[0] >> 48) as u8
    }

    /// A word with the class where an outer IPv6 header has it, among others.
    #[inline]
    pub(super) const fn class_in_place(&self) -> u64 {
        self.words[0] << 4
    }

    /// Without options, the checksum right; the TTL allows one more hop, the addresses may go everywhere.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        const NOT_PLAIN: [u32; 2] = [0, 127];
        let [first, second] = self.words;
        let source = second as u32;
        let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
        let sum = halves(first) + halves(second) + u64::from(self.destination);
        first >> 56 == 0x45
            && (second >> 56) > 1
            // Neither 0.0.0.0/8, nor 127.0.0.0/8.
            && !NOT_PLAIN.contains(&(source >> 24))
            && !NOT_PLAIN.contains(&(self.destination >> 24))
            // Neither 169.254.0.0/16 (link-local), nor multicast, nor broadcast.
            && source >> 16 != 0xa9fe
            && source >> 24 < 224
            && self.destination >> 16 != 0xa9fe
            && self.destination >> 24 < 224
            && checksum::finish(sum) == 0
    }
}

/// Eight bytes at a fixed offset.
#[inline]
pub(super) fn word<const N: usize>(frame: &[u8; N], at: usize) -> u64 {
    frame.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[inline]
pub(super) fn spend_hop_v6(header: &mut [u8; ipv6::LEN]) {
    header[ipv6::HOP_LIMIT] = header[ipv6::HOP_LIMIT].wrapping_sub(1);
}

#[inline]
pub(super) fn spend_hop_v4(header: &mut [u8; ipv4::LEN]) {
    header[ipv4::TTL] = header[ipv4::TTL].wrapping_sub(1);
    // The TTL is the upper half of its word.
    let sum = checksum::replace(u16::from_be_bytes([header[10], header[11]]), 0x0100, 0);
    [header[10], header[11]] = sum.to_be_bytes();
}
