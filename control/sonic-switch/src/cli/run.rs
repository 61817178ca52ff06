//! `srv6d sonic run` and `srv6d sonic ready`: run a switch in a container, and report its state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::Places;
use crate::run::{RunOptions, readiness, run as run_switch};
use srv6d_command::{Failure, output};
use srv6d_command::{Privileges, UNCONFINED};

/// Default time to wait for interfaces, in seconds.
const PATIENCE: u64 = 60;

/// Argument that names the directory of a switch's files.
#[derive(Debug, Args)]
pub struct RootArgument {
    /// Directory that stands for `/`: files of the switch are looked for, and made, below it
    #[arg(long, env = "SRV6D_SONIC_ROOT", value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
    root: PathBuf,
}

impl RootArgument {
    /// Returns the paths below the directory.
    pub fn places(&self) -> Places {
        Places::below(&self.root)
    }
}

/// Arguments of `srv6d sonic run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    root: RootArgument,
    /// Number of interfaces to wait for before the switch is ready; containerlab sets it
    #[arg(long, env = "CLAB_INTFS", value_name = "NUMBER", default_value_t = 0)]
    interfaces: usize,
    /// Seconds to wait for the interfaces
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE)]
    wait: u64,
    /// Refuse what SONiC's YANG models or its daemons refuse
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    privileges: Privileges,
}

/// Runs the switch until SIGTERM or Ctrl-C.
pub fn run(arguments: &RunArguments, socket: Option<PathBuf>) -> Result<(), Failure> {
    let options = RunOptions {
        places: arguments.root.places(),
        socket,
        interfaces: arguments.interfaces,
        patience: Duration::from_secs(arguments.wait),
        strict: arguments.strict,
        unconfined: arguments.privileges.unconfined,
    };
    run_switch(&options).map_err(Failure::from)
}

/// Prints what a ready switch has, or fails with the reason why it is not ready.
pub fn ready(root: &RootArgument, socket: Option<PathBuf>) -> Result<(), Failure> {
    let places = root.places();
    let socket = socket.unwrap_or_else(|| places.socket());
    match readiness(&places, &socket) {
        Ok(what) => output::print(&format!("ready: {what}\n")),
        Err(why) => Err(Failure::failed(why.to_string())),
    }
}

/// Carries out `supervisord`: runs the switch with settings from the environment only.
pub fn run_below(root: &Path, socket: Option<PathBuf>) -> Result<(), Failure> {
    let interfaces = std::env::var("CLAB_INTFS").ok().and_then(|number| number.trim().parse().ok());
    let options = RunOptions {
        places: Places::below(root),
        socket,
        interfaces: interfaces.unwrap_or_default(),
        patience: Duration::from_secs(PATIENCE),
        strict: false,
        unconfined: std::env::var_os(UNCONFINED).is_some(),
    };
    run_switch(&options).map_err(Failure::from)
}
