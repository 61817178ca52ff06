//! Search over prefix lengths.
//!
//! Prefixes of one length share a hash table. A search goes down a tree of lengths: if the table of a length has the
//! address, it goes on to longer ones, otherwise to shorter ones. For that, a table also holds markers, which say
//! that longer prefixes exist. A marker holds the best match so far, so the search never goes back (Waldvogel et al.,
//! "Scalable High Speed IP Routing Lookups", 1997). A search over n lengths takes log2(n) probes.
//!
//! ```text
//!            48                 lengths 32, 48, 64: the tree in the order 48, 32, 64
//!     miss ╱    ╲ hit           node i: to 2i + 1 after a miss, to 2i + 2 after a hit
//!        32      64
//! ```
//!
//! The next node is computed without a branch. The matching length differs from packet to packet, and a mispredicted
//! branch costs more than a probe, because it also delays the loads of the following packets. A probe reads half a
//! cache line.

mod amend;

use std::hint::select_unpredictable;
use std::ops::Range;

use prefetch_index::prefetch_index;

use super::{Key, NONE, Search, Value, mask};

/// The value of a missing key. It differs from [`NONE`], with and without [`LONGER`].
const MISS: Value = Value::MAX;
/// The bit of a /64 entry that has longer prefixes inside.
const LONGER: u32 = 1 << 31;

/// The upper part of an address, as far as prefixes of some lengths reach.
trait Head: Copy + Eq + std::ops::BitAnd<Output = Self> {
    const ZERO: Self;
    fn of(address: u128) -> Self;
    fn hash(self) -> u64;
    /// Returns the prefix length of a mask.
    fn length(self) -> u8;
}

impl Head for u64 {
    const ZERO: Self = 0;

    #[inline]
    fn of(address: u128) -> Self {
        (address >> 64) as Self
    }

    #[inline]
    fn hash(self) -> u64 {
        folded(self, 0x9e37_79b9_7f4a_7c15)
    }

    fn length(self) -> u8 {
        self.leading_ones() as u8
    }
}

impl Head for u128 {
    const ZERO: Self = 0;

    #[inline]
    fn of(address: u128) -> Self {
        address
    }

    #[inline]
    fn hash(self) -> u64 {
        folded((self >> 64) as u64 ^ folded(self as u64, 0xd6e8_feb8_6659_fd93), 0x9e37_79b9_7f4a_7c15)
    }

    fn length(self) -> u8 {
        self.leading_ones() as u8
    }
}

#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// A bucket of keys with their values, half a cache line long. It has few keys, because all of them are compared.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Bucket<K, const N: usize> {
    keys: [K; N],
    values: [Value; N],
    /// All ones if keys of this bucket continue in the next bucket, otherwise 0.
    overflow: u32,
}

impl<K: Head, const N: usize> Bucket<K, N> {
    const EMPTY: Self = Self { keys: [K::ZERO; N], values: [MISS; N], overflow: 0 };

    /// Returns the value of a key, or [`MISS`]. All places are compared without a branch: at most one of them
    /// contributes a value other than all ones.
    #[inline]
    fn find(&self, key: K) -> Value {
        let places = self.keys.iter().zip(&self.values);
        places.fold(MISS, |found, (&known, &value)| found & select_unpredictable(known == key, value, MISS))
    }

    /// Inserts a key. If it exists already, the old value stays.
    fn insert(&mut self, key: K, value: Value) -> Inserted {
        for (known, slot) in self.keys.iter_mut().zip(&mut self.values) {
            if *slot == MISS {
                (*known, *slot) = (key, value);
                return Inserted::New;
            }
            if *known == key {
                return Inserted::Known;
            }
        }
        Inserted::NoRoom
    }

    fn take_all(&mut self) -> impl Iterator<Item = (K, Value)> {
        let taken = std::mem::replace(self, Self { overflow: self.overflow, ..Self::EMPTY });
        taken.keys.into_iter().zip(taken.values).filter(|&(_, value)| value != MISS)
    }
}

