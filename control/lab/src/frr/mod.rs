//! Runs FRR in the namespaces of a lab: a zebra and a bgpd for every leaf and spine.
//!
//! ```text
//! bgpd ──zserv.api──► zebra ──netlink──► the namespace's kernel ──netlink──► srv6d, which follows the kernel's routes
//!                           or ──FPM, TCP port 2620──────────────────► srv6d, which does not use the kernel's routes
//! ```
//!
//! Configurations, sockets, process ids and logs are in the node's directory of the lab, so they do not interfere with
//! an FRR that runs on the machine itself.

mod config;
mod sessions;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use nix::unistd::{Gid, Uid, User, chown};

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::state::LabProgram;
use super::topology::Node;

pub use config::{as_number, bgpd_conf, zebra_conf};
pub use sessions::{Session, sessions};

/// Directories in which packages install the daemons.
const PLACES: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/local/sbin"];
/// Paths of FRR's shell, which every user may run.
const SHELLS: [&str; 3] = ["/usr/bin/vtysh", "/usr/local/bin/vtysh", "/usr/sbin/vtysh"];
/// The user as which FRR's daemons run.
const USER: &str = "frr";
/// How long a starting zebra keeps existing routes that are not announced again, in seconds.
const KEPT_SECONDS: &str = "15";
/// Longest wait for zebra to open its socket.
const ZEBRA_WITHIN: Duration = Duration::from_secs(30);

/// An installed FRR.
#[derive(Clone, Debug)]
pub struct Frr {
    daemons: PathBuf,
    vtysh: PathBuf,
    user: (Uid, Gid),
}

impl Frr {
    /// Looks for an installed FRR.
    ///
    /// # Errors
    /// FRR is not installed.
    pub fn find() -> Result<Self, LabError> {
        let existing = |places: &[&str], file: &str| {
            let mut files = places.iter().map(|place| Path::new(place).join(file));
            files.find(|path| path.is_file()).ok_or_else(|| missing(&format!("no {file} in {}", places.join(", "))))
        };
        let daemons = existing(&PLACES, "bgpd")?.parent().unwrap_or(Path::new("/")).to_owned();
        existing(&PLACES, "zebra")?;
        let vtysh = SHELLS.iter().map(PathBuf::from).find(|path| path.is_file());
        let vtysh = vtysh.ok_or_else(|| missing(&format!("no {}", SHELLS.join(", "))))?;
        let user = User::from_name(USER).ok().flatten();
        let user = user.ok_or_else(|| missing(&format!("there is no user {USER}")))?;
        Ok(Self { daemons, vtysh, user: (user.uid, user.gid) })
    }
}

fn missing(what: &str) -> LabError {
    LabError::Failed(format!(
        "routing = \"bgp\" needs FRR: {what}\n\
         fix: `scripts/install-deps` installs Debian's package without starting it; or bring the lab up with --routing static"
    ))
}

/// Returns FRR's own directory inside a node's directory.
pub fn directory(lab: &Lab, node: &str) -> PathBuf {
    lab.run.node(node).join("frr")
}

/// Returns the directory of programs that are made for a node: its `vtysh`.
pub fn programs(lab: &Lab, node: &str) -> PathBuf {
    lab.run.node(node).join("bin")
}

/// Writes the configurations of a node's daemons, and a `vtysh` that talks to these daemons only.
///
/// # Errors
/// The directory cannot be written.
pub fn prepare(lab: &Lab, frr: &Frr, node: &Node) -> Result<(), LabError> {
    let (own, bin) = (directory(lab, &node.name), programs(lab, &node.name));
    let shell = format!("#!/bin/sh\nexec {} {} \"$@\"\n", frr.vtysh.display(), shell_options(&own).join(" "));
    let files = [
        (own.join("zebra.conf"), zebra_conf(&lab.topology, node, &own), 0o640),
        (own.join("bgpd.conf"), bgpd_conf(&lab.topology, node, &own), 0o640),
        // vtysh complains if this file is missing.
        (own.join("vtysh.conf"), "no service integrated-vtysh-config\n".to_owned(), 0o640),
        (bin.join("vtysh"), shell, 0o755),
    ];
    for directory in [&own, &bin] {
        fs::create_dir_all(directory).map_err(|error| LabError::io("make", directory, &error))?;
    }
    for (file, text, mode) in &files {
        fs::write(file, text)
            .and_then(|()| fs::set_permissions(file, fs::Permissions::from_mode(*mode)))
            .map_err(|error| LabError::io("write", file, &error))?;
    }
    // The daemons give up root before they open any file.
    let (user, group) = frr.user;
    for file in files.iter().map(|(file, ..)| file).filter(|file| file.starts_with(&own)).chain([&own]) {
        let owned = chown(file, Some(user), Some(group));
        owned.map_err(|error| LabError::Failed(format!("cannot give {} to {USER}: {error}", file.display())))?;
    }
    Ok(())
}

