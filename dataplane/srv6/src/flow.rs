//! Flow keys, which select one of several next hops or paths for a packet, and its outer flow label (RFC 6437, RFC
//! 6438).

#![allow(clippy::cast_possible_truncation)] // the halves of a hash

use srv6d_random::SplitMix64;
use srv6d_wire::{be16, be32, ipv4, ipv6, protocol};

/// UDP port of `RoCEv2`.
const ROCE_V2: u16 = 4791;
/// Offset of the destination QP behind the UDP header. In the BTH it follows opcode, flags, `P_Key` and a reserved
/// byte.
const BTH_QP: usize = 8 + 4;

/// A well-mixed hash of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHash(u64);

impl FlowHash {
    /// Returns a flow label of 20 bits, which is never zero (RFC 6437 section 3).
    #[inline]
    pub const fn flow_label(self) -> u32 {
        let label = (self.0 >> 44) as u32;
        if label == 0 { 1 } else { label }
    }

    /// Returns the hash as a number. All of its bits are well mixed.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns an index below `len`, evenly spread.
    #[inline]
    pub const fn pick(self, len: usize) -> usize {
        (((self.0 & 0xffff_ffff) * len as u64) >> 32) as usize
    }

    /// Returns the hash by which a node with this seed chooses one of several next hops.
    #[inline]
    #[must_use]
    pub fn for_hops(self, seed: &Seed) -> Self {
        Self(mix(self.0 ^ seed.hops[0], seed.hops[1]))
    }

    /// Returns the hash by which a node with this seed chooses one of several paths. It is independent of the choice of
    /// the next hop.
    #[inline]
    #[must_use]
    pub fn for_paths(self, seed: &Seed) -> Self {
        Self(mix(self.0 ^ seed.paths[0], seed.paths[1]))
    }
}

/// Numbers that make the choices of a node independent of the choices of other nodes. Without them, two nodes on one
/// path would choose by the same bits of the same hash, and the second node would use only a part of its next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Seed of the choice of a next hop: a number to XOR and a number to multiply by.
    pub hops: [u64; 2],
    /// Seed of the choice of a path: a number to XOR and a number to multiply by.
    pub paths: [u64; 2],
}

impl Seed {
    /// Returns the seed that belongs to a number. Numbers side by side have seeds that have nothing in common.
    pub fn of(number: u64) -> Self {
        let mut random = SplitMix64::new(number);
        let [hop, hop_factor, path, path_factor] = [(); 4].map(|()| random.draw());
        // A factor is odd, so that it loses no bit.
        Self { hops: [hop, hop_factor | 1], paths: [path, path_factor | 1] }
    }
}

