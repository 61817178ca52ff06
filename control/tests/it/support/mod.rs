//! Support that several tests share.

pub mod bgp;
pub mod counters;
pub mod file;
pub mod fpm;
pub mod lab;
pub mod leaf;
pub mod recorded;
pub mod rig;
pub mod testbed;
pub mod wire;
