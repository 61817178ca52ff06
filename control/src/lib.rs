//! The control side of `srv6d`: configuration, and what it asks of the packet path.

#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
pub mod cli;
pub mod config;
pub mod confine;
mod connections;
pub mod daemon;
pub mod doctor;
pub mod files;
pub mod fpm;
pub mod kernel;
mod kernel_release;
pub mod lab;
mod limits;
pub mod metrics;
pub mod plan;
pub mod process;
pub mod show;
pub mod sonic;
pub mod source;
