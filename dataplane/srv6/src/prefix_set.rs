//! A set of prefixes, compiled for one look-up per packet: whether an address lies in any of them.

use std::cell::Cell;

use ipnet::{IpNet, Ipv6Net};

/// Address ranges in order, which neither touch nor overlap. IPv4 addresses stand in the upper 32 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixSet(Box<[(u128, u128)]>);

impl PrefixSet {
    /// Creates the set from networks and lengths.
    pub(crate) fn of(prefixes: impl Iterator<Item = (u128, u8)>) -> Self {
        Self::of_ranges(prefixes.map(|(network, len)| (network & !behind(len), network | behind(len))).collect())
    }

    /// Creates the set from first and last addresses.
    fn of_ranges(mut ranges: Vec<(u128, u128)>) -> Self {
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

    /// Creates the set of the IPv6 prefixes, and that of the IPv4 prefixes.
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

    /// Returns the union of both sets.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self::of_ranges(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Returns the addresses of this set that are not in the other one.
    #[must_use]
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len());
        for &(first, last) in &self.0 {
            let mut next = Some(first);
            for &(from, to) in other.0.iter().filter(|&&(from, to)| from <= last && to >= first) {
                let Some(begin) = next else { break };
                left.extend(from.checked_sub(1).filter(|&end| begin <= end).map(|end| (begin, end)));
                next = to.checked_add(1).filter(|&begin| begin <= last);
            }
            left.extend(next.map(|begin| (begin, last)));
        }
        Self(left.into())
    }

    /// Returns the same set as networks and lengths, as few as possible.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = (u128, u8)> {
        self.0.iter().copied().flat_map(prefixes_of)
    }

    #[inline]
    pub(crate) fn contains(&self, address: u128) -> bool {
        self.range_of(address).is_some()
    }

    /// Returns the first and the last address of the range that an address lies in.
    #[inline]
    fn range_of(&self, address: u128) -> Option<(u128, u128)> {
        let behind = self.0.partition_point(|&(first, _)| first <= address);
        self.0.get(behind.checked_sub(1)?).copied().filter(|&(_, last)| address <= last)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A set of sources that is asked about many packets one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceSet {
    set: PrefixSet,
    /// Some prefix of the set. An empty set is never asked.
    any: Masked,
}

impl SourceSet {
    pub(crate) fn of_v6(prefixes: &[Ipv6Net]) -> Self {
        let set = PrefixSet::of_v6(prefixes);
        let any = set.prefixes().next().map(Masked::of).unwrap_or_default();
        Self { set, any }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Starts to ask about the sources of packets.
    #[inline]
    pub(crate) const fn ask(&self) -> InRuns<'_> {
        InRuns { set: &self.set, prefix: Cell::new(self.any) }
    }
}

/// Asks a set, which is not empty, about one source after the other. Most sources lie in the same prefix as the source
/// before, which takes a few instructions to check. Other sources are searched for.
pub(crate) struct InRuns<'s> {
    set: &'s PrefixSet,
    prefix: Cell<Masked>,
}

/// A prefix, with its bits as they stand in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masked {
    network: u128,
    mask: u128,
}

impl Masked {
    fn of((network, len): (u128, u8)) -> Self {
        Self { network: network.to_be(), mask: (!behind(len)).to_be() }
    }

    #[allow(clippy::inline_always, reason = "in a loop of the fast path")]
    #[inline(always)]
    const fn contains(self, address: u128) -> bool {
        (address ^ self.network) & self.mask == 0
    }
}

impl InRuns<'_> {
    #[allow(clippy::inline_always, reason = "in a loop of the fast path")]
    #[inline(always)]
    pub(crate) fn contains(&self, address: [u8; 16]) -> bool {
        self.prefix.get().contains(u128::from_ne_bytes(address)) || self.search(address)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, address: [u8; 16]) -> bool {
        let Some(range) = self.set.range_of(u128::from_be_bytes(address)) else { return false };
        let is_around = |prefix: &Masked| prefix.contains(u128::from_ne_bytes(address));
        if let Some(prefix) = prefixes_of(range).map(Masked::of).find(is_around) {
            self.prefix.set(prefix);
        }
        true
    }
}

/// Returns the bits behind a prefix of this length.
fn behind(len: u8) -> u128 {
    u128::MAX.checked_shr(len.into()).unwrap_or(0)
}

/// Returns the addresses of a range as networks and lengths, as few as possible.
fn prefixes_of((first, last): (u128, u128)) -> impl Iterator<Item = (u128, u8)> {
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let network = next?;
        // A prefix has 2 to the power of `free` addresses. The trailing zeros of the network and the rest of
        // the range limit `free`.
        let most = (last - network).checked_add(1).map_or(128, u128::ilog2);
        let free = if network == 0 { most } else { most.min(network.trailing_zeros()) };
        let behind = 1_u128.checked_shl(free).unwrap_or(0).wrapping_sub(1);
        next = (network | behind).checked_add(1).filter(|&next| next <= last);
        Some((network, 128 - u8::try_from(free).unwrap_or(128)))
    })
}

pub(crate) fn bits_v6(prefix: &Ipv6Net) -> (u128, u8) {
    (prefix.network().to_bits(), prefix.prefix_len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn prefix() -> impl Strategy<Value = (u128, u8)> {
        // There are few networks, so that they nest, touch and repeat.
        (0u8..=8, any::<u8>(), prop_oneof![0u8..=8, 120u8..=128]).prop_map(|(low, high, len)| {
            let address = u128::from(high) << 120 | u128::from(low);
            (Ipv6Net::new_assert(Ipv6Addr::from_bits(address), len).network().to_bits(), len)
        })
    }

    proptest! {
        #[test]
        fn sets_are_added_taken_away_and_split_into_prefixes(
            left in prop::collection::vec(prefix(), 0..8),
            right in prop::collection::vec(prefix(), 0..8),
            off in -1i128..=1,
        ) {
            let sets = [PrefixSet::of(left.iter().copied()), PrefixSet::of(right.iter().copied())];
            let both = sets[0].and(&sets[1]);
            let rest = sets[0].without(&sets[1]);
            let again = PrefixSet::of(rest.prefixes());
            prop_assert_eq!(&again, &rest);
            prop_assert_eq!(rest.prefixes().collect::<std::collections::BTreeSet<_>>().len(), rest.prefixes().count());
            let edges = left.iter().chain(&right).flat_map(|&(network, len)| {
                [network, network | u128::MAX.checked_shr(len.into()).unwrap_or(0)]
            });
            for address in edges.map(|edge| edge.wrapping_add_signed(off)) {
                let [in_left, in_right] = [sets[0].contains(address), sets[1].contains(address)];
                prop_assert_eq!(both.contains(address), in_left || in_right, "{:x}", address);
                prop_assert_eq!(rest.contains(address), in_left && !in_right, "{:x}", address);
            }
        }

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
            let nets: Vec<Ipv6Net> =
                prefixes.iter().map(|&(bits, len)| Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), len)).collect();
            let sources = SourceSet::of_v6(&nets);
            if !sources.is_empty() {
                let runs = sources.ask();
                for address in edges.iter().rev().chain(&edges).map(|edge| edge.wrapping_add_signed(off)) {
                    prop_assert_eq!(runs.contains(address.to_be_bytes()), slow(address), "{:x} in a run", address);
                }
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
