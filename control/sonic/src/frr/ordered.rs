//! Collections that keep the order of the lines of `frr.conf`, and from which later lines remove what they name.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use ipnet::IpNet;

use crate::routes::Leg;
use crate::switch::Target;

/// Values by key, in the order in which they were put.
pub(crate) struct Ordered<K, V> {
    /// `None`: the value was removed.
    values: Vec<Option<V>>,
    places: HashMap<K, usize>,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self { values: Vec::new(), places: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> Ordered<K, V> {
    /// Appends a value. It replaces an earlier one with the same key.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.remove(&key);
        self.places.insert(key, self.values.len());
        self.values.push(Some(value));
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(value) = self.places.remove(key).and_then(|at| self.values.get_mut(at)) {
            *value = None;
        }
    }

    pub(super) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.values.get_mut(*self.places.get(key)?)?.as_mut()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.values.into_iter().flatten()
    }
}

/// Next hops of static routes, in the order of their lines.
#[derive(Default)]
pub(crate) struct Legs {
    /// `None`: the next hop was removed.
    legs: Vec<Option<Leg>>,
    /// Places of the next hops of each prefix in a VRF, by target.
    places: HashMap<(Option<String>, IpNet), HashMap<Target, Vec<usize>>>,
}

impl Legs {
    pub(super) fn push(&mut self, leg: Leg) {
        let targets = self.places.entry((leg.vrf.clone(), leg.prefix)).or_default();
        targets.entry(leg.target.clone()).or_default().push(self.legs.len());
        self.legs.push(Some(leg));
    }

    /// Removes the next hops that a `no` line names. A line without next hop removes all of its prefix.
    pub(super) fn remove(&mut self, named: &Leg) {
        let key = (named.vrf.clone(), named.prefix);
        let all = named.target == Target::Hops(Vec::new());
        let gone: Vec<usize> = if all {
            self.places.remove(&key).into_iter().flatten().flat_map(|(_, places)| places).collect()
        } else {
            self.places.get_mut(&key).and_then(|targets| targets.remove(&named.target)).unwrap_or_default()
        };
        for at in gone {
            if let Some(leg) = self.legs.get_mut(at) {
                *leg = None;
            }
        }
    }

    pub(crate) fn into_legs(self) -> impl Iterator<Item = Leg> {
        self.legs.into_iter().flatten()
    }
}
