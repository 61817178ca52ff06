//! The commands of SONiC's operator: `show`, `config`, `vtysh` and others. They can be called as `srv6d sonic COMMAND`
//! and, through links to this binary, by their own names.

mod cfggen;
mod config;
mod counterpoll;
mod crm;
mod db_cli;
mod frr;
mod install;
mod node;
mod portstat;
mod routes;
mod show;
mod show_interfaces;
mod srv6stat;
mod stored;
mod supervisor;
mod tree;
mod version;
mod vtysh;

use std::path::PathBuf;

pub use install::{InstallArguments, install};

use crate::cli::tcpdump;
use node::Node;
use srv6d_command::Failure;

/// A command of SONiC or FRR that this binary replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `show`
    Show,
    /// `config`
    Config,
    /// `sonic-clear`
    SonicClear,
    /// `counterpoll`
    Counterpoll,
    /// `crm`
    Crm,
    /// `portstat`
    Portstat,
    /// `srv6stat`
    Srv6stat,
    /// `sonic-cfggen`
    SonicCfggen,
    /// `sonic-db-cli`
    SonicDbCli,
    /// `supervisorctl`
    Supervisorctl,
    /// `supervisord`
    Supervisord,
    /// `vtysh`
    Vtysh,
    /// `tcpdump`
    Tcpdump,
}

impl Command {
    /// All commands with their names.
    pub const ALL: [(&'static str, Self); 13] = [
        ("show", Self::Show),
        ("config", Self::Config),
        ("sonic-clear", Self::SonicClear),
        ("counterpoll", Self::Counterpoll),
        ("crm", Self::Crm),
        ("portstat", Self::Portstat),
        ("srv6stat", Self::Srv6stat),
        ("sonic-cfggen", Self::SonicCfggen),
        ("sonic-db-cli", Self::SonicDbCli),
        ("supervisorctl", Self::Supervisorctl),
        ("supervisord", Self::Supervisord),
        ("vtysh", Self::Vtysh),
        ("tcpdump", Self::Tcpdump),
    ];

    /// Returns the command with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, command)| command)
    }
}

/// Carries out a command with its arguments on the switch below `root`.
pub fn run(
    command: Command,
    arguments: &[String],
    root: &std::path::Path,
    socket: Option<PathBuf>,
) -> Result<(), Failure> {
    let node = Node::below(root, socket);
    match command {
        Command::Show => show::show(&node, arguments),
        Command::Config => config::config(&node, arguments),
        Command::SonicClear => show::clear(&node, arguments),
        Command::Counterpoll => counterpoll::counterpoll(&node, arguments),
        Command::Crm => crm::crm(&node, arguments),
        Command::Portstat => portstat::portstat(&node, arguments),
        Command::Srv6stat => srv6stat::srv6stat(&node, arguments),
        Command::SonicCfggen => cfggen::cfggen(&node, arguments),
        Command::SonicDbCli => db_cli::db_cli(&node, arguments),
        Command::Supervisorctl => supervisor::supervisorctl(&node, arguments),
        Command::Supervisord => supervisor::supervisord(root, node.asked_socket()),
        Command::Vtysh => vtysh::vtysh(&node, arguments),
        Command::Tcpdump => tcpdump::tcpdump(arguments, &node.socket()),
    }
}
