//! What the operator of a SONiC switch types and reads.
//!
//! Pure: [`words`] says which command is meant, [`tables`] and [`routes`] make the text of what is shown, [`config_db`]
//! and [`vtysh`] change the two files of a running configuration. Whoever has a switch, a kernel and a daemon puts them
//! together.
//!
//! Scripts read these texts with `grep` and `awk`: columns, alignment and empty lines are those of SONiC.

#![forbid(unsafe_code)]

pub mod app_db;
pub mod cfggen;
pub mod config_db;
pub mod counters;
pub mod natural;
pub mod numbers;
pub mod routes;
pub mod tables;
mod tabulate;
pub mod vtysh;
pub mod words;

pub use tabulate::{Align, Table};