impl Default for Seed {
    fn default() -> Self {
        Self::of(0)
    }
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Hashes addresses and other fields. `rest` is added to a mixed value, so that it never cancels out bits of an
/// address.
#[inline]
fn hash(source: u128, destination: u128, rest: u64) -> FlowHash {
    // The bytes stay in packet order, because swapping them would not improve the hash.
    let [source, destination] = [source.swap_bytes(), destination.swap_bytes()];
    let from = mix((source >> 64) as u64 ^ 0x2d35_8dcc_aa6c_78a5, source as u64 ^ 0x8bb8_4b93_962e_acc9);
    let to = mix((destination >> 64) as u64 ^ 0x4b33_a62e_d433_d4a3, destination as u64 ^ 0x4d5a_2da5_1de1_aa47);
    FlowHash(mix(from ^ rest, to))
}

/// Returns the hash of an outer or transit IPv6 packet: source, destination and flow label, or ports if the flow
/// label is zero.
#[inline]
pub fn transit(packet: &[u8], header: ipv6::Header<'_>, destination: u128) -> FlowHash {
    let label = header.flow_label();
    let rest = if label == 0 { upper(header.next_header(), packet, ipv6::LEN, false) } else { u64::from(label) };
    hash(header.source(), destination, rest)
}

/// Returns the hash of an IPv6 packet that is encapsulated: the 5-tuple, or the 3-tuple of a fragment (RFC 6438
/// section 3).
#[inline]
pub fn inner_v6(packet: &[u8], header: ipv6::Header<'_>, with_qp: bool) -> FlowHash {
    inner_v6_with(header, upper(header.next_header(), packet, ipv6::LEN, with_qp))
}

/// Returns the hash of an IPv6 packet whose [`ports`] are known. Without ports, `upper` is the protocol.
#[inline]
pub(crate) fn inner_v6_with(header: ipv6::Header<'_>, upper: u64) -> FlowHash {
    hash(header.source(), header.destination(), upper)
}

/// Returns the hash of an IPv4 packet.
#[inline]
pub fn v4(packet: &[u8], header: ipv4::Header<'_>, with_qp: bool) -> FlowHash {
    v4_behind(packet, header, header.header_len(), with_qp)
}

/// Returns the hash of an IPv4 packet whose header length is known.
#[inline]
pub(crate) fn v4_behind(packet: &[u8], header: ipv4::Header<'_>, header_len: usize, with_qp: bool) -> FlowHash {
    let rest = if header.is_fragment() {
        u64::from(header.protocol())
    } else {
        upper(header.protocol(), packet, header_len, with_qp)
    };
    let addresses = u64::from(header.source()) << 32 | u64::from(header.destination());
    let product = u128::from(addresses ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(rest ^ 0x8bb8_4b93_962e_acc9);
    FlowHash(mix((product >> 64) as u64 ^ 0x4b33_a62e_d433_d4a3, product as u64 ^ 0x4d5a_2da5_1de1_aa47))
}

#[inline]
fn upper(protocol: u8, packet: &[u8], offset: usize, with_qp: bool) -> u64 {
    match protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP => ports(protocol, packet, offset, with_qp),
        _ => protocol.into(),
    }
}

/// Returns protocol and ports of the header at `offset`, and the `RoCEv2` queue pair if `with_qp` is set.
#[inline]
pub(crate) fn ports(protocol: u8, packet: &[u8], offset: usize, with_qp: bool) -> u64 {
    let ports = u64::from(be32(packet, offset).unwrap_or(0)) << 8 | u64::from(protocol);
    if with_qp { ports ^ queue_pair(protocol, packet, offset) << 40 } else { ports }
}

/// Returns the destination queue pair of a `RoCEv2` packet, or 0.
#[inline]
fn queue_pair(protocol: u8, packet: &[u8], offset: usize) -> u64 {
    let is_roce = protocol == protocol::UDP && be16(packet, offset + 2) == Some(ROCE_V2);
    let word = if is_roce { be32(packet, offset + BTH_QP) } else { None };
    u64::from(word.unwrap_or(0) & 0x00ff_ffff)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)] // a failed test may panic
mod tests {
    use super::*;

    fn packet(port: u16, qp: u32) -> [u8; 64] {
        let mut bytes = [0u8; 64];
        bytes[0] = 0x60;
        bytes[6] = protocol::UDP;
        bytes[40..42].copy_from_slice(&port.to_be_bytes());
        bytes[42..44].copy_from_slice(&ROCE_V2.to_be_bytes());
        bytes[52..56].copy_from_slice(&qp.to_be_bytes());
        bytes
    }

    fn key(bytes: &[u8], with_qp: bool) -> FlowHash {
        inner_v6(bytes, ipv6::Header::parse(bytes).unwrap(), with_qp)
    }

    fn v4_key(port: u16) -> FlowHash {
        let mut bytes = [0u8; 28];
        (bytes[0], bytes[9]) = (0x45, protocol::UDP);
        bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[20..22].copy_from_slice(&port.to_be_bytes());
        v4(&bytes, ipv4::Header::parse(&bytes).unwrap(), false)
    }

