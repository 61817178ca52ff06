//! `srv6d sonic`: this node as a SONiC switch.

mod check;
mod convert;

use clap::{Args, Subcommand};

use super::output::Failure;

/// `srv6d sonic`
#[derive(Debug, Args)]
pub struct SonicArguments {
    #[command(subcommand)]
    command: SonicCommand,
}

#[derive(Debug, Subcommand)]
enum SonicCommand {
    /// Read the files of a switch and list everything that is noteworthy about them
    #[command(after_help = "Examples:\n  \
        srv6d sonic check --config-db config_db.json --frr frr.conf\n  \
        srv6d sonic check --config-db config_db.json --strict\n\n\
        Exit status 2 when a file cannot be read or the two contradict each other; with --strict also when SONiC's\n\
        models or daemons would refuse something.")]
    Check(check::CheckArguments),
    /// Print the srv6d.toml that the files of a switch come to
    #[command(after_help = "Examples:\n  \
        srv6d sonic convert --config-db config_db.json --frr frr.conf > srv6d.toml\n  \
        srv6d check srv6d.toml\n\n\
        What is noteworthy about the files, and what is not in the result, goes to standard error.")]
    Convert(convert::ConvertArguments),
}

/// Does what the arguments say.
pub fn sonic(arguments: &SonicArguments) -> Result<(), Failure> {
    match &arguments.command {
        SonicCommand::Check(arguments) => check::check(arguments),
        SonicCommand::Convert(arguments) => convert::convert(arguments),
    }
}
