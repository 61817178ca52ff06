//! A child process that removes the own veth when srv6d is killed.
//!
//! Routes and veths belong to nobody: after kill -9 they would stay, and swallow what local applications send. XDP
//! programs go with the process (`bpf_link`), links do not. So a tiny process waits at the other end of a pipe; when
//! the pipe closes without a farewell, it deletes the link, and the kernel's own routes underneath take over.

use std::io::{BufRead, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use super::{KernelError, system};

/// Argument by which the binary knows that it is the guard.
pub const ARGUMENT: &str = "guard";
/// Not the daemon's name, so that `pkill srv6d` does not hit it.
const NAME: &std::ffi::CStr = c"srv6-guard";
const FAREWELL: &str = "bye";

/// The parent's end.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard of the link with this name and index.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(interface: &str, ifindex: u32) -> Result<Self, KernelError> {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new("/proc/self/exe")
            .arg0("srv6-guard")
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(system("start the guard process"))?;
        let mut pipe = child.stdin.take();
        if let Some(pipe) = &mut pipe {
            writeln!(pipe, "{interface} {ifindex}").map_err(system("talk to the guard process"))?;
        }
        Ok(Self { child, pipe })
    }

    /// It has ended: another one is needed.
    pub fn is_dead(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The link was removed in good order: nothing is left to do.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(FAREWELL.as_bytes()); // a dead guard needs no farewell
        }
        let _ = self.child.wait(); // reaped, whatever it says
    }
}

/// What the guard process does.
pub fn main() -> ExitCode {
    let _ = nix::unistd::setsid(); // fails where it leads a session already
    let _ = nix::sys::prctl::set_name(NAME); // a name is a comfort
    let mut pipe = std::io::stdin().lock();
    let (mut first, mut last) = (String::new(), String::new());
    if pipe.read_line(&mut first).is_err() {
        return ExitCode::FAILURE;
    }
    let _ = pipe.read_to_string(&mut last); // until the parent is gone
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
            // The link last: the next srv6d waits for its end, and then makes rules and routes of its own.
            let emptied = super::remove_leftovers(&handle, name).await;
            handle.link().del(ifindex).execute().await.ok()?;
            emptied.ok()?;
        }
        Some(())
    })
}