    #[test]
    fn picks_of_ipv4_are_spread_evenly_and_independent() {
        let mut buckets = [0u32; 9];
        for port in 0..9_000 {
            let hash = v4_key(port);
            buckets[hash.for_hops(&Seed::of(7)).pick(3) * 3 + (hash.flow_label() as usize) % 3] += 1;
        }
        let chi_square: f64 = buckets.iter().map(|&seen| (f64::from(seen) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_square < 31.8, "chi-square {chi_square} over 8 degrees of freedom: p < 0.0001");
    }

    #[test]
    fn labels_are_spread_evenly() {
        let mut buckets = [0u32; 16];
        for port in 0..16_000 {
            buckets[(key(&packet(port, 0), false).flow_label() >> 16) as usize] += 1;
        }
        let chi_square: f64 = buckets.iter().map(|&seen| (f64::from(seen) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_square < 44.3, "chi-square {chi_square} over 15 degrees of freedom: p < 0.0001");
    }

    #[test]
    fn picks_are_spread_evenly_and_independent() {
        let mut buckets = [0u32; 9];
        for port in 0..9_000 {
            let hash = key(&packet(port, 0), false);
            buckets[hash.for_hops(&Seed::of(7)).pick(3) * 3 + hash.for_paths(&Seed::of(7)).pick(3)] += 1;
        }
        let chi_square: f64 = buckets.iter().map(|&seen| (f64::from(seen) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi_square < 31.8, "chi-square {chi_square} over 8 degrees of freedom: p < 0.0001");
    }

    /// Returns how many of 20,000 flows take each pair of next hops of two nodes on one path, which have four next hops each.
    fn two_tiers(first: u64, second: u64) -> [u32; 16] {
        let (first, second) = (Seed::of(first), Seed::of(second));
        let mut pairs = [0; 16];
        for port in 0..20_000 {
            let hash = key(&packet(port, 0), false);
            pairs[hash.for_hops(&first).pick(4) * 4 + hash.for_hops(&second).pick(4)] += 1;
        }
        pairs
    }

    #[test]
    fn nodes_in_a_row_with_seeds_of_their_own_choose_independently() {
        for (first, second) in [(0, 1), (1, 2), (2, 3), (7, 1 << 63), (u64::MAX, 0), (12, 13), (100, 228)] {
            let pairs = two_tiers(first, second);
            let chi_square: f64 = pairs.iter().map(|&seen| (f64::from(seen) - 1250.0).powi(2) / 1250.0).sum();
            assert!(
                chi_square < 44.3,
                "seeds {first} and {second}: chi-square {chi_square} over 15 degrees of freedom"
            );
        }
        let same = two_tiers(5, 5);
        assert_eq!(same.iter().filter(|&&seen| seen > 0).count(), 4, "one seed chooses the same twice: {same:?}");
    }

    #[test]
    fn shares_of_members_are_even() {
        for (members, mean, deviation) in [(4, 2500.0, 0.0173), (8, 1250.0, 0.0265)] {
            let mut shares = vec![0u32; members];
            for port in 0..10_000 {
                shares[key(&packet(port, 0), false).for_hops(&Seed::of(3)).pick(members)] += 1;
            }
            let off = |&share: &u32| (f64::from(share) / mean - 1.0).abs();
            assert!(shares.iter().all(|share| off(share) < 4.0 * deviation), "{shares:?} of {mean}");
        }
    }

    #[test]
    fn queue_pairs_count_only_when_asked() {
        assert_eq!(key(&packet(7, 1), false), key(&packet(7, 2), false));
        assert_ne!(key(&packet(7, 1), true), key(&packet(7, 2), true));
    }

    /// Returns how many of 64 queue pairs between two hosts take each of 8 next hops. All queue pairs have the same UDP ports.
    fn queue_pairs_of_hosts(port: u16, with_qp: bool) -> [u32; 8] {
        let mut taken = [0; 8];
        for qp in 0..64 {
            taken[key(&packet(port, qp), with_qp).for_hops(&Seed::of(3)).pick(8)] += 1;
        }
        taken
    }

    #[test]
    fn queue_pairs_spread_over_all_members() {
        const HOSTS: u16 = 500;
        assert!((0..HOSTS).all(|port| queue_pairs_of_hosts(port, false).contains(&64)), "without the queue pair");
        let busiest = |port| queue_pairs_of_hosts(port, true).into_iter().max().map_or(0.0, f64::from);
        let mean = (0..HOSTS).map(busiest).sum::<f64>() / f64::from(HOSTS) / 8.0;
        assert!((1.48..1.58).contains(&mean), "the busiest next hop has {mean} of its share, 1.53 are expected");
        let unused = (0..HOSTS).filter(|&port| queue_pairs_of_hosts(port, true).contains(&0)).count();
        assert!(unused < 10, "{unused} of {HOSTS} pairs of hosts leave a next hop unused, 0.8 are expected");
    }

    #[test]
    fn a_cut_off_queue_pair_counts_as_none() {
        const UP_TO_QP: usize = ipv6::LEN + BTH_QP + 4;
        let whole = packet(7, 0x00ab_cdef);
        assert_ne!(key(&whole[..UP_TO_QP], true), key(&whole, false));
        for len in ipv6::LEN + 8..UP_TO_QP {
            assert_eq!(key(&whole[..len], true), key(&whole, false), "{len} bytes: the ports alone");
        }
        assert_eq!(key(&packet(7, 0xff00_0001), true), key(&packet(7, 1), true), "the byte in front is reserved");
    }
}