/// Whether a node's configurations are written.
pub fn is_prepared(lab: &Lab, node: &Node) -> bool {
    programs(lab, &node.name).join("vtysh").exists()
}

/// Returns the options of `vtysh` for the daemons of a node.
fn shell_options(directory: &Path) -> [String; 4] {
    let directory = directory.display().to_string();
    ["--vty_socket".to_owned(), directory.clone(), "--config_dir".to_owned(), directory]
}

/// Starts zebra and bgpd of these nodes. All zebras are started first, because a bgpd that finds no zebra waits ten
/// seconds.
///
/// # Errors
/// One of them cannot be started, or the user pressed Ctrl-C.
pub fn start(lab: &Lab, frr: &Frr, nodes: &[&Node], interrupt: &Interrupt) -> Result<(), LabError> {
    let mut zebras = Vec::new();
    for node in nodes {
        // A zebra that was killed may have left its socket, which would look like that of a listening zebra.
        let socket = directory(lab, &node.name).join("zserv.api");
        let _ = fs::remove_file(&socket);
        zebras.push((*node, socket, launch(lab, frr, node, LabProgram::Zebra)?));
    }
    for (node, socket, mut zebra) in zebras {
        let opened = interrupt.wait_for(ZEBRA_WITHIN, || {
            let ended = zebra.try_wait().ok().flatten().map(|status| failed(lab, node, &format!("it ended: {status}")));
            ended.map_or(Ok(socket.exists().then_some(())), Err)
        })?;
        opened.ok_or_else(|| failed(lab, node, "it opens no socket"))?;
        launch(lab, frr, node, LabProgram::Bgpd)?;
    }
    Ok(())
}

/// Makes an error with the output of a zebra that did not start.
fn failed(lab: &Lab, node: &Node, why: &str) -> LabError {
    let own = directory(lab, &node.name);
    let said = ["zebra.out", "zebra.log"].map(|file| fs::read_to_string(own.join(file)).unwrap_or_default());
    LabError::Failed(format!("zebra of {} did not start, {why}\n{}", node.name, said.concat()))
}

fn launch(lab: &Lab, frr: &Frr, node: &Node, program: LabProgram) -> Result<Child, LabError> {
    let (own, name) = (directory(lab, &node.name), program.name());
    let file = |suffix: &str| own.join(format!("{name}{suffix}"));
    let binary = frr.daemons.join(name);
    let by_fpm = lab.topology.speaks_fpm(node);
    let child = lab.spawn(&node.name, &binary, &file(".out"), |command| {
        command.arg("-f").arg(file(".conf")).arg("-i").arg(file(".pid"));
        command.arg("-z").arg(own.join("zserv.api")).arg("--vty_socket").arg(&own);
        // The daemon opens no TCP port for terminals, because vtysh uses the sockets.
        command.args(["-P", "0"]);
        if program == LabProgram::Zebra {
            // Without this option, an IPv6 route is changed by deleting it and adding it again. Packets are lost in
            // between, and sometimes the deletion fails and the kernel keeps both routes.
            command.arg("--v6-rr-semantics");
            // Routes of an earlier zebra stay in the kernel until BGP has had time to announce them again.
            command.args(["--retain", "--graceful_restart", KEPT_SECONDS]);
            if by_fpm {
                command.args(["-M", "dplane_fpm_nl"]);
            }
        }
    })?;
    lab.record(&node.name, program, &child)?;
    Ok(child)
}
