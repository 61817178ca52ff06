//! `supervisorctl` and `supervisord`: the one process that there is, and FRR's beside it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::node::Node;
use super::tree::wrong;
use super::{config, frr};
use crate::cli::output::{self, Failure};
use crate::cli::sonic::run;

/// How Debian's package starts and stops FRR.
const FRR: &str = "/usr/lib/frr/frrinit.sh";

/// Programs of SONiC that are FRR.
const OF_FRR: [&str; 12] =
    ["bgpd", "zebra", "staticd", "isisd", "ospfd", "ospf6d", "pimd", "bfdd", "mgmtd", "pathd", "fpmsyncd", "bgpcfgd"];

/// Starts everything, in the foreground. Its own options (`-n`, `-c FILE`) change nothing here.
pub fn supervisord(root: &Path, socket: Option<PathBuf>) -> Result<(), Failure> {
    run::run_below(root, socket)
}

/// `supervisorctl status|start|stop|restart|reload|update [NAME]...`
pub fn supervisorctl(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (word, names) = match arguments.split_first() {
        Some((word, names)) => (word.as_str(), names),
        None => ("status", arguments),
    };
    match word {
        "status" => status(node),
        "reload" | "update" | "reread" => restart_all(node),
        "restart" if names.iter().any(|name| name == "all") => restart_all(node),
        "start" | "stop" | "restart" => each(node, word, names),
        "pid" => output::print(&format!("{}\n", node.generation()?.pid)),
        other => Err(wrong("supervisorctl", &format!("unknown command: {other}"))),
    }
}

fn status(node: &Node) -> Result<(), Failure> {
    let Ok(view) = node.generation() else {
        output::print("srv6d                            STOPPED   Not started\n")?;
        return Err(Failure::stopped());
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(view.started)).unwrap_or_default();
    let seconds = since.as_secs();
    let uptime = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let frr = if frr::vtysh(node).is_some() { "frr                              RUNNING\n" } else { "" };
    output::print(&format!("srv6d                            RUNNING   pid {}, uptime {uptime}\n{frr}", view.pid))
}

/// Everything reads its files again; what they do not change goes on forwarding.
fn restart_all(node: &Node) -> Result<(), Failure> {
    if has_frr(node) {
        frrinit(node, "restart")?;
    }
    config::reload_files(node, None)?;
    output::print("srv6d: stopped\nsrv6d: started\n")
}

fn has_frr(node: &Node) -> bool {
    node.places.path(FRR).exists()
}

fn each(node: &Node, word: &str, names: &[String]) -> Result<(), Failure> {
    let is_frr = |name: &String| OF_FRR.contains(&name.as_str()) || name == "frr" || name == "bgp" || name == "all";
    let frr = names.iter().any(is_frr) && has_frr(node);
    if frr {
        frrinit(node, word)?;
    }
    let mut said = String::new();
    for name in names {
        let what: &[&str] = match (word, frr && is_frr(name)) {
            ("start", true) => &["started"],
            ("stop", true) => &["stopped"],
            (_, true) => &["stopped", "started"],
            // Not an error: scripts start what an image of SONiC has, and srv6d does its work.
            (_, false) if is_frr(name) => &["FRR is not installed here, srv6d does without"],
            (_, false) => &["no program of its own here, nothing to do"],
        };
        said.extend(what.iter().map(|what| format!("{name}: {what}\n")));
    }
    output::print(&said)
}

fn frrinit(node: &Node, word: &str) -> Result<(), Failure> {
    let script = node.places.path(FRR);
    let output = Command::new(&script).arg(word).output();
    let output = output.map_err(|why| Failure::failed(format!("Error: cannot run {}: {why}", script.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(format!("Error: {} {word}: {}", script.display(), said.trim())))
}
