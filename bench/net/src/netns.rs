//! Network namespaces of the bench, and commands and threads in them.

use std::fs::File;
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
        let _ = tool("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
    }
}

/// A program of the system. `su` without a login shell leaves `sbin` out of the search path.
pub fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")).stdin(Stdio::null());
    command
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
