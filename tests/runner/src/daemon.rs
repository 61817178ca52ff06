//! A running `srv6d` in a network namespace, controlled over its management socket.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use srv6d_api::client::ask;
use srv6d_api::state::{CountersView, Health, PathStatus, SidStatus};
use srv6d_api::{Request, Response, Topic};

use srv6d_netns::Netns;

/// Limit on the time that srv6d may take for anything.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Settings in front of every configuration: little packet memory, no port for metrics.
const SURROUNDINGS: &str = "[workers]\nframes = 4096\nring = 256\n[api]\nmetrics = \"off\"\n";

/// Calls `probe` until it returns a value.
///
/// # Errors
/// If there was no value in time. `what` names what was waited for.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("no {what} within {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A running srv6d: its process, and the directory with its configuration, socket and log.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Starts `program run` in a namespace, without any ports.
    ///
    /// # Errors
    /// If it does not start, or does not answer in time.
    pub fn start(program: &Path, netns: &Netns) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(&**netns);
        fs::create_dir_all(&directory).map_err(|why| format!("{}: {why}", directory.display()))?;
        let (config, log) = (directory.join("srv6d.toml"), directory.join("log"));
        fs::write(&config, SURROUNDINGS).map_err(|why| format!("{}: {why}", config.display()))?;
        let log = File::create(&log).map_err(|why| format!("{}: {why}", log.display()))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &**netns]).arg(program).arg("run").arg("--config").arg(&config);
        command.env("SRV6D_SOCKET", directory.join("socket")).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|why| format!("{}: {why}", program.display()))?;
        let daemon = Self { child, directory };
        wait_for("answer of srv6d", || Ok(daemon.counters().ok())).map_err(|why| format!("{why}\n{}", daemon.log()))?;
        Ok(daemon)
    }

    /// Returns the log: what it has written to standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn ask(&self, request: &Request) -> Result<Response, String> {
        ask(&self.directory.join("socket"), request).map_err(|why| why.to_string())
    }

    fn show(&self, topic: Topic) -> Result<Response, String> {
        self.ask(&Request::Show { topic })
    }

    /// Replaces the configuration in force. `Ok(Err)` contains the reason for a refusal.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn reload(&self, config: &str) -> Result<Result<(), String>, String> {
        let file = self.directory.join("srv6d.toml");
        fs::write(&file, format!("{SURROUNDINGS}{config}")).map_err(|why| format!("{}: {why}", file.display()))?;
        match self.ask(&Request::Reload { dry_run: false })? {
            Response::Reloaded(taken) if taken.pending.is_empty() => Ok(Ok(())),
            Response::Reloaded(taken) => Err(format!("not all of it is in force: {}", taken.pending.join("; "))),
            Response::Refused(refusal) => Ok(Err(refusal.errors.join("\n"))),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    /// Returns the number of the generation in force.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn generation(&self) -> Result<u64, String> {
        match self.show(Topic::Generation)? {
            Response::Generation(view) => Ok(view.generations.iter().map(|row| row.generation).max().unwrap_or(0)),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    /// Returns the result of `show counters`.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn counters(&self) -> Result<CountersView, String> {
        match self.show(Topic::Counters)? {
            Response::Counters(view) => Ok(*view),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    /// Returns the Ethernet address of srv6d's own veth, which both ends use.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn own_veth_mac(&self) -> Result<String, String> {
        let own = self.counters()?.ports.into_iter().find(|port| port.role == "kernel");
        own.and_then(|port| port.mac).ok_or_else(|| "srv6d has no port into the kernel".to_owned())
    }

    fn sids(&self) -> Result<Vec<SidStatus>, String> {
        match self.show(Topic::Sids)? {
            Response::Sids(rows) => Ok(rows),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    fn paths(&self) -> Result<Vec<PathStatus>, String> {
        match self.show(Topic::Paths)? {
            Response::Paths(rows) => Ok(rows),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    /// Returns all counters under their names in the conformance pack.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn tally(&self) -> Result<CounterReading, String> {
        let view = self.counters()?;
        let mut tally = CounterReading::of(&view);
        for row in self.sids()? {
            *tally.counters.entry(format!("sid.{}", row.sid)).or_default() += row.packets;
        }
        for row in self.paths()? {
            *tally.counters.entry(format!("path.{}", row.path)).or_default() += row.packets;
        }
        Ok(tally)
    }

    /// Returns whether every port is in the state of its device.
    ///
    /// # Errors
    /// If srv6d does not answer as expected.
    pub fn ports_are(&self, is_up: impl Fn(&str) -> bool) -> Result<bool, String> {
        let settled = |name: &str, state: Health| (state == Health::Up) == is_up(name);
        Ok(self.counters()?.ports.iter().all(|port| settled(&port.device, port.state)))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let told = i32::try_from(self.child.id()).map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM));
        let ended = told.is_ok() && wait_for("end", || Ok(self.child.try_wait().ok().flatten())).is_ok();
        if !ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Counters at one point in time.
#[derive(Clone, Debug, Default)]
pub struct CounterReading {
    /// Counters by their names in the pack.
    pub counters: BTreeMap<String, u64>,
    /// Number of frames that the XDP programs did not claim and left to the kernel.
    pub unclaimed: u64,
    /// Number of frames that XDP programs forwarded.
    pub offloaded: u64,
    /// Whether every packet is accounted for, which is not so while a packet is being processed.
    pub is_balanced: bool,
}

impl CounterReading {
    fn of(view: &CountersView) -> Self {
        let plain = [("rx", view.rx), ("tx", view.tx), ("kernel", view.kernel), ("held", view.held)];
        let mut counters: BTreeMap<String, u64> =
            plain.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        counters.extend(view.reply.iter().map(|row| (format!("reply.{}", row.reason), row.packets)));
        counters.extend(view.drop.iter().map(|row| (format!("drop.{}", row.reason), row.packets)));
        let unclaimed = view.ports.iter().map(|port| port.to_kernel).sum();
        Self { counters, unclaimed, offloaded: view.offloaded, is_balanced: view.balanced }
    }

    /// Returns what has been counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(name, count): (&String, &u64)| {
            (name.clone(), count.saturating_sub(before.counters.get(name).copied().unwrap_or(0)))
        };
        Self {
            counters: self.counters.iter().map(grown).collect(),
            unclaimed: self.unclaimed.saturating_sub(before.unclaimed),
            offloaded: self.offloaded.saturating_sub(before.offloaded),
            is_balanced: self.is_balanced,
        }
    }

    /// Returns the sum of all counters whose names begin with one of these prefixes.
    pub fn sum(&self, prefixes: &[&str]) -> u64 {
        let counts = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.counters.iter().filter(|(name, _)| counts(name)).map(|(_, count)| count).sum()
    }
}
