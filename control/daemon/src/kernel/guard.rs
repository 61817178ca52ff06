//! Child processes that remove the own veth when srv6d is killed.
//!
//! Routes and veths belong to no process: after kill -9 they would stay and swallow what local applications send. XDP
//! programs end with the process (`bpf_link`), links do not. So a small process waits at the other end of a pipe. When
//! the pipe closes without a farewell, it deletes the link, and the kernel's own routes underneath become active again.
//! There are two such processes, and either of them is enough.

use std::io::{BufRead, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use super::{KernelError, system};
use crate::confine::{OF_THE_GUARD, confine, only_change_below};

/// Argument that makes the binary run as the guard.
pub const ARGUMENT: &str = "guard";
/// Name of the guard process. It differs from the daemon's name, so that `pkill srv6d` does not kill it.
const NAME: &std::ffi::CStr = c"srv6-guard";
const FAREWELL: &str = "bye";

/// Number of guards, so that one remains if one is killed. None can be started later, because the daemon may not
/// execute programs.
const GUARDS: usize = 2;

/// The daemon's end of the pipe to one guard.
#[derive(Debug)]
struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    fn spawn() -> Result<Self, KernelError> {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new("/proc/self/exe")
            .arg0("srv6-guard")
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(system("start a guard process"))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    fn say(&mut self, words: &str) -> std::io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(words.as_bytes()))
    }
}

/// The guard processes.
#[derive(Debug)]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Starts the guards. [`watch`](Self::watch) tells them later what they guard.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn spawn() -> Result<Self, KernelError> {
        (0..GUARDS).map(|_| Guard::spawn()).collect::<Result<_, _>>().map(Self)
    }

    /// Tells the guards the name and index of the link that they guard from now on.
    ///
    /// # Errors
    /// All guards have ended.
    pub fn watch(&mut self, interface: &str, ifindex: u32) -> Result<(), KernelError> {
        let told = self.0.iter_mut().map(|guard| guard.say(&format!("{interface} {ifindex}\n")));
        let failed: Vec<std::io::Error> = told.filter_map(Result::err).collect();
        match failed.into_iter().next_back() {
            Some(why) if self.alive() == 0 => Err(system("talk to a guard process")(why)),
            _ => Ok(()),
        }
    }

    /// Number of guards that have not ended.
    pub fn alive(&mut self) -> usize {
        self.0.retain_mut(|guard| matches!(guard.child.try_wait(), Ok(None)));
        self.0.len()
    }

    /// Ends the guards. The link has been removed already, so they have nothing left to do.
    pub fn dismiss(self) {
        for mut guard in self.0 {
            let _ = guard.say(FAREWELL); // a dead guard needs no farewell
            drop(guard.pipe.take());
            let _ = guard.child.wait(); // reaped, whatever it says
        }
    }
}

/// Runs the guard process.
pub fn main() -> ExitCode {
    let _ = nix::unistd::setsid(); // fails if it leads a session already
    let _ = nix::sys::prctl::set_name(NAME); // the name only helps readers of process lists
    // If these steps fail, the guard works without being confined.
    let _ = only_change_below(&[]);
    let _ = confine(&OF_THE_GUARD);
    let mut pipe = std::io::stdin().lock();
    let (mut first, mut last) = (String::new(), String::new());
    if pipe.read_line(&mut first).is_err() {
        return ExitCode::FAILURE;
    }
    let _ = pipe.read_to_string(&mut last); // blocks until the parent has ended
    let (Some((name, index)), false) = (first.trim().split_once(' '), last.starts_with(FAREWELL)) else {
        return ExitCode::SUCCESS;
    };
    match index.parse().map(|index| remove(name, index)) {
        Ok(Some(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Deletes the link if name and index still belong together.
fn remove(name: &str, ifindex: u32) -> Option<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().ok()?;
        tokio::spawn(connection);
        let link = super::veth::find(&handle, name).await.ok()??;
        if link.header.index == ifindex {
            // The link is deleted last: the next srv6d waits until it is gone, and then makes rules and routes of its
            // own.
            let emptied = super::remove_leftovers(&handle, name).await;
            handle.link().del(ifindex).execute().await.ok()?;
            emptied.ok()?;
        }
        Some(())
    })
}
