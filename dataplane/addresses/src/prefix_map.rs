//! A map from prefixes to values. It finds the entries around or inside a prefix without reading every entry. It is
//! for configurations; packets are looked up in the tables of srv6d-srv6.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

/// Values by prefix, IPv4 and IPv6 in one map.
#[derive(Clone, Debug)]
pub struct PrefixMap<T> {
    /// Prefixes without host bits, in the order of their addresses. A prefix comes before those inside it.
    entries: BTreeMap<IpNet, T>,
    /// Lengths of the prefixes of each family, IPv4 first.
    lengths: [BTreeSet<u8>; 2],
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), lengths: Default::default() }
    }
}

impl<T> PrefixMap<T> {
    /// Stores a value and returns the one that the prefix had.
    pub fn insert(&mut self, prefix: impl Into<IpNet>, value: T) -> Option<T> {
        let prefix = self.noted(prefix.into());
        self.entries.insert(prefix, value)
    }

    /// Stores a value, unless the prefix has one already.
    pub fn insert_first(&mut self, prefix: impl Into<IpNet>, value: T) {
        let prefix = self.noted(prefix.into());
        self.entries.entry(prefix).or_insert(value);
    }

    /// Returns the value of a prefix for changes. A prefix without a value gets the default.
    pub fn get_or_default(&mut self, prefix: impl Into<IpNet>) -> &mut T
    where
        T: Default,
    {
        let prefix = self.noted(prefix.into());
        self.entries.entry(prefix).or_default()
    }

    fn noted(&mut self, prefix: IpNet) -> IpNet {
        let [v4, v6] = &mut self.lengths;
        if prefix.addr().is_ipv4() { v4 } else { v6 }.insert(prefix.prefix_len());
        prefix.trunc()
    }

    /// Returns the value of a prefix.
    pub fn get(&self, prefix: impl Into<IpNet>) -> Option<&T> {
        self.entries.get(&prefix.into().trunc())
    }

    /// Iterates over the entries that contain a prefix, itself included, the longest first.
    pub fn around(&self, prefix: impl Into<IpNet>) -> impl Iterator<Item = (IpNet, &T)> {
        let prefix = prefix.into();
        let [v4, v6] = &self.lengths;
        let lengths = if prefix.addr().is_ipv4() { v4 } else { v6 };
        lengths.range(..=prefix.prefix_len()).rev().filter_map(move |&length| {
            let outer = IpNet::new(prefix.addr(), length).ok()?.trunc();
            Some((outer, self.entries.get(&outer)?))
        })
    }

    /// Iterates over the entries that a prefix contains, itself included, in the order of their addresses.
    pub fn inside(&self, prefix: impl Into<IpNet>) -> impl Iterator<Item = (IpNet, &T)> {
        let prefix = prefix.into().trunc();
        let behind = self.entries.range(prefix..).map(|(inner, value)| (*inner, value));
        behind.take_while(move |(inner, _)| prefix.contains(inner))
    }
}

impl<P: Into<IpNet>, T> FromIterator<(P, T)> for PrefixMap<T> {
    /// Builds the map. Of several values for one prefix, the last one is kept.
    fn from_iter<I: IntoIterator<Item = (P, T)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (prefix, value) in entries {
            map.insert(prefix, value);
        }
        map
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    use super::*;

    fn prefix() -> impl Strategy<Value = IpNet> {
        // There are few networks, so that they nest and repeat.
        let v6 = (0u8..=3, 0u8..=3, prop_oneof![0u8..=8, 120u8..=128]).prop_map(|(low, high, length)| {
            let address = u128::from(high) << 120 | u128::from(low);
            IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(address), length))
        });
        let v4 = (0u8..=3, 0u8..=32).prop_map(|(high, length)| {
            IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from_bits(u32::from(high) << 24), length))
        });
        prop_oneof![v6, v4]
    }

    proptest! {
        #[test]
        fn neighbours_are_those_of_a_search_through_all(
            prefixes in prop::collection::vec(prefix(), 0..12),
            asked in prefix(),
        ) {
            let map: PrefixMap<()> = prefixes.iter().map(|prefix| (*prefix, ())).collect();
            let all: BTreeSet<IpNet> = prefixes.iter().map(IpNet::trunc).collect();
            let mut around: Vec<IpNet> = all.iter().filter(|outer| outer.contains(&asked)).copied().collect();
            around.sort_by_key(|outer| std::cmp::Reverse(outer.prefix_len()));
            prop_assert_eq!(map.around(asked).map(|(outer, ())| outer).collect::<Vec<_>>(), around);
            let inside: Vec<IpNet> = all.iter().filter(|inner| asked.contains(*inner)).copied().collect();
            prop_assert_eq!(map.inside(asked).map(|(inner, ())| inner).collect::<Vec<_>>(), inside);
        }
    }

    #[test]
    fn the_first_or_the_last_value_counts() {
        let prefix: IpNet = "2001:db8::1/32".parse().unwrap();
        let mut map = PrefixMap::default();
        map.insert_first(prefix, 1);
        map.insert_first(prefix, 2);
        assert_eq!(map.around(prefix).next(), Some((prefix.trunc(), &1)));
        assert_eq!(map.insert(prefix, 3), Some(1));
        assert_eq!(map.inside(prefix).next(), Some((prefix.trunc(), &3)));
        assert_eq!(map.get(prefix), Some(&3));
    }
}
