//! Path controllers at work: what they offer beside the file, and how they are.
//!
//! ```text
//! controller (Jalapeno, syd) ──► Snapshot ──► Offer ─┐
//! srv6d.toml ────────────────────────────────────────┼─► plan ─► generation
//! kernel (links, addresses, neighbours) ─────────────┘
//! ```

pub mod running;
pub(crate) mod settings;
pub mod view;
