//! `srv6d sonic convert`: converts the files of a switch to an srv6d.toml.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use srv6d_sonic::Reading;

use super::check::{Files, lines, refused};
use srv6d_command::{Failure, output};

/// Arguments of `srv6d sonic convert`.
#[derive(Debug, Args)]
pub struct ConvertArguments {
    #[command(flatten)]
    files: Files,
    /// The uN that decapsulate packets which end there
    #[arg(long, value_enum, default_value = "always")]
    usd: Usd,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Usd {
    /// Every uN
    Always,
    /// As in SONiC: only a uN whose row in CONFIG_DB says how to treat the DSCP
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

/// Prints the configuration. Findings are written to standard error.
pub fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    let reading = arguments.files.switch(false)?;
    let Reading { switch, mut findings } = reading.map_err(|findings| refused(&findings, false))?;
    let conversion = switch.to_toml(arguments.usd.into());
    findings.extend(conversion.findings);
    // An error is ignored: if standard error is closed, it cannot be reported.
    drop(write!(io::stderr(), "{}", lines(&findings)));
    output::print(&conversion.toml)
}
