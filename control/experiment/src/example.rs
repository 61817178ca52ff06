//! The built-in experiment.

/// An experiment that is complete: four cases in six modes. `srv6d lab experiment --example` prints it.
pub const EXAMPLE: &str = include_str!("example.toml");
