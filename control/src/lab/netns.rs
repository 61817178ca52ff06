//! Network namespaces, and the commands run in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns};

use super::error::LabError;

/// Where iproute2 keeps named namespaces.
const DIRECTORY: &str = "/run/netns";

/// Name of a node's namespace.
pub fn name(lab: &str, node: &str) -> String {
    format!("srv6d-{lab}-{node}")
}

/// File that keeps a namespace alive.
pub fn path(netns: &str) -> PathBuf {
    Path::new(DIRECTORY).join(netns)
}

/// A program of the system. `su` without a login shell leaves `sbin` out of the search path.
pub fn tool(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end; what it complains about becomes the error.
pub fn run(command: &mut Command) -> Result<String, LabError> {
    let shown = [command.get_program()].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy());
    let shown = shown.collect::<Vec<_>>().join(" ");
    let output = command.output().map_err(|error| missing(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Failed(format!("`{shown}` failed ({}): {}", output.status, complaint.trim())))
}

fn missing(command: &Command, error: &std::io::Error) -> LabError {
    let program = command.get_program().to_string_lossy();
    LabError::Failed(format!(
        "cannot run {program}: {error}\nfix: install it: `sudo apt-get install iproute2 iputils-ping ethtool`"
    ))
}

/// Whoever made a namespace of that name, it is not ours to use or to delete.
pub fn refuse_existing(netns: &str) -> Result<(), LabError> {
    if path(netns).exists() {
        return Err(LabError::Failed(format!(
            "network namespace {netns} exists already, and no running lab owns it\n\
             fix: delete it with `ip netns del {netns}`, or choose another name with --name"
        )));
    }
    Ok(())
}

/// Makes a namespace.
pub fn create(netns: &str) -> Result<(), LabError> {
    run(tool("ip").args(["netns", "add", netns])).map(drop)
}

/// Deletes a namespace; one that is gone is fine.
pub fn delete(netns: &str) -> Result<(), LabError> {
    if !path(netns).exists() {
        return Ok(());
    }
    run(tool("ip").args(["netns", "del", netns])).map(drop)
}

/// `ip netns exec NETNS PROGRAM`: also shows the program the namespace's own `/sys`.
pub fn exec(netns: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = tool("ip");
    command.args(["netns", "exec", netns]).arg(program);
    command
}

/// Runs `inside` on a thread that has entered the namespace; commands it starts begin their life there.
pub fn enter<T: Send>(netns: &str, inside: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
    let file = path(netns);
    let body = || {
        let handle = File::open(&file).map_err(|error| LabError::io("open network namespace", &file, &error))?;
        setns(handle, CloneFlags::CLONE_NEWNET)
            .map_err(|error| LabError::Failed(format!("cannot enter network namespace {netns}: {error}")))?;
        inside()
    };
    thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|_| Err(LabError::Failed(format!("a thread in network namespace {netns} died"))))
}

/// Gives `ip` several commands at once, in the namespace; an error names the command that was refused.
pub fn ip_batch(netns: &str, commands: &[String]) -> Result<(), LabError> {
    let mut child = tool("ip")
        .args(["-n", netns, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(&tool("ip"), &error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // ip stops reading at the first refused command: what counts then is its complaint, not the broken pipe.
        let _ = stdin.write_all((commands.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| missing(&tool("ip"), &error))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    // "Command failed -:3"
    let line = complaint.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok()).unwrap_or(1);
    let refused = commands.get(line - 1).map_or("", String::as_str);
    let reason = complaint.lines().next().unwrap_or("no reason given");
    Err(LabError::Failed(format!("in {netns}: `ip {refused}` was refused: {reason}")))
}

/// Writes kernel settings of the namespace.
pub fn sysctl(netns: &str, settings: &[(String, &str)]) -> Result<(), LabError> {
    enter(netns, || {
        for (key, value) in settings {
            let file = Path::new("/proc/sys/net").join(key);
            fs::write(&file, value).map_err(|error| LabError::io("write kernel setting", &file, &error))?;
        }
        Ok(())
    })
}
