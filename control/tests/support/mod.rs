//! What test programs share.

pub mod lab;
