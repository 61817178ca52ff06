//! The tests of the FPM reader: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod hostile;
mod limits;
mod made;
mod rib;
mod sonic;
mod vectors;
