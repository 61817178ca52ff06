//! The version of a file that holds a report or results.

use serde::{Deserialize, Serialize};

/// Version of the file format. It changes when a field changes its meaning or is removed; new fields may be added
/// without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Schema(u32);

/// Version that is written, and the only one that can be read.
const SCHEMA: u32 = 1;

impl Default for Schema {
    fn default() -> Self {
        Self(SCHEMA)
    }
}

impl TryFrom<u32> for Schema {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        match number {
            SCHEMA => Ok(Self(number)),
            _ => Err(format!("this is schema {number}, and this program reads {SCHEMA}")),
        }
    }
}

impl From<Schema> for u32 {
    fn from(schema: Schema) -> Self {
        schema.0
    }
}
