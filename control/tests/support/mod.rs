//! What test programs share.

pub mod lab;
pub mod rig;
pub mod wire;
