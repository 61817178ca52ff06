//! The commands and the output of a SONiC switch's command line.
//!
//! This crate does no I/O: [`commands`] finds out which command is meant, [`tables`] and [`routes`] make the text of the
//! output, [`config_db`] and [`vtysh`] change the two files of a running configuration. The caller connects them with a
//! switch, a kernel and a daemon.
//!
//! Scripts read these texts with `grep` and `awk`: columns, alignment and empty lines are those of SONiC.

#![forbid(unsafe_code)]

pub mod app_db;
pub mod cfggen;
pub mod commands;
pub mod config_db;
pub mod counters;
pub mod natural;
pub mod numbers;
pub mod routes;
pub mod tables;
mod tabulate;
pub mod vtysh;

pub use tabulate::{Align, Table};