enum Inserted {
    New,
    Known,
    NoRoom,
}

/// Prefixes of one length, and markers for longer ones.
#[derive(Clone, Debug)]
struct Level<K, const N: usize> {
    mask: K,
    shift: u32,
    /// Number of keys.
    used: u32,
    buckets: Vec<Bucket<K, N>>,
}

/// Smallest number of buckets of a table, so that a small table has room for a few more prefixes.
const FEWEST: usize = 8;

impl<K: Head, const N: usize> Level<K, N> {
    /// Creates an empty table that will be at most half full, so that few buckets overflow.
    fn with_capacity(len: u8, entries: usize) -> Self {
        let count = (entries * 2).div_ceil(N).next_power_of_two().max(FEWEST);
        let shift = 64 - count.trailing_zeros();
        Self { mask: K::of(mask(len)), shift, used: 0, buckets: vec![Bucket::EMPTY; count] }
    }

    #[inline]
    fn bucket_of(&self, key: K) -> usize {
        (key.hash() >> self.shift) as usize
    }

    #[inline]
    fn find(&self, address: K) -> Value {
        self.find_from(self.bucket_of(address & self.mask), address)
    }

    /// Returns the bucket of an address, and prefetches its cache line.
    #[inline]
    fn fetch(&self, address: K) -> u32 {
        let index = self.bucket_of(address & self.mask);
        prefetch_index(&self.buckets, index);
        index as u32
    }

    #[inline]
    fn find_from(&self, mut index: usize, address: K) -> Value {
        let key = address & self.mask;
        loop {
            let Some(bucket) = self.buckets.get(index) else { return MISS };
            let value = bucket.find(key);
            // The branch on overflow is rarely taken. A branch on the value would be mispredicted every second time.
            if value & bucket.overflow != MISS {
                return value;
            }
            index = (index + 1) & (self.buckets.len() - 1);
        }
    }

    /// Inserts a key. If it exists already, the old value stays.
    fn insert(&mut self, key: K, value: Value) {
        let mut index = self.bucket_of(key);
        let last = self.buckets.len() - 1;
        while let Some(bucket) = self.buckets.get_mut(index) {
            match bucket.insert(key, value) {
                Inserted::New => return self.used += 1,
                Inserted::Known => return,
                Inserted::NoRoom => bucket.overflow = u32::MAX,
            }
            index = (index + 1) & last;
        }
    }
}

impl Search {
    /// Moves to the next node: to the right child after a hit, to the left one after a miss.
    #[inline]
    fn goes_on(&mut self, answer: Value) {
        let is_hit = answer != MISS;
        self.value = select_unpredictable(is_hit, answer, self.value);
        self.node = 2 * self.node + 1 + u32::from(is_hit);
    }
}

/// Tables of lengths in the order of the tree. Empty ones fill it up to a power of two less one.
#[derive(Clone, Debug)]
struct Tree<K, const N: usize> {
    levels: Vec<Level<K, N>>,
}

impl<K: Head, const N: usize> Tree<K, N> {
    /// Builds the tree. `entries` are sorted by length, without duplicates. `covering` returns the best match of an
    /// address outside of this tree.
    fn build(entries: &[(Key, Value)], covering: impl Fn(u128) -> Value) -> Self {
        let groups: Vec<_> = entries.chunk_by(|(a, _), (b, _)| a.len == b.len).collect();
        let nodes = (groups.len() + 1).next_power_of_two() - 1;
        let order = in_order(nodes);
        let mut levels: Vec<Level<K, N>> = Vec::with_capacity(nodes);
        for (at, group) in groups.iter().enumerate() {
            let markers = markers(&order, &groups, at);
            let known = |level: &Level<K, N>, bits| Some(level.find(K::of(bits))).filter(|&value| value != MISS);
            let best =
                |bits| levels.iter().rev().find_map(|level| known(level, bits)).unwrap_or_else(|| covering(bits));
            let mut level = Level::with_capacity(length(group), group.len() + markers.len());
            for (bits, value) in group.iter().map(|&(key, value)| (key.bits, value)).chain(markers) {
                let value = if value & !LONGER == NONE { best(bits) | value & LONGER } else { value };
                level.insert(K::of(bits), value);
            }
            levels.push(level);
        }
        levels.resize_with(nodes, || Level::with_capacity(0, 0));
        let mut placed: Vec<_> = order.into_iter().zip(levels).collect();
        placed.sort_by_key(|&(node, _)| node);
        Self { levels: placed.into_iter().map(|(_, level)| level).collect() }
    }

