//! The tests of the worker step and its tables: one program, so that it is linked once.
#![allow(missing_docs, reason = "tests")]
mod amend;
mod step;
