//! Tables indexed by node or link. Ids come from the fabric they belong to, so a table made for that fabric has their
//! entry.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Id of a node of one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// Id of a directed link of one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

/// An id, which is a position in a table.
pub trait Id: Copy {
    /// Returns the id of a position.
    fn at(position: usize) -> Self;
    /// Returns the position of the id.
    fn position(self) -> usize;
}

macro_rules! id {
    ($name:ident) => {
        impl $name {
            /// Returns the id of a position.
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
    /// Creates a table of this many equal entries.
    pub fn new(count: usize, entry: T) -> Self
    where
        T: Clone,
    {
        Self { entries: vec![entry; count], id: PhantomData }
    }

    /// Returns the number of entries.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table has no entries.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: T) {
        self.entries.push(entry);
    }

    /// Returns every entry with its id.
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
