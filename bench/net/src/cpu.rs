//! Work of cores and threads: `/proc/stat` and `schedstat`.
//!
//! The kernel measures how long a core was idle, but only samples at its tick what the core did otherwise. The tick
//! stops while a core is idle, so interrupts that begin and end in that time, such as those of a timer that polls a
//! device, appear in no sample. According to the samples alone, a core that forwards 400,000 packets per second from a
//! timer would do nothing at all.

use std::collections::BTreeMap;
use std::fs;

use crate::BenchError;

/// `/proc` counts in hundredths of a second on every architecture Linux runs on (`USER_HZ`).
const TICK: f64 = 0.01;

/// State of cores and threads at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Work of each core since boot.
    cores: BTreeMap<usize, Core>,
    /// Waiting time of each thread since its start.
    threads: BTreeMap<i32, Thread>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Core {
    /// Work according to samples.
    busy: Busy,
    /// Idle time as measured.
    idle: f64,
    stolen: f64,
}

/// Work of a core in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Busy {
    /// Time in programs.
    pub user: f64,
    /// Time in the kernel on behalf of programs and of its own threads: `sendto`, threaded NAPI.
    pub system: f64,
    /// Time in interrupts and softirqs.
    pub interrupts: f64,
}

impl Busy {
    /// Returns the total time.
    pub fn total(self) -> f64 {
        self.user + self.system + self.interrupts
    }

    /// Returns the work as shares of this time.
    #[must_use]
    pub fn share_of(self, seconds: f64) -> Self {
        Self { user: self.user / seconds, system: self.system / seconds, interrupts: self.interrupts / seconds }
    }
}

impl Core {
    /// Returns the work since `before`, which was `seconds` ago. Time in programs is sampled correctly; all other time
    /// in which the core was not idle is attributed to interrupts.
    fn since(self, before: Self, seconds: f64) -> Busy {
        let (user, system) = (self.busy.user - before.busy.user, self.busy.system - before.busy.system);
        let not_idle = seconds - (self.idle - before.idle) - (self.stolen - before.stolen);
        Busy { user, system, interrupts: (not_idle - user - system).max(0.0) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Thread {
    /// Nanoseconds in which the thread was ready to run, but did not run.
    waited: u64,
}

/// Work between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Use {
    /// Time that each core was busy, in seconds.
    pub busy: BTreeMap<usize, Busy>,
    /// Time that a hypervisor took from all cores together, in seconds.
    pub stolen: f64,
    /// Longest time that one of the threads waited for its core, in seconds.
    pub longest_wait: f64,
}

impl Snapshot {
    /// Takes a snapshot.
    pub fn take(threads: &[i32]) -> Result<Self, BenchError> {
        let stat = fs::read_to_string("/proc/stat").map_err(|why| BenchError::of("read /proc/stat", why))?;
        let of = |&thread: &i32| {
            // A thread that has ended counts as one that did not wait.
            let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
            (thread, schedstat(&text))
        };
        Ok(Self { cores: cores(&stat), threads: threads.iter().map(of).collect() })
    }

    /// Returns the work from `before` until this snapshot, which was taken `seconds` later.
    pub fn since(&self, before: &Self, seconds: f64) -> Use {
        let core = |core: &usize| before.cores.get(core).copied().unwrap_or_default();
        let waits = self.threads.iter().map(|(thread, now)| {
            let before = before.threads.get(thread).copied().unwrap_or_default();
            now.waited.saturating_sub(before.waited)
        });
        Use {
            busy: self.cores.iter().map(|(number, now)| (*number, now.since(core(number), seconds))).collect(),
            stolen: self.cores.iter().map(|(number, now)| now.stolen - core(number).stolen).sum(),
            longest_wait: waits.max().unwrap_or(0) as f64 / 1e9,
        }
    }
}

impl Use {
    /// Returns how long these cores were busy together, in seconds.
    pub fn of(&self, cores: &[usize]) -> f64 {
        cores.iter().filter_map(|core| self.busy.get(core)).map(|busy| busy.total()).sum()
    }
}

/// Parses lines `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`.
fn cores(stat: &str) -> BTreeMap<usize, Core> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<f64> = numbers.split_whitespace().filter_map(|ticks| ticks.parse().ok()).collect();
        let &[user, nice, system, idle, waiting, irq, softirq, stolen, ..] = ticks.as_slice() else { return None };
        let busy = Busy { user: (user + nice) * TICK, system: system * TICK, interrupts: (irq + softirq) * TICK };
        Some((number, Core { busy, idle: (idle + waiting) * TICK, stolen: stolen * TICK }))
    };
    stat.lines().filter_map(line).collect()
}

/// Parses `ran waited slices`.
fn schedstat(text: &str) -> Thread {
    let waited = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Thread { waited: waited.unwrap_or(0) }
}

/// Returns the threads of a process whose names begin with `prefix`.
pub fn threads_of(process: u32, prefix: &str) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let is_one = |path: std::path::PathBuf| fs::read_to_string(path).is_ok_and(|name| name.starts_with(prefix));
    let named = tasks.filter(|task| is_one(task.path().join("comm")));
    named.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 0 10 10 0 0 0 0 0 0\n\
                        cpu0 100 10 200 5000 7 3 50 4 0 0\n\
                        cpu3 1 0 0 900 0 0 0 0 0 0\n\
                        intr 12 0 0\n";

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let cores = cores(STAT);
        assert_eq!(cores.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let first = cores.get(&0).copied().unwrap_or_default();
        let Busy { user, system, interrupts } = first.busy;
        assert!((user - 1.1).abs() < 1e-9 && (system - 2.0).abs() < 1e-9 && (interrupts - 0.53).abs() < 1e-9);
        assert!((first.busy.total() - 3.63).abs() < 1e-9 && (first.stolen - 0.04).abs() < 1e-9, "{first:?}");
        assert!((first.idle - 50.07).abs() < 1e-9, "{first:?}");
    }

    #[test]
    fn what_no_tick_has_seen_was_interrupts() {
        let core = |user, idle| Core { busy: Busy { user, ..Busy::default() }, idle, stolen: 0.0 };
        let busy = core(0.1, 0.3).since(core(0.0, 0.0), 1.0);
        assert!((busy.user - 0.1).abs() < 1e-9 && (busy.interrupts - 0.6).abs() < 1e-9, "{busy:?}");
        // Idle time and samples have a resolution of a hundredth of a second.
        assert!(core(0.5, 0.51).since(core(0.0, 0.0), 1.0).interrupts.abs() < 1e-9);
    }

    #[test]
    fn a_use_is_the_difference() {
        let busy = |user| Busy { user, ..Busy::default() };
        let at = |seconds, waited| Snapshot {
            cores: BTreeMap::from([
                (0, Core { busy: busy(seconds), idle: seconds, stolen: 0.0 }),
                (1, Core { busy: busy(2.0 * seconds), idle: 0.0, stolen: 0.5 }),
            ]),
            threads: BTreeMap::from([(7, Thread { waited }), (8, Thread { waited: 0 })]),
        };
        let used = at(3.0, 5_000_000).since(&at(1.0, 1_000_000), 4.0);
        assert!((used.of(&[0]) - 2.0).abs() < 1e-9 && (used.of(&[0, 1]) - 6.0).abs() < 1e-9);
        assert!((used.longest_wait - 0.004).abs() < 1e-9 && used.stolen.abs() < 1e-9);
        assert_eq!(schedstat("12 34 5\n"), Thread { waited: 34 });
    }
}
