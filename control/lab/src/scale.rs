//! `srv6d lab scale`: measures what many switches cost on this machine, in memory, in bring-up time and while idle.
//!
//! The lab is a folded Clos of leaves and spines, in which every leaf has a link to every spine. Hosts at the first and
//! the last leaf prove that it forwards.

use srv6d_netns as netns;
use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use srv6d_xsk::kernel_memory;

use srv6d_show::Table;

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::screen::{Screen, styled};
use super::topology::Topology;

/// Name of the lab.
const NAME: &str = "scale";
/// Number of packets that prove it.
const PINGS: &str = "5";
const KIB_PER_MIB: f64 = 1024.0;
/// Clock ticks a second of `/proc/PID/stat` (`USER_HZ`, the same on all Linux architectures that srv6d runs on).
const TICKS: f64 = 100.0;

/// Size of the lab, and duration of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of leaves and spines together.
    pub switches: u32,
    /// Number of seconds in which nothing is sent.
    pub idle: u32,
}

/// The cost of one switch.
#[derive(Debug, Serialize)]
struct Cost {
    node: String,
    ports: usize,
    /// Proportional set size of srv6d and its guard process: a shared page counts by its share.
    memory_mib: f64,
    /// Kernel memory of its BPF maps and programs, which is part of no process's resident set.
    kernel_mib: f64,
    /// CPU time while idle, in percent of one core.
    idle_cpu_percent: f64,
}

/// The result of the measurement.
#[derive(Debug, Serialize)]
struct Report {
    switches: u32,
    links: usize,
    bring_up_seconds: f64,
    idle_seconds: f64,
    /// Decrease of the machine's available memory, caused by all that came up: also namespaces, links, sockets and
    /// hosts, and whatever else ran meanwhile.
    machine_mib: f64,
    nodes: Vec<Cost>,
}

/// Brings the switches up, sends traffic between the hosts, measures the idle switches, prints the costs, and takes
/// everything down.
///
/// # Errors
/// The lab did not come up, does not forward, or the user pressed Ctrl-C.
pub fn run(size: Size, json: bool, screen: &mut Screen) -> Result<(), LabError> {
    let text = topology(size.switches);
    let topology = Topology::parse(&text, "generated topology")?;
    let interrupt = Interrupt::watch()?;
    let mut quiet = Screen::silent();
    let progress = if json { &mut quiet } else { &mut *screen };
    progress.line(&format!("{} switches, {} links", size.switches, topology.links.len()));
    let (begin, available) = (Instant::now(), available_kibibytes());
    let lab = Lab::bring_up(topology, &text, &interrupt, progress)?;
    let bring_up_seconds = begin.elapsed().as_secs_f64();
    prove(&lab, progress)?;
    let mut report = watch(&lab, size, bring_up_seconds, &interrupt, progress)?;
    report.machine_mib = (available - available_kibibytes()) / KIB_PER_MIB;
    drop(lab);
    if json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| LabError::Failed(error.to_string()))?;
        screen.line(&text);
    } else {
        print(&report, screen);
    }
    Ok(())
}

/// Returns the text of a topology file. A quarter of the switches are spines.
fn topology(switches: u32) -> String {
    let spines = (switches / 4).max(1);
    let leaves = switches.saturating_sub(spines).max(1);
    let mut text = format!("name = \"{NAME}\"\nblock = \"fcbb::/32\"\nmtu = 1600\n");
    for leaf in 0..leaves {
        let uses = "{ sid = \"fcbb:0:%:fe06::/64\", behavior = \"uDT6\" }".replace('%', &leaf_usid(leaf));
        switch(&mut text, &format!("leaf{leaf:02}"), "leaf", &leaf_usid(leaf), &uses);
    }
    for spine in 0..spines {
        switch(&mut text, &format!("spine{spine:02}"), "spine", &spine_usid(spine), "");
    }
    for leaf in 0..leaves {
        for spine in 0..spines {
            let ends = [format!("leaf{leaf:02}"), format!("spine{spine:02}")];
            link(&mut text, &ends, [spine + 1, leaf + 1], &format!("2001:db8:{leaf:x}:{spine:x}::"));
        }
    }
    for (number, leaf, other) in [(0, 0, leaves - 1), (1, leaves - 1, 0)] {
        host(&mut text, number, leaf, other, spines + 1 + number);
    }
    text
}

