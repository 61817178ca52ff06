//! A table whose rows are named by numbers that were made for it.

use std::ops::{Index, IndexMut};

/// Rows by number.
#[derive(Clone, Debug)]
pub(crate) struct Rows<T>(Vec<T>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Rows<T> {
    /// Makes the rows 0 to `count` - 1.
    pub fn of(count: u32, row: impl FnMut(u32) -> T) -> Self {
        Self((0..count).map(row).collect())
    }

    /// Adds a row and returns its number.
    pub fn push(&mut self, row: T) -> u32 {
        self.0.push(row);
        self.len() - 1
    }

    /// Number of rows.
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Returns the rows in their order.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// Returns the rows in their order, each for modification.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

#[allow(clippy::indexing_slicing, reason = "a number is only used with the table that it was made for")]
impl<T> Index<u32> for Rows<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.0[number as usize]
    }
}

#[allow(clippy::indexing_slicing, reason = "a number is only used with the table that it was made for")]
impl<T> IndexMut<u32> for Rows<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.0[number as usize]
    }
}
