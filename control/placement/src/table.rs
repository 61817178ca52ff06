//! Tables by node and by link. Ids are made by the fabric they belong to, so a table made for it has their entry.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A node of one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// A directed link of one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

/// A position in a table.
pub trait Id: Copy {
    /// Of a position.
    fn at(position: usize) -> Self;
    /// Its position.
    fn position(self) -> usize;
}

macro_rules! id {
    ($name:ident) => {
        impl $name {
            /// Of a position.
            #[allow(clippy::cast_possible_truncation, reason = "no fabric has four thousand million parts")]
            pub(crate) const fn at(position: usize) -> Self {
                Self(position as u32)
            }
        }

        impl Id for $name {
            fn at(position: usize) -> Self {
                Self::at(position)
            }

            fn position(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(NodeId);
id!(LinkId);

/// One entry per id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Per<I, T> {
    entries: Vec<T>,
    id: PhantomData<I>,
}

/// One entry per node.
pub type PerNode<T> = Per<NodeId, T>;
/// One entry per link.
pub type PerLink<T> = Per<LinkId, T>;

impl<I, T> Default for Per<I, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> Per<I, T> {
    /// So many equal entries.
    pub fn new(count: usize, entry: T) -> Self
    where
        T: Clone,
    {
        Self { entries: vec![entry; count], id: PhantomData }
    }

    /// Number of entries.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// It has no entry.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One more at the end.
    pub(crate) fn push(&mut self, entry: T) {
        self.entries.push(entry);
    }

    /// Every entry with its id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.entries.iter().enumerate().map(|(position, entry)| (I::at(position), entry))
    }
}

impl<I: Id, T> Index<I> for Per<I, T> {
    type Output = T;

    #[allow(clippy::indexing_slicing, reason = "ids and tables are made for the same fabric")]
    fn index(&self, id: I) -> &T {
        &self.entries[id.position()]
    }
}

impl<I: Id, T> IndexMut<I> for Per<I, T> {
    #[allow(clippy::indexing_slicing, reason = "ids and tables are made for the same fabric")]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.position()]
    }
}