    /// Returns the value of the longest prefix, or `default` if there is none.
    #[inline]
    fn look_up(&self, address: u128, default: Value) -> Value {
        let mut search = Search { address, value: default, node: 0, bucket: 0, id: 0 };
        while let Some(level) = self.levels.get(search.node as usize) {
            search.goes_on(level.find(K::of(address)));
        }
        search.value
    }

    /// Reads the bucket that was prefetched.
    #[inline]
    fn probe(&self, search: &mut Search) {
        if let Some(level) = self.levels.get(search.node as usize) {
            search.goes_on(level.find_from(search.bucket as usize, K::of(search.address)));
        }
    }

    /// Prefetches the bucket of the next node.
    #[inline]
    fn fetch(&self, search: &mut Search) {
        if let Some(level) = self.levels.get(search.node as usize) {
            search.bucket = level.fetch(K::of(search.address));
        }
    }

    /// Returns the number of probes from the root to a leaf.
    fn depth(&self) -> u32 {
        (self.levels.len() + 1).trailing_zeros()
    }

    fn ranges(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.levels.iter().map(|level| {
            let Range { start, end } = level.buckets.as_ptr_range();
            start.cast()..end.cast()
        })
    }
}

fn length(group: &[(Key, Value)]) -> u8 {
    group.first().map_or(0, |(key, _)| key.len)
}

/// Returns the nodes of a full tree of `nodes` nodes, from the smallest to the largest.
fn in_order(nodes: usize) -> Vec<usize> {
    fn walk(node: usize, nodes: usize, order: &mut Vec<usize>) {
        if node < nodes {
            walk(2 * node + 1, nodes, order);
            order.push(node);
            walk(2 * node + 2, nodes, order);
        }
    }
    let mut order = Vec::with_capacity(nodes);
    walk(0, nodes, &mut order);
    order
}

/// Returns the markers at position `at`, which lead to the lengths of its subtree.
fn markers(order: &[usize], groups: &[&[(Key, Value)]], at: usize) -> Vec<(u128, Value)> {
    let Some(&node) = order.get(at) else { return vec![] };
    let len = groups.get(at).map_or(0, |group| length(group));
    let is_below = |&other: &usize| {
        std::iter::successors(Some(other), |&child| child.checked_sub(1).map(|child| child / 2))
            .any(|above| above == node)
    };
    let longer = order.iter().zip(groups).skip(at + 1).filter(|(other, _)| is_below(other));
    let mut markers: Vec<_> =
        longer.flat_map(|(_, group)| group.iter()).map(|(key, _)| (key.bits & mask(len), NONE)).collect();
    markers.sort_unstable();
    markers.dedup();
    markers
}

/// Prefixes of any length.
#[derive(Clone, Debug)]
pub(super) struct ByLength {
    /// Index by the first bits of an address: the best match among prefixes that are not longer.
    first: Vec<Value>,
    /// Number of bits to shift the upper 64 bits of an address by, to get its first bits.
    first_shift: u32,
    /// Longer prefixes up to /64, and an entry at /64 for each that is longer still.
    short: Tree<u64, 2>,
    /// Prefixes longer than /64.
    long: Tree<u128, 1>,
}

