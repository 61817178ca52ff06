//! `srv6d sonic`: runs this node as a SONiC switch.

mod check;
mod commands;
mod convert;
mod run;
mod tcpdump;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use commands::Command;
use srv6d_command::Failure;

/// Arguments of `srv6d sonic`.
#[derive(Debug, Args)]
pub struct SonicArguments {
    #[command(subcommand)]
    command: SonicCommand,
}

#[derive(Debug, Subcommand)]
enum SonicCommand {
    /// Read the files of a switch and list all findings about them
    #[command(after_help = "Examples:\n  \
        srv6d sonic check --config-db config_db.json --frr frr.conf\n  \
        srv6d sonic check --config-db config_db.json --strict\n\n\
        Exit status 2 when a file cannot be read or the two contradict each other; with --strict also when SONiC's \
        models or daemons would refuse something.")]
    Check(check::CheckArguments),
    /// Convert the files of a switch to an srv6d.toml and print it
    #[command(after_help = "Examples:\n  \
        srv6d sonic convert --config-db config_db.json --frr frr.conf > srv6d.toml\n  \
        srv6d check srv6d.toml\n\n\
        What is noteworthy about the files, and what is not in the result, goes to standard error.")]
    Convert(convert::ConvertArguments),
    /// Run as the switch of a container: find its files, name its ports, forward, until SIGTERM or Ctrl-C
    #[command(after_help = "Examples:\n  \
        srv6d sonic run                      the entry point of an image\n  \
        srv6d sonic run --root /tmp/leaf00   a switch whose files are below that directory\n\n\
        The first that exists is taken, of CONFIG_DB: /var/sonic/config_db.json, /etc/sonic/config_db.json,\n\
        /usr/share/sonic/virtual_chassis/default_config.json; of FRR's configuration: /var/sonic/frr.conf,\n\
        /etc/sonic/frr/frr.conf, /etc/sonic/frr/{zebra,staticd,bgpd}.conf, /etc/frr/frr.conf,\n\
        /etc/frr/{zebra,staticd,bgpd,isisd}.conf. A file that appears later is taken then.")]
    Run(run::RunArguments),
    /// Check that the switch is ready, with its SIDs in the dataplane
    #[command(after_help = "Exit status 1 while it is not. For health checks, and for scripts that wait.")]
    Ready(run::RootArgument),
    /// Make links to this program under the names that SONiC's scripts call: show, config, vtysh, ...
    #[command(after_help = "Examples:\n  \
        srv6d sonic install-words /usr/local/bin")]
    InstallWords(commands::InstallArguments),
    /// A command of SONiC: show, config, sonic-clear, counterpoll, crm, portstat, srv6stat, sonic-cfggen, sonic-db-cli,
    /// supervisorctl, supervisord, vtysh, tcpdump
    #[command(external_subcommand)]
    Command(Vec<String>),
}

/// Carries out the subcommand.
pub fn sonic(arguments: &SonicArguments, socket: Option<PathBuf>) -> Result<(), Failure> {
    match &arguments.command {
        SonicCommand::Check(arguments) => check::check(arguments),
        SonicCommand::Convert(arguments) => convert::convert(arguments),
        SonicCommand::Run(arguments) => run::run(arguments, socket),
        SonicCommand::Ready(root) => run::ready(root, socket),
        SonicCommand::InstallWords(arguments) => commands::install(arguments),
        SonicCommand::Command(arguments) => command(arguments, socket),
    }
}

/// Carries out `srv6d sonic COMMAND ...`.
fn command(arguments: &[String], socket: Option<PathBuf>) -> Result<(), Failure> {
    let (name, rest) = arguments.split_first().ok_or_else(|| Failure::invalid("error: no command"))?;
    let Some(command) = Command::named(name) else {
        let known: Vec<&str> = Command::ALL.iter().map(|(name, _)| *name).collect();
        return Err(Failure::invalid(format!(
            "error: {name:?} is none of check, convert, run, ready, install-words, {}",
            known.join(", ")
        )));
    };
    commands::run(command, rest, &root(), socket)
}

/// Carries out a command if this program was called by the command's name, through a link. `None`: it was called by its
/// own name.
pub fn by_name(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<Result<(), Failure>> {
    let called = PathBuf::from(arguments.next()?);
    let command = Command::named(called.file_name()?.to_str()?)?;
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let socket = std::env::var_os("SRV6D_SOCKET").map(PathBuf::from);
    Some(commands::run(command, &arguments, &root(), socket))
}

/// Returns the directory that stands for `/`.
fn root() -> PathBuf {
    std::env::var_os("SRV6D_SONIC_ROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}
