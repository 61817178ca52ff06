//! The control side of `srv6d`: configuration, and what it asks of the packet path.

#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod fpm;
pub mod kernel;
pub mod lab;
pub mod metrics;
pub mod plan;
pub mod process;
pub mod show;
pub mod sonic;
pub mod source;
