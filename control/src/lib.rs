//! The command `srv6d`: the daemon, the client for all requests to it, and the programs around it.

#![forbid(unsafe_code)]

pub mod cli;
pub mod doctor;
