//! Network namespaces of the bench, and commands and threads in them.

use std::ffi::OsStr;
use std::ops::Deref;
use std::process::{Child, Command};

use srv6d_netns::{self as netns, Netns, in_own_group};

use crate::BenchError;

pub use srv6d_netns::has;

/// A network namespace of the bench. It stands for its name, and is deleted when this value is dropped.
#[derive(Debug)]
pub struct Namespace(Netns);

/// Prefixes of the names of all namespaces of the bench. The id of the owning process follows.
const PREFIXES: [&str; 2] = ["srv6d-bn", "srv6d-h"];

/// Removes namespaces and files of processes that were killed before they could do so. Returns their names.
pub fn sweep() -> Vec<String> {
    let left = left_by(|owner| !is_alive(owner));
    for name in &left {
        drop(Netns::adopt(name.clone()));
        // A directory of the same name contains the files of srv6d.
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(name));
    }
    left
}

/// Returns the names of namespaces, and of the directories with srv6d's files, that belong to these processes.
pub fn left_by(is_owner: impl Fn(u32) -> bool) -> Vec<String> {
    netns::left_by(&PREFIXES, &std::env::temp_dir(), is_owner)
}

fn is_alive(process: u32) -> bool {
    std::path::Path::new("/proc").join(process.to_string()).exists()
}

impl Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Namespace {
    /// Creates a namespace with the loopback device up.
    pub fn create(name: &str) -> Result<Self, BenchError> {
        let namespace = Self(Netns::create(name)?);
        namespace.shell("ip link set lo up")?;
        Ok(namespace)
    }

    /// Makes a command that runs in the namespace with the namespace's own /sys.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        in_own_group(netns::exec(self, program))
    }

    /// Like [`Namespace::command`], but the command gets SIGTERM when the calling thread ends for whatever reason.
    pub fn dependent(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(program);
        command
    }

    /// Runs shell commands in the namespace. The first one that fails becomes the error.
    pub fn shell(&self, lines: &str) -> Result<String, BenchError> {
        run(self.command("sh").args(["-ec", lines]))
    }
}

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a command of a system program. A Ctrl-C in the terminal is meant for the bench, which then ends it itself.
pub fn tool(program: &str) -> Command {
    in_own_group(netns::tool(program))
}

/// Runs a command to its end and returns its output. If it fails, its messages become the error.
pub fn run(command: &mut Command) -> Result<String, BenchError> {
    Ok(netns::run(command)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn only_namespaces_of_the_bench_have_an_owner() {
        let owner = |name: &str| netns::owner(name, &PREFIXES);
        assert_eq!(owner("srv6d-bn4711-0a1b-gen"), Some(4711));
        assert_eq!(owner("srv6d-h4711-far"), Some(4711));
        for other in ["srv6d-bnfoo-dut", "srv6d-4711-leaf00", "srv6d-host00-1", "srv6d-bn4711", "mine"] {
            assert_eq!(owner(other), None, "{other}");
        }
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }

    #[test]
    #[ignore = "needs root"]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let mut gone = Command::new("true").spawn().unwrap();
        let dead = gone.id();
        gone.wait().unwrap();
        let left = Namespace::create(&format!("srv6d-bn{dead}-test-dut")).unwrap();
        let mine = Namespace::create(&format!("srv6d-bn{}-sweep-dut", std::process::id())).unwrap();
        // This one was killed after its namespace had been removed.
        let files = std::env::temp_dir().join(format!("srv6d-bn{dead}-files-dut"));
        std::fs::create_dir(&files).unwrap();
        assert!(sweep().iter().any(|name| **name == *left), "{}", &*left);
        assert!(!netns::path(&left).exists() && !files.exists() && netns::path(&mine).exists());
    }
}
