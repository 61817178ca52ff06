//! The operator's words: `show`, `config`, `vtysh` and the others, as `srv6d sonic WORD` and, through links to this
//! binary, under their own names.

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

use crate::cli::output::Failure;
use crate::cli::sonic::tcpdump;
use node::Node;

/// A program of SONiC or FRR that this binary stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
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

impl Word {
    /// Every one with its name.
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

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, word)| word)
    }
}

/// Does what a word and its arguments say, on the switch below `root`.
pub fn run(word: Word, arguments: &[String], root: &std::path::Path, socket: Option<PathBuf>) -> Result<(), Failure> {
    let node = Node::below(root, socket);
    match word {
        Word::Show => show::show(&node, arguments),
        Word::Config => config::config(&node, arguments),
        Word::SonicClear => show::clear(&node, arguments),
        Word::Counterpoll => counterpoll::counterpoll(&node, arguments),
        Word::Crm => crm::crm(&node, arguments),
        Word::Portstat => portstat::portstat(&node, arguments),
        Word::Srv6stat => srv6stat::srv6stat(&node, arguments),
        Word::SonicCfggen => cfggen::cfggen(&node, arguments),
        Word::SonicDbCli => db_cli::db_cli(&node, arguments),
        Word::Supervisorctl => supervisor::supervisorctl(&node, arguments),
        Word::Supervisord => supervisor::supervisord(root, node.asked_socket()),
        Word::Vtysh => vtysh::vtysh(&node, arguments),
        Word::Tcpdump => tcpdump::tcpdump(arguments, &node.socket()),
    }
}
