//! Network namespaces of the bench, and commands and threads in them.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::BenchError;

/// A network namespace that is deleted when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// First letters of the names of all namespaces of the bench; then the number of the process they belong to.
const PREFIXES: [&str; 2] = ["srv6d-bn", "srv6d-h"];

/// Removes the namespaces and files of processes that could not do it themselves, because they were killed.
pub fn sweep() -> Vec<String> {
    let left = left_by(|owner| !is_alive(owner));
    for name in &left {
        drop(Namespace { name: name.clone() });
        // srv6d's files of the bench are in a directory of the same name.
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(name));
    }
    left
}

/// Namespaces, and directories of the same name with srv6d's files, of these processes.
pub fn left_by(is_owner: impl Fn(u32) -> bool) -> Vec<String> {
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries(Path::new("/run/netns")).chain(entries(&std::env::temp_dir()));
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut left: Vec<String> = names.filter(|name| owner(name).is_some_and(&is_owner)).collect();
    left.sort_unstable();
    left.dedup();
    left
}

/// The process that a namespace of the bench belongs to.
fn owner(name: &str) -> Option<u32> {
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    rest.split_once('-')?.0.parse().ok()
}

fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

impl Namespace {
    /// Makes a namespace with loopback up.
    pub fn create(name: &str) -> Result<Self, BenchError> {
        run(tool("ip").args(["netns", "add", name]))?;
        let namespace = Self { name: name.to_owned() };
        namespace.shell("ip link set lo up")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command in the namespace, with the namespace's own /sys.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = tool("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// The same, asked to end when the calling thread ends, however that comes.
    pub fn dependent(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.command("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(program);
        command
    }

    /// Runs shell lines in the namespace; the first that fails is the error.
    pub fn shell(&self, lines: &str) -> Result<String, BenchError> {
        run(self.command("sh").args(["-ec", lines]))
    }

    /// Moves the calling thread into the namespace.
    pub fn enter(&self) -> Result<(), BenchError> {
        let file = self.path();
        let handle = File::open(&file).map_err(|why| BenchError::of(format!("open {}", file.display()), why))?;
        setns(handle, CloneFlags::CLONE_NEWNET)
            .map_err(|why| BenchError::of(format!("enter network namespace {}", self.name), why))
    }

    /// Runs `body` on a thread in the namespace.
    pub fn inside<T: Send>(&self, body: impl FnOnce() -> Result<T, BenchError> + Send) -> Result<T, BenchError> {
        thread::scope(|scope| scope.spawn(|| self.enter().and_then(|()| body())).join())
            .unwrap_or_else(|_| Err(BenchError(format!("a thread in network namespace {} died", self.name))))
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.path().exists() {
            return;
        }
        let _ = tool("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
    }
}

/// A program of the system.
pub fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    // A group of its own: a terminal's Ctrl-C is for the bench, which ends what it has begun.
    command.env("PATH", search_path()).stdin(Stdio::null()).process_group(0);
    command
}

/// Whether there is such a program.
pub fn has(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|directory| directory.join(program).is_file())
}

/// `su` without a login shell leaves `sbin` out of it.
fn search_path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Runs a command to its end; what it complains about becomes the error.
pub fn run(command: &mut Command) -> Result<String, BenchError> {
    let shown = [command.get_program()].into_iter().chain(command.get_args());
    let shown = shown.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.output().map_err(|why| {
        BenchError(format!("cannot run `{shown}`: {why}. Fix: sudo apt-get install iproute2 ethtool"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(BenchError(format!("`{shown}` failed ({}): {}", output.status, complaint.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn only_namespaces_of_the_bench_have_an_owner() {
        assert_eq!(owner("srv6d-bn4711-0a1b-gen"), Some(4711));
        assert_eq!(owner("srv6d-h4711-far"), Some(4711));
        for other in ["srv6d-bnfoo-dut", "srv6d-4711-leaf00", "srv6d-host00-1", "srv6d-bn4711", "mine"] {
            assert_eq!(owner(other), None, "{other}");
        }
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }

    #[test]
    fn a_program_that_is_missing_is_known_before_it_is_wanted() {
        assert!(has("sh") && !has("srv6d-no-such-program"));
    }

    #[test]
    #[ignore = "needs root"]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let mut gone = Command::new("true").spawn().unwrap();
        let dead = gone.id();
        gone.wait().unwrap();
        let left = Namespace::create(&format!("srv6d-bn{dead}-test-dut")).unwrap();
        let mine = Namespace::create(&format!("srv6d-bn{}-sweep-dut", std::process::id())).unwrap();
        // Killed after its namespace had gone.
        let files = std::env::temp_dir().join(format!("srv6d-bn{dead}-files-dut"));
        std::fs::create_dir(&files).unwrap();
        assert!(sweep().contains(&left.name), "{}", left.name);
        assert!(!left.path().exists() && !files.exists() && mine.path().exists());
    }
}
