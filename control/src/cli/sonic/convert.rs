//! `srv6d sonic convert`: the srv6d.toml that the files of a switch come to.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use srv6d_sonic::Reading;

use super::check::{Files, lines, refused};
use crate::cli::output::{self, Failure};

/// The files, and what they leave open.
#[derive(Debug, Args)]
pub struct ConvertArguments {
    #[command(flatten)]
    files: Files,
    /// Which uN decapsulate what ends there
    #[arg(long, value_enum, default_value = "always")]
    usd: Usd,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Usd {
    /// Every one
    Always,
    /// As in SONiC: those whose row in CONFIG_DB says how to treat the DSCP
    Configured,
}

impl From<Usd> for srv6d_sonic::Usd {
    fn from(usd: Usd) -> Self {
        match usd {
            Usd::Always => Self::Always,
            Usd::Configured => Self::Configured,
        }
    }
}

/// Prints the file; findings go to standard error.
pub fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    let reading = arguments.files.switch(false)?;
    let Reading { switch, mut findings } = reading.map_err(|findings| refused(&findings, false))?;
    let conversion = switch.to_toml(arguments.usd.into());
    findings.extend(conversion.findings);
    // Nobody is left to be told that standard error is closed.
    drop(write!(io::stderr(), "{}", lines(&findings)));
    output::print(&conversion.toml)
}
