//! Bounded reading of foreign JSON: limits on the length of lists, and on the size of each document in a list.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Maximum size of one vertex or edge, in bytes.
const MAX_DOCUMENT: usize = 64 * 1024;

/// Parses one document of a list.
///
/// # Errors
/// If the document is larger than `MAX_DOCUMENT` bytes, or is not JSON.
pub fn document<E: Error>(raw: &RawValue) -> Result<Value, E> {
    let text = raw.get();
    if text.len() > MAX_DOCUMENT {
        return Err(E::custom(format_args!("a document has {} bytes, at most {MAX_DOCUMENT} are read", text.len())));
    }
    serde_json::from_str(text).map_err(E::custom)
}

/// A list with at most `MAX` items. Deserialization refuses a longer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List(PhantomData))
    }
}

struct List<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format_args!("a list has more than {MAX} items")));
            }
            list.push(item);
        }
        Ok(Bounded(list))
    }
}
