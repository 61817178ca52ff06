//! Computes the changes between two sets of claims.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address as the bytes by which the trie keys it.
pub(crate) trait Address: Copy {
    /// Type of the address's bytes, in network order.
    type Bytes: Copy + Ord;

    /// Number of bits of the address.
    const BITS: u8;

    /// Returns the bytes of the address with all bits behind the prefix set to zero, so that equal prefixes have equal
    /// keys.
    fn network(self, len: u8) -> Self::Bytes;
}

impl Address for Ipv6Addr {
    type Bytes = [u8; 16];
    const BITS: u8 = 128;

    fn network(self, len: u8) -> [u8; 16] {
        let mask = u128::MAX.checked_shl(u32::from(128 - len.min(128))).unwrap_or(0);
        (self.to_bits() & mask).to_be_bytes()
    }
}

impl Address for Ipv4Addr {
    type Bytes = [u8; 4];
    const BITS: u8 = 32;

    fn network(self, len: u8) -> [u8; 4] {
        let mask = u32::MAX.checked_shl(u32::from(32 - len.min(32))).unwrap_or(0);
        (self.to_bits() & mask).to_be_bytes()
    }
}

/// Claims by prefix: true = XSK, false = kernel.
pub(crate) type Claims<A> = BTreeMap<(<A as Address>::Bytes, u8), bool>;

/// Makes a map of a list of claims. If two claims concern the same prefix, the last one counts.
pub(crate) fn collect<A: Address>(list: &[(A, u8, bool)]) -> Claims<A> {
    let keyed = list.iter().map(|&(addr, len, xsk)| {
        let len = len.min(A::BITS);
        ((addr.network(len), len), xsk)
    });
    keyed.collect()
}

/// One write to a claims map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<B> {
    /// Insert, or overwrite the verdict of, this prefix.
    Put(B, u8, bool),
    /// Remove this prefix.
    Remove(B, u8),
}

/// Returns the writes that lead from `now` to `wanted`.
///
/// New and changed prefixes come first, longest first. Removals follow, shortest first. So a prefix that is replaced by
/// more specific ones (or by a less specific one) is covered at every moment in between, and a kernel's /128 inside a
/// claimed /48 is written before the /48.
pub(crate) fn diff<B: Copy + Ord>(now: &BTreeMap<(B, u8), bool>, wanted: &BTreeMap<(B, u8), bool>) -> Vec<Change<B>> {
    let mut puts: Vec<_> = wanted
        .iter()
        .filter(|(key, xsk)| now.get(key) != Some(xsk))
        .map(|(&(net, len), &xsk)| (len, Change::Put(net, len, xsk)))
        .collect();
    puts.sort_by_key(|&(len, _)| std::cmp::Reverse(len));
    let mut removes: Vec<_> =
        now.keys().filter(|key| !wanted.contains_key(key)).map(|&(net, len)| (len, Change::Remove(net, len))).collect();
    removes.sort_by_key(|&(len, _)| len);
    puts.into_iter().chain(removes).map(|(_, change)| change).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // the tests parse literals

    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn host_bits_do_not_make_a_different_claim() {
        let a = collect(&[(v6("fcbb:0:1000::"), 48, true)]);
        let b = collect(&[(v6("fcbb:0:1000::1"), 48, true)]);
        assert!(diff(&a, &b).is_empty());
        assert_eq!(v6("ffff::1").network(0), [0; 16]);
        assert_eq!(Ipv4Addr::BROADCAST.network(33), [255; 4]);
    }

    #[test]
    fn puts_precede_removals_and_the_specific_precedes_the_general() {
        let now = collect(&[(v6("fcbb::"), 32, true), (v6("fcbb:1::"), 48, true)]);
        let wanted = collect(&[(v6("fcbb:0:1000::"), 48, true), (v6("fcbb:0:1000::1"), 128, false)]);
        let host = v6("fcbb:0:1000::1").octets();
        let site = v6("fcbb:0:1000::").octets();
        assert_eq!(
            diff(&now, &wanted),
            [
                Change::Put(host, 128, false),
                Change::Put(site, 48, true),
                Change::Remove(v6("fcbb::").octets(), 32),
                Change::Remove(v6("fcbb:1::").octets(), 48),
            ]
        );
    }

    #[test]
    fn a_changed_verdict_is_one_overwrite() {
        let now = collect(&[(Ipv4Addr::new(10, 0, 0, 0), 8, true)]);
        let wanted = collect(&[(Ipv4Addr::new(10, 0, 0, 0), 8, false)]);
        assert_eq!(diff(&now, &wanted), [Change::Put([10, 0, 0, 0], 8, false)]);
    }
}
