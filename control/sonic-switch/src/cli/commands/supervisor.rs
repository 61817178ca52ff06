//! `supervisorctl` and `supervisord`: control this process, which is the only one, and FRR beside it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::node::Node;
use super::tree::wrong;
use super::{config, frr};
use crate::cli::run;
use srv6d_command::{Failure, output};

/// Script by which Debian's package starts and stops FRR.
const FRR: &str = "/usr/lib/frr/frrinit.sh";

/// Programs of SONiC that belong to FRR.
const OF_FRR: [&str; 12] =
    ["bgpd", "zebra", "staticd", "isisd", "ospfd", "ospf6d", "pimd", "bfdd", "mgmtd", "pathd", "fpmsyncd", "bgpcfgd"];

/// Starts everything in the foreground. Options of the real supervisord (`-n`, `-c FILE`) have no effect here.
pub fn supervisord(root: &Path, socket: Option<PathBuf>) -> Result<(), Failure> {
    run::run_below(root, socket)
}

/// Carries out `supervisorctl status|start|stop|restart|reload|update [NAME]...`.
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
    let mut said = format!("srv6d                            RUNNING   pid {}, uptime {uptime}\n", view.pid);
    if has_frr(node) {
        let state = |daemon: &str| if frr::runs(node, daemon) { "RUNNING" } else { "STOPPED" };
        let is_shown = |daemon: &&str| ALWAYS.contains(daemon) || switched_off(node, daemon).is_none();
        let shown = ALWAYS.into_iter().chain(OPTIONAL).filter(is_shown);
        said.extend(shown.map(|daemon| format!("{daemon:<33}{}\n", state(daemon))));
    }
    output::print(&said)
}

/// Makes everything read its files again. Forwarding by unchanged entries continues.
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
    let ran = if frr { running(node) } else { Vec::new() };
    let is_running = |name: &str| ran.iter().any(|daemon| *daemon == daemon_of(name));
    let mut failure = None;
    if frr && (word != "start" || names.iter().any(|name| is_frr(name) && !is_running(name))) {
        // The script starts nothing while one of its daemons runs.
        let word = if word == "start" && !ran.is_empty() { "restart" } else { word };
        failure = frrinit(node, word).err();
    }
    let mut said = String::new();
    let mut refused = failure.is_some();
    for name in names {
        let off = (frr && word != "stop" && is_frr(name)).then(|| switched_off(node, name)).flatten();
        if let Some(why) = off {
            said.extend([name, ": ERROR (", &why, ")\n"]);
            refused = true;
            continue;
        }
        if word == "start" && is_frr(name) && is_running(name) {
            said.extend([name, ": ERROR (already started)\n"]);
            refused = true;
            continue;
        }
        if frr && word != "stop" && is_frr(name) && is_missing(node, name) {
            said.extend([name, ": ERROR (abnormal termination)\n"]);
            refused = true;
            continue;
        }
        let what: &[&str] = match (word, frr && is_frr(name)) {
            ("start", true) => &["started"],
            ("stop", true) => &["stopped"],
            (_, true) => &["stopped", "started"],
            // This is no error: scripts start the programs of a SONiC image, whose work srv6d does.
            (_, false) if is_frr(name) => &["FRR is not installed here, srv6d does without"],
            (_, false) => &["no program of its own here, nothing to do"],
        };
        said.extend(what.iter().map(|what| format!("{name}: {what}\n")));
    }
    if frr && word == "stop" {
        let others = ran.iter().filter(|daemon| !names.iter().any(|name| name == *daemon) && !frr::runs(node, daemon));
        said.extend(others.map(|daemon| format!("{daemon}: stopped, FRR ends as a whole\n")));
    }
    output::print(&said)?;
    match failure {
        Some(failure) => Err(failure),
        None if refused => Err(Failure::silent()),
        None => Ok(()),
    }
}

/// Returns FRR's daemons that run.
fn running(node: &Node) -> Vec<&'static str> {
    OF_FRR.into_iter().filter(|daemon| frr::runs(node, daemon)).collect()
}

/// Time for a started daemon to open its socket.
const STARTED: Duration = Duration::from_secs(3);

/// Returns the daemon that a name stands for. `bgp` is SONiC's name of the container with bgpd; zebra always runs.
fn daemon_of(name: &str) -> &str {
    match name {
        "bgp" => "bgpd",
        "frr" | "all" => "zebra",
        other => other,
    }
}

/// Returns whether a daemon of FRR that was started does not run.
fn is_missing(node: &Node, name: &str) -> bool {
    let daemon = daemon_of(name);
    // SONiC's own daemons do not run: srv6d does their work.
    if matches!(daemon, "fpmsyncd" | "bgpcfgd") {
        return false;
    }
    let end = Instant::now() + STARTED;
    while !frr::runs(node, daemon) {
        if Instant::now() >= end {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// The file that says which daemons FRR starts in addition to zebra, staticd and mgmtd, with a line `NAME=yes` for
/// each.
const DAEMONS: &str = "/etc/frr/daemons";
/// FRR's daemons that run without such a line.
const ALWAYS: [&str; 2] = ["zebra", "staticd"];
/// FRR's daemons that need such a line.
const OPTIONAL: [&str; 7] = ["bgpd", "isisd", "ospfd", "ospf6d", "pimd", "bfdd", "pathd"];

/// Returns why FRR does not start a daemon according to its `daemons` file.
fn switched_off(node: &Node, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(node.places.path(DAEMONS)).ok()?;
    let daemon = daemon_of(name);
    (OPTIONAL.contains(&daemon) && is_switched_off(&text, daemon))
        .then(|| format!("not started: {DAEMONS} does not say {daemon}=yes"))
}

/// Whether a `daemons` file does not enable this daemon. The file is a shell script, so the last assignment counts.
fn is_switched_off(daemons: &str, name: &str) -> bool {
    let value = daemons.lines().rev().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
    value.is_none_or(|value| value.trim_matches(['"', '\'']).trim_end() != "yes")
}

/// Returns the output of a start with its log. The script may write the reason to either stream.
fn reason(output: &std::process::Output) -> String {
    let lines = [&output.stderr, &output.stdout].map(|stream| String::from_utf8_lossy(stream).trim().to_owned());
    let said = lines.into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>().join("\n");
    if said.is_empty() { format!("it said nothing, and ended with {}", output.status) } else { said }
}

fn frrinit(node: &Node, word: &str) -> Result<(), Failure> {
    let script = node.places.path(FRR);
    let output = Command::new(&script).arg(word).output();
    let output = output.map_err(|why| Failure::failed(format!("Error: cannot run {}: {why}", script.display())))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("Error: {} {word}: {}", script.display(), reason(&output))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_on_where_its_last_line_says_yes() {
        for (file, off) in [
            ("bgpd=yes\n", false),
            ("bgpd=no\n", true),
            ("bgpd=no\nbgpd=\"yes\"\n", false),
            ("# bgpd=yes\n", true),
            ("bgpd_options=\"-A 127.0.0.1\"\n", true),
            ("", true),
        ] {
            assert_eq!(is_switched_off(file, "bgpd"), off, "{file}");
        }
    }
}