fn leaf_usid(leaf: u32) -> String {
    format!("{:x}", 0x1000 + leaf)
}

fn spine_usid(spine: u32) -> String {
    format!("{:x}", 0x2000 + spine)
}

// Writing into a String cannot fail, so the result is ignored by `let _`.

fn switch(text: &mut String, name: &str, role: &str, usid: &str, function: &str) {
    let _ = writeln!(
        text,
        "[[node]]\nname = \"{name}\"\nrole = \"{role}\"\nsource = \"fcbb:0:{usid}::1\"\naddresses = [\"fcbb:0:{usid}::1/128\"]\n\
         sids = [{{ sid = \"fcbb:0:{usid}::/48\", behavior = \"uN\" }}, {function}]"
    );
}

fn link(text: &mut String, nodes: &[String; 2], ports: [u32; 2], subnet: &str) {
    let [a, b] = nodes;
    let [port_a, port_b] = ports;
    let _ = writeln!(
        text,
        "[[link]]\nends = [{{ node = \"{a}\", port = \"eth{port_a}\", addresses = [\"{subnet}1/64\"] }}, \
         {{ node = \"{b}\", port = \"eth{port_b}\", addresses = [\"{subnet}2/64\"] }}]"
    );
}

/// Writes a host at `leaf` whose kernel sends to the other host through the first spine.
fn host(text: &mut String, number: u32, leaf: u32, other: u32, port: u32) {
    let peer = 1 - number;
    let carrier = format!("fcbb:0:{}:{}:{}:fe06::", leaf_usid(leaf), spine_usid(0), leaf_usid(other));
    let subnet = format!("fcbb:0:80{number}::");
    let _ = writeln!(
        text,
        "[[node]]\nname = \"host{number}\"\nrole = \"host\"\nkind = \"linux\"\nsource = \"{subnet}2\"\n\
         steer = [{{ prefix = \"fcbb:0:80{peer}::/64\", paths = [{{ name = \"peer\", segments = [\"{carrier}\"] }}] }}]"
    );
    link(text, &[format!("leaf{leaf:02}"), format!("host{number}")], [port, 1], &subnet);
}

/// Makes one host ping the other.
fn prove(lab: &Lab, screen: &mut Screen) -> Result<(), LabError> {
    let mut ping = netns::exec(&lab.netns("host0"), "ping");
    netns::run(ping.args(["-c", PINGS, "-i", "0.2", "-W", "5", "fcbb:0:801::2"]))?;
    screen.line("  host0 reaches host1 over the first spine: host, leaf, spine, leaf, host");
    Ok(())
}

/// Measures the switches while there is no traffic.
fn watch(
    lab: &Lab,
    size: Size,
    bring_up_seconds: f64,
    interrupt: &Interrupt,
    screen: &mut Screen,
) -> Result<Report, LabError> {
    screen.line(&format!("  idle for {} s ...", size.idle));
    let daemons = lab.run.state().daemons;
    let before: Vec<u64> = daemons.iter().map(|daemon| ticks_of_all(daemon.process.pid)).collect();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(size.idle.into()) {
        interrupt.check()?;
        thread::sleep(Duration::from_millis(50));
    }
    let idle_seconds = begin.elapsed().as_secs_f64();
    let nodes = daemons.iter().zip(before).map(|(daemon, before)| {
        let ticks = ticks_of_all(daemon.process.pid).saturating_sub(before);
        Cost {
            node: daemon.node.clone(),
            ports: lab.topology.ports(&daemon.node).len(),
            memory_mib: with_children(daemon.process.pid).into_iter().map(kibibytes).sum::<f64>() / KIB_PER_MIB,
            kernel_mib: kernel_kibibytes(daemon.process.pid) / KIB_PER_MIB,
            idle_cpu_percent: as_float(ticks) / TICKS / idle_seconds * 100.0,
        }
    });
    let nodes = nodes.collect();
    let links = lab.topology.links.len();
    Ok(Report { switches: size.switches, links, bring_up_seconds, idle_seconds, machine_mib: 0.0, nodes })
}

