//! Network namespaces that go when they are dropped.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};

/// A network namespace.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new one, with a name nobody else has.
    ///
    /// # Errors
    /// It could not be made: most likely for want of root.
    pub fn new(what: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("srv6d-{}-{}-{what}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("ip").args(["netns", "add", &name]).output().map_err(|why| format!("ip: {why}"))?;
        if !made.status.success() {
            return Err(format!("ip netns add {name}: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        Ok(Self { name })
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves this thread into the namespace, for good.
    ///
    /// # Errors
    /// The namespace could not be entered.
    pub fn move_here(&self) -> Result<(), String> {
        let path = format!("/run/netns/{}", self.name);
        let handle = File::open(&path).map_err(|why| format!("{path}: {why}"))?;
        setns(handle, CloneFlags::CLONE_NEWNET).map_err(|why| format!("enter {}: {why}", self.name))
    }

    /// Runs `inside` on a thread that has entered the namespace.
    ///
    /// # Errors
    /// Those of `inside`; the namespace could not be entered.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        let body = || self.move_here().and_then(|()| inside());
        thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|_| Err("a thread died".to_owned()))
    }

    /// Writes kernel settings, by their path below `/proc/sys/net`.
    ///
    /// # Errors
    /// This kernel has no such setting.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<(), String> {
        self.enter(|| {
            settings.iter().try_for_each(|(key, value)| {
                fs::write(format!("/proc/sys/net/{key}"), value).map_err(|why| format!("sysctl {key}: {why}"))
            })
        })
    }

    /// Gives `ip` several commands at once. `Ok(Err)` is the complaint about the first one that was refused.
    ///
    /// # Errors
    /// `ip` could not be run.
    pub fn ip(&self, commands: &[String]) -> Result<Result<(), String>, String> {
        batch(Command::new("ip").args(["-n", &self.name]), commands)
    }

    /// The same for commands that must not be refused.
    ///
    /// # Errors
    /// One was.
    pub fn must(&self, commands: &[String]) -> Result<(), String> {
        self.ip(commands)?
    }
}

/// Gives `ip` several commands for the namespace that this thread is in. None of them may be refused.
///
/// # Errors
/// One was.
pub fn ip_here(commands: &[String]) -> Result<(), String> {
    batch(&mut Command::new("ip"), commands)?
}

fn batch(ip: &mut Command, commands: &[String]) -> Result<Result<(), String>, String> {
    let command = ip.args(["-batch", "-"]);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = pipes.spawn().map_err(|why| format!("ip: {why}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // `ip` stops reading at the first refused command: what counts then is its complaint, not the broken pipe.
        let _ = stdin.write_all((commands.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(|why| format!("ip: {why}"))?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    // "Command failed -:3"
    let line = complaint.rsplit("-:").next().and_then(|tail| tail.trim().parse::<usize>().ok()).unwrap_or(1);
    let refused = commands.get(line.saturating_sub(1)).map_or("", String::as_str);
    let reasons: Vec<&str> = complaint.lines().filter(|line| !line.starts_with("Command failed")).collect();
    Ok(Err(format!("ip {refused}: {}", reasons.join(" "))))
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}
