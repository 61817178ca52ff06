//! The integration tests of the FPM reader, in one program so that it is linked once.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failed test may panic")]
mod hostile;
mod limits;
mod made;
mod rib;
mod sonic;
mod vectors;