/// Returns the ids of a process and its children: srv6d and its guard.
fn with_children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|text| text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<i32>>())
        .collect();
    [vec![pid], children].concat()
}

fn ticks_of_all(pid: i32) -> u64 {
    with_children(pid).into_iter().map(ticks).sum()
}

/// Returns user and system time of a process in clock ticks (proc(5): `utime` and `stime`).
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain any character.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Reads `Pss` of `/proc/PID/smaps_rollup`, in KiB.
fn kibibytes(pid: i32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or_default()
}

/// Returns the kernel memory of a process's BPF maps and programs in KiB. The guard process has none.
fn kernel_kibibytes(pid: i32) -> f64 {
    let bytes = u32::try_from(pid).ok().and_then(|pid| kernel_memory(pid).ok()).unwrap_or_default();
    as_float(bytes / 1024)
}

/// Reads `MemAvailable` of `/proc/meminfo`, in KiB.
fn available_kibibytes() -> f64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or_default()
}

fn as_float(ticks: u64) -> f64 {
    u32::try_from(ticks).map_or(f64::INFINITY, f64::from)
}

fn print(report: &Report, screen: &mut Screen) {
    let mut table = Table::new(&["SWITCH", ">PORTS", ">MEMORY", ">IN KERNEL", ">IDLE CPU"]);
    for cost in &report.nodes {
        table.row([
            cost.node.clone(),
            cost.ports.to_string(),
            format!("{:.1} MiB", cost.memory_mib),
            format!("{:.1} MiB", cost.kernel_mib),
            format!("{:.2} %", cost.idle_cpu_percent),
        ]);
    }
    screen.print(&table.finish("no switches"));
    let largest = |value: fn(&Cost) -> f64| report.nodes.iter().map(value).fold(0.0, f64::max);
    let sum = |value: fn(&Cost) -> f64| report.nodes.iter().map(value).sum::<f64>();
    screen.line("");
    screen.line(&format!(
        "up after {:.1} s; memory {:.0} MiB in all, {:.1} MiB at most, and {:.0} MiB in the kernel; the machine has {:.0} MiB \
         less; idle CPU {:.2} % of one core in all, {:.2} % at most",
        report.bring_up_seconds,
        sum(|cost| cost.memory_mib),
        largest(|cost| cost.memory_mib),
        sum(|cost| cost.kernel_mib),
        report.machine_mib,
        sum(|cost| cost.idle_cpu_percent),
        largest(|cost| cost.idle_cpu_percent),
    ));
    for note in [
        "memory: proportional set size of srv6d and its guard; in kernel: its BPF maps and programs, which are not part of that",
        "the machine has less: by links, namespaces, sockets and hosts as well; idle CPU: of one core, over the idle time",
    ] {
        screen.line(&styled(super::screen::DIM, note));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

    use super::*;

    #[test]
    fn every_size_is_a_topology() {
        for switches in 2..=64 {
            let text = topology(switches);
            let topology =
                Topology::parse(&text, "generated").unwrap_or_else(|why| panic!("{switches}: {why}\n{text}"));
            assert_eq!(topology.nodes.len(), usize::try_from(switches).unwrap() + 2);
        }
    }

    #[test]
    fn a_process_that_works_has_ticks_and_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let before = ticks(pid);
        while ticks(pid) == before {
            assert!(Instant::now() < end, "no tick is counted");
        }
        assert!(kibibytes(pid) > 100.0 && available_kibibytes() > 0.0);
        assert_eq!(with_children(pid).first(), Some(&pid));
    }
}
