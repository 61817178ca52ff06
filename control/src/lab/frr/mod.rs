//! FRR in the namespaces of a lab: a zebra and a bgpd for every leaf and spine.
//!
//! ```text
//! bgpd ──zserv.api──► zebra ──netlink──► the namespace's kernel ──netlink──► srv6d, which follows it
//!                           or ──FPM, TCP port 2620──────────────────► srv6d, which knows nothing of the kernel's
//! ```
//!
//! Configurations, sockets, pids and logs lie in the node's directory of the lab, so nothing here meets an FRR that the
//! machine itself runs.

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
use super::state::Program;
use super::topology::Node;

pub use config::{as_number, bgpd_conf, zebra_conf};
pub use sessions::{Session, sessions};

/// Where packages put the daemons.
const PLACES: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/local/sbin"];
/// The shell, which is for everybody.
const SHELLS: [&str; 3] = ["/usr/bin/vtysh", "/usr/local/bin/vtysh", "/usr/sbin/vtysh"];
/// The user that FRR's daemons become.
const USER: &str = "frr";
/// How long a zebra that starts keeps routes that it finds and that nobody announces, in seconds.
const KEPT_SECONDS: &str = "15";
/// zebra opens its socket at once, or never.
const ZEBRA_WITHIN: Duration = Duration::from_secs(30);

/// An installed FRR.
#[derive(Clone, Debug)]
pub struct Frr {
    daemons: PathBuf,
    vtysh: PathBuf,
    user: (Uid, Gid),
}

impl Frr {
    /// Looks for it.
    ///
    /// # Errors
    /// It is not installed.
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

/// FRR's own directory in that of a node.
pub fn directory(lab: &Lab, node: &str) -> PathBuf {
    lab.run.node(node).join("frr")
}

/// Directory of programs that are made for a node: its `vtysh`.
pub fn programs(lab: &Lab, node: &str) -> PathBuf {
    lab.run.node(node).join("bin")
}

/// Writes the configurations of a node's daemons, and a `vtysh` that asks them and no others.
///
/// # Errors
/// The directory cannot be written.
pub fn prepare(lab: &Lab, frr: &Frr, node: &Node) -> Result<(), LabError> {
    let (own, bin) = (directory(lab, &node.name), programs(lab, &node.name));
    let shell = format!("#!/bin/sh\nexec {} {} \"$@\"\n", frr.vtysh.display(), shell_options(&own).join(" "));
    let files = [
        (own.join("zebra.conf"), zebra_conf(&lab.topology, node, &own), 0o640),
        (own.join("bgpd.conf"), bgpd_conf(&lab.topology, node, &own), 0o640),
        // vtysh complains about a missing one.
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
    // The daemons give up root before they open anything.
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

/// Options of `vtysh` for the daemons of a node.
fn shell_options(directory: &Path) -> [String; 4] {
    let directory = directory.display().to_string();
    ["--vty_socket".to_owned(), directory.clone(), "--config_dir".to_owned(), directory]
}

/// Starts zebra and bgpd of these nodes: every zebra first, because a bgpd that finds no zebra waits ten seconds.
///
/// # Errors
/// One of them cannot be started, or Ctrl-C.
pub fn start(lab: &Lab, frr: &Frr, nodes: &[&Node], interrupt: &Interrupt) -> Result<(), LabError> {
    let mut zebras = Vec::new();
    for node in nodes {
        // Left by one that was killed: it would look like a zebra that listens.
        let socket = directory(lab, &node.name).join("zserv.api");
        let _ = fs::remove_file(&socket);
        zebras.push((*node, socket, launch(lab, frr, node, Program::Zebra)?));
    }
    for (node, socket, mut zebra) in zebras {
        let opened = interrupt.wait_for(ZEBRA_WITHIN, || {
            let ended = zebra.try_wait().ok().flatten().map(|status| failed(lab, node, &format!("it ended: {status}")));
            ended.map_or(Ok(socket.exists().then_some(())), Err)
        })?;
        opened.ok_or_else(|| failed(lab, node, "it opens no socket"))?;
        launch(lab, frr, node, Program::Bgpd)?;
    }
    Ok(())
}

/// What a zebra said that did not start.
fn failed(lab: &Lab, node: &Node, why: &str) -> LabError {
    let own = directory(lab, &node.name);
    let said = ["zebra.out", "zebra.log"].map(|file| fs::read_to_string(own.join(file)).unwrap_or_default());
    LabError::Failed(format!("zebra of {} did not start, {why}\n{}", node.name, said.concat()))
}

fn launch(lab: &Lab, frr: &Frr, node: &Node, program: Program) -> Result<Child, LabError> {
    let (own, name) = (directory(lab, &node.name), program.name());
    let file = |suffix: &str| own.join(format!("{name}{suffix}"));
    let binary = frr.daemons.join(name);
    let by_fpm = lab.topology.speaks_fpm(node);
    let child = lab.spawn(&node.name, &binary, &file(".out"), |command| {
        command.arg("-f").arg(file(".conf")).arg("-i").arg(file(".pid"));
        command.arg("-z").arg(own.join("zserv.api")).arg("--vty_socket").arg(&own);
        // No TCP port for the terminal: vtysh uses the sockets.
        command.args(["-P", "0"]);
        if program == Program::Zebra {
            // Otherwise an IPv6 route is deleted and added again: packets fall into the gap, and now and then the
            // deletion misses, and the kernel keeps both.
            command.arg("--v6-rr-semantics");
            // Routes of an earlier zebra stay in the kernel until BGP has had time to say them anew.
            command.args(["--retain", "--graceful_restart", KEPT_SECONDS]);
            if by_fpm {
                command.args(["-M", "dplane_fpm_nl"]);
            }
        }
    })?;
    lab.record(&node.name, program, &child)?;
    Ok(child)
}
