//! The tests of flow placement: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod clos;
mod optimum;