impl Default for ByLength {
    fn default() -> Self {
        Self::build(&[])
    }
}

impl ByLength {
    /// Builds the table. `entries` are sorted by length, without duplicates.
    pub(super) fn build(entries: &[(Key, Value)]) -> Self {
        let first_bits = first_bits(entries.len());
        let (first, entries) = entries.split_at(entries.partition_point(|(key, _)| key.len <= first_bits));
        let (short, long) = entries.split_at(entries.partition_point(|(key, _)| key.len <= 64));
        let mut short = short.to_vec();
        short.extend(long.iter().map(|(key, _)| (Key::new(key.bits, 64), NONE | LONGER)));
        // A /64 with a value of its own and longer prefixes inside occurs twice. The one with the value comes first
        // and gets the bit.
        short.sort_unstable_by_key(|&(key, value)| (key, value));
        short.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 |= if is_same { next.1 & LONGER } else { 0 };
            is_same
        });
        let mut built = Self {
            first: by_first_bits(first, first_bits),
            first_shift: 64 - u32::from(first_bits),
            short: Tree { levels: vec![] },
            long: Tree { levels: vec![] },
        };
        built.short = Tree::build(&short, |bits| built.start(bits));
        built.long = Tree::build(long, |bits| built.look_up(bits));
        built
    }

    /// Returns the best match among the shortest prefixes, with which a search starts.
    #[inline]
    fn start(&self, address: u128) -> Value {
        self.first.get((u64::of(address) >> self.first_shift) as usize).copied().unwrap_or(NONE)
    }

    #[inline]
    pub(super) fn look_up(&self, address: u128) -> Value {
        self.deeper(address, self.short.look_up(address, self.start(address)))
    }

    #[inline]
    fn deeper(&self, address: u128, value: Value) -> Value {
        if value & LONGER == 0 { value } else { self.long.look_up(address, value & !LONGER) }
    }

    /// Searches for all addresses, level by level. The cache lines of a level are prefetched while those of the level
    /// before are read, so nothing waits for memory meanwhile.
    pub(super) fn look_up_all(&self, searches: &mut [Search]) {
        let Some(root) = self.short.levels.first() else {
            return searches.iter_mut().for_each(|search| search.value = self.start(search.address));
        };
        for search in &mut *searches {
            search.bucket = root.fetch(u64::of(search.address));
        }
        for search in &mut *searches {
            (search.value, search.node) = (self.start(search.address), 0);
            search.goes_on(root.find_from(search.bucket as usize, u64::of(search.address)));
            self.short.fetch(search);
        }
        for _ in 2..self.short.depth() {
            for search in &mut *searches {
                self.short.probe(search);
                self.short.fetch(search);
            }
        }
        for search in &mut *searches {
            self.short.probe(search);
        }
    }

    /// Continues a search behind /64, if there are longer prefixes.
    #[inline]
    pub(super) fn value(&self, search: &Search) -> Value {
        self.deeper(search.address, search.value)
    }

    /// Returns the address ranges of its tables in memory.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<*const u8>> {
        self.short.ranges().chain(self.long.ranges())
    }
}

/// Returns the number of bits of the index in front: 16 (256 KiB), or fewer if there are few prefixes.
fn first_bits(prefixes: usize) -> u8 {
    (4..16).find(|&bits| prefixes <= 1 << (bits - 4)).unwrap_or(16)
}

/// Builds the index in front. `entries` are prefixes of at most `first_bits` bits, sorted by length.
fn by_first_bits(entries: &[(Key, Value)], first_bits: u8) -> Vec<Value> {
    let mut first = vec![NONE; 1 << first_bits];
    for (key, value) in entries {
        let at = (u64::of(key.bits) >> (64 - first_bits)) as usize;
        if let Some(covered) = first.get_mut(at..at + (1 << (first_bits - key.len))) {
            covered.fill(*value);
        }
    }
    first
}
