//! A set of prefixes, compiled for one look-up per packet: whether an address lies in any of them.

use ipnet::{IpNet, Ipv6Net};

/// Addresses as prefix tables have them (IPv4 in the upper 32 bits), as ranges that neither touch nor overlap, in their
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixSet(Box<[(u128, u128)]>);

impl PrefixSet {
    /// Of networks and lengths.
    pub(crate) fn of(prefixes: impl Iterator<Item = (u128, u8)>) -> Self {
        let behind = |len: u8| u128::MAX.checked_shr(len.into()).unwrap_or(0);
        let mut ranges: Vec<_> =
            prefixes.map(|(network, len)| (network & !behind(len), network | behind(len))).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if end.checked_add(1).is_none_or(|next| first <= next) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    pub(crate) fn of_v6(prefixes: &[Ipv6Net]) -> Self {
        Self::of(prefixes.iter().map(bits_v6))
    }

    /// The IPv6 prefixes, and the IPv4 ones.
    pub(crate) fn both(prefixes: &[IpNet]) -> [Self; 2] {
        let v6 = prefixes
            .iter()
            .filter_map(|prefix| if let IpNet::V6(prefix) = prefix { Some(bits_v6(prefix)) } else { None });
        let v4 = prefixes.iter().filter_map(|prefix| match prefix {
            IpNet::V4(prefix) => Some((u128::from(prefix.network().to_bits()) << 96, prefix.prefix_len())),
            IpNet::V6(_) => None,
        });
        [Self::of(v6), Self::of(v4)]
    }

    #[inline]
    pub(crate) fn contains(&self, address: u128) -> bool {
        let behind = self.0.partition_point(|&(first, _)| first <= address);
        let range = behind.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|&(_, last)| address <= last)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn bits_v6(prefix: &Ipv6Net) -> (u128, u8) {
    (prefix.network().to_bits(), prefix.prefix_len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn prefix() -> impl Strategy<Value = (u128, u8)> {
        // Few networks, so that they nest, touch and repeat.
        (0u8..=8, any::<u8>(), prop_oneof![0u8..=8, 120u8..=128]).prop_map(|(low, high, len)| {
            let address = u128::from(high) << 120 | u128::from(low);
            (Ipv6Net::new_assert(Ipv6Addr::from_bits(address), len).network().to_bits(), len)
        })
    }

    proptest! {
        #[test]
        fn an_address_is_in_the_set_where_one_prefix_contains_it(
            prefixes in prop::collection::vec(prefix(), 0..12),
            near in any::<prop::sample::Index>(),
            off in -1i128..=1,
            anywhere in any::<u128>(),
        ) {
            let set = PrefixSet::of(prefixes.iter().copied());
            let slow = |address: u128| prefixes.iter().any(|&(network, len)| {
                Ipv6Net::new_assert(Ipv6Addr::from_bits(network), len).contains(&Ipv6Addr::from_bits(address))
            });
            let edges: Vec<u128> = prefixes
                .iter()
                .flat_map(|&(network, len)| [network, network | u128::MAX.checked_shr(len.into()).unwrap_or(0)])
                .chain([0, u128::MAX])
                .collect();
            for address in [near.get(&edges).wrapping_add_signed(off), anywhere] {
                prop_assert_eq!(set.contains(address), slow(address), "{:x}", address);
            }
        }
    }

    #[test]
    fn families_are_apart() {
        let prefixes: Vec<IpNet> = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().unwrap()).into();
        let [v6, v4] = PrefixSet::both(&prefixes);
        assert!(v4.contains(0x0a01_0203 << 96) && !v4.contains(0x2001_0db8 << 96));
        assert!(v6.contains(0x2001_0db8 << 96 | 1) && !v6.contains(0x0a01_0203 << 96));
        assert!(PrefixSet::default().is_empty() && !v6.is_empty());
    }
}
