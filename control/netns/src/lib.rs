//! Network namespaces: made, entered, changed and removed, and the programs of the system that this needs.
//!
//! A namespace is known by its name, as `ip netns` shows it. Whoever owns one for as long as a value lives holds a
//! [`Netns`]; what outlives its process (a lab) is made and deleted by name.

#![forbid(unsafe_code)]

mod owned;
mod program;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

pub use owned::{Netns, left_by, owner};
use program::ip;
pub use program::{has, in_own_group, run, tool};

/// Directory in which iproute2 keeps named namespaces.
const DIRECTORY: &str = "/run/netns";

/// Why something could not be done with a namespace. Each text names what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A command was refused.
    #[error("{0}")]
    Refused(String),
    /// A program or a file is missing, or the process may not use it.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    fn io(what: &str, path: &Path, why: &std::io::Error) -> Self {
        Self::Failed(format!("cannot {what} {}: {why}", path.display()))
    }
}

impl From<Error> for String {
    fn from(error: Error) -> Self {
        error.to_string()
    }
}

/// Returns the path of the file that keeps a namespace alive.
pub fn path(netns: &str) -> PathBuf {
    Path::new(DIRECTORY).join(netns)
}

/// Creates a namespace.
///
/// # Errors
/// It exists, or the process is not root.
pub fn create(netns: &str) -> Result<(), Error> {
    run(ip().args(["netns", "add", netns])).map(drop)
}

/// Deletes a namespace. It is no error if it is gone already.
///
/// # Errors
/// The kernel refuses.
pub fn delete(netns: &str) -> Result<(), Error> {
    if !path(netns).exists() {
        return Ok(());
    }
    run(ip().args(["netns", "del", netns])).map(drop)
}

/// Returns the command `ip netns exec NETNS PROGRAM`, which also shows the program the namespace's own `/sys`.
pub fn exec(netns: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = tool("ip");
    command.args(["netns", "exec", netns]).arg(program);
    command
}

/// Moves the calling thread into a namespace for good. Commands that it starts run there, too.
///
/// # Errors
/// The namespace does not exist, or the process is not root.
pub fn move_thread(netns: &str) -> Result<(), Error> {
    let file = path(netns);
    let handle = File::open(&file).map_err(|why| Error::io("open network namespace", &file, &why))?;
    setns(handle, CloneFlags::CLONE_NEWNET)
        .map_err(|why| Error::Failed(format!("cannot enter network namespace {netns}: {why}")))
}

/// Moves the calling thread for good into a new namespace that has no name. The kernel removes it, and every interface
/// in it, when the thread and the processes that it started have ended.
///
/// # Errors
/// The process is not root.
pub fn move_thread_to_new() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|why| Error::Failed(format!("cannot make a network namespace: {why}; run as root (sudo -E)")))
}

/// Runs `inside` on a thread that has entered the namespace. Commands that it starts run in the namespace.
///
/// # Errors
/// The errors are those of [`move_thread`] and of `inside`; a panic of `inside` is one, too.
pub fn enter<T: Send, E: From<Error> + Send>(
    netns: &str,
    inside: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let body = || move_thread(netns).map_err(E::from).and_then(|()| inside());
    thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|_| Err(Error::Failed(format!("a thread in network namespace {netns} died")).into()))
}

/// Passes several commands to one `ip` process in the namespace.
///
/// # Errors
/// `ip` cannot be run. [`Error::Refused`] names the first command that was refused, and why.
pub fn ip_batch(netns: &str, commands: &[String]) -> Result<(), Error> {
    batch(ip().args(["-n", netns]), commands).map_err(|error| match error {
        Error::Refused(why) => Error::Refused(format!("in {netns}: {why}")),
        failed @ Error::Failed(_) => failed,
    })
}

/// Like [`ip_batch`], but in the namespace of this thread.
///
/// # Errors
/// The errors are those of [`ip_batch`].
pub fn ip_batch_here(commands: &[String]) -> Result<(), Error> {
    batch(&mut ip(), commands)
}

fn batch(ip: &mut Command, commands: &[String]) -> Result<(), Error> {
    let command = ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |why: std::io::Error| Error::Failed(format!("cannot run ip: {why}\n{}", program::FIX));
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // ip stops reading at the first refused command. Then its error message is reported, not the broken pipe.
        let _ = stdin.write_all((commands.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    // The message is: "Command failed -:3".
    let line = complaint.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok()).unwrap_or(1);
    let refused = commands.get(line.saturating_sub(1)).map_or("", String::as_str);
    let reasons: Vec<&str> = complaint.lines().filter(|line| !line.starts_with("Command failed")).collect();
    Err(Error::Refused(format!("`ip {refused}` was refused: {}", reasons.join(" "))))
}

/// Writes kernel settings of the namespace. Each is given by its path below `/proc/sys/net`.
///
/// # Errors
/// This kernel has no such setting, or the process is not root.
pub fn sysctl<K: AsRef<str> + Sync>(netns: &str, settings: &[(K, &str)]) -> Result<(), Error> {
    enter(netns, || {
        for (key, value) in settings {
            let file = Path::new("/proc/sys/net").join(key.as_ref());
            fs::write(&file, value).map_err(|why| Error::io("write kernel setting", &file, &why))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test may panic")]
    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn a_namespace_is_entered_changed_and_removed() {
        let netns = Netns::unique("self").unwrap();
        ip_batch(&netns, &["link add one type veth peer name other".to_owned(), "link set lo up".to_owned()]).unwrap();
        sysctl(&netns, &[("ipv6/conf/one/disable_ipv6", "1")]).unwrap();
        let read = |file: &str| fs::read_to_string(file).map_err(|why| why.to_string());
        assert_eq!(enter(&netns, || read("/proc/sys/net/ipv6/conf/one/disable_ipv6")), Ok("1\n".to_owned()));
        assert!(!Path::new("/proc/sys/net/ipv6/conf/one").exists(), "this thread has stayed where it was");
        let refused = ip_batch(&netns, &["link set lo up".to_owned(), "link set two up".to_owned()]).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused(why) if why.contains("`ip link set two up` was refused")),
            "{refused}"
        );
        assert!(run(exec(&netns, "ip").args(["link", "show", "one"])).is_ok());
        let file = path(&netns);
        assert!(file.exists());
        drop(netns);
        assert!(!file.exists());
    }

    /// A Ctrl-C in a terminal sends a signal to the whole process group.
    #[test]
    fn what_changes_something_is_not_in_the_process_group_of_the_terminal() {
        let group = |process: &str| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
            // The name in parentheses is followed by the state, the parent and the process group.
            stat.rsplit(") ").next().unwrap().split(' ').nth(2).unwrap().to_owned()
        };
        let group_of_waiting = |mut command: Command| {
            let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            let group = group(&child.id().to_string());
            child.kill().unwrap();
            child.wait().unwrap();
            group
        };
        assert_ne!(group_of_waiting(ip()), group("self"));
        assert_eq!(group_of_waiting(tool("ip")), group("self"));
    }

    #[test]
    #[ignore = "needs root"]
    fn a_new_namespace_is_the_threads_own() {
        let link = |thread: &str| fs::read_link(format!("/proc/{thread}/ns/net")).unwrap();
        let inside = thread::spawn(move || {
            move_thread_to_new().unwrap();
            link("thread-self")
        });
        assert_ne!(inside.join().unwrap(), link("thread-self"));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let error = move_thread("srv6d-no-such-namespace").unwrap_err().to_string();
        assert!(error.contains("/run/netns/srv6d-no-such-namespace"), "{error}");
    }
}
