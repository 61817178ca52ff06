//! Sends one echo request over every link. This shows that ND and the kernel still get their packets on the ports of a
//! srv6d, and both ends resolve each other before the first packet that matters.

use srv6d_netns as netns;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use super::error::LabError;
use super::fabric::Lab;
use super::interrupt::Interrupt;
use super::kernel;
use super::topology::Link;

/// If links are silent for this long and their neighbours do not resolve either, they will not answer. On a loaded
/// machine all links together may take longer.
const QUIET: Duration = Duration::from_secs(30);
/// How long one `ping` tries, in seconds, with one echo request per second.
const ROUND_SECONDS: &str = "5";
/// Number of pings that run at the same time: a hundred processes that start at once would slow each other down.
const AT_ONCE: usize = 32;

/// A link that has not answered yet.
struct Silent<'t> {
    number: usize,
    link: &'t Link,
    /// Whether the first end knows the MAC address of the other.
    is_resolved: bool,
}

/// Pings over links, given by their number in the topology, until each has answered once.
///
/// # Errors
/// There was no progress for [`QUIET`]; the error names the silent links. Or the user pressed Ctrl-C.
pub fn check(lab: &Lab, links: &[(usize, &Link)], interrupt: &Interrupt) -> Result<(), LabError> {
    let mut silent: Vec<Silent<'_>> =
        links.iter().map(|&(number, link)| Silent { number, link, is_resolved: false }).collect();
    let all_answer = interrupt.wait_until_nothing_is_left(QUIET, || {
        let mut still = Vec::new();
        for some in silent.chunks(AT_ONCE) {
            interrupt.check()?;
            still.extend(probe_all(lab, some));
        }
        silent = still;
        Ok(silent.iter().map(|link| if link.is_resolved { 1 } else { 2 }).sum())
    })?;
    if all_answer {
        return Ok(());
    }
    let names: Vec<String> = silent.iter().map(name).collect();
    Err(LabError::Failed(format!(
        "no answer to a ping over these links, and no progress for {} s: {}\n\
         fix: see the logs of their nodes; `srv6d lab up --keep` leaves the lab as it is after a failure",
        QUIET.as_secs(),
        names.join(", ")
    )))
}

fn name(silent: &Silent<'_>) -> String {
    let [a, b] = &silent.link.ends;
    let neighbor = if silent.is_resolved { "" } else { " (neighbour not resolved)" };
    format!("{} {} - {} {}{neighbor}", a.node, a.port, b.node, b.port)
}

/// Probes all links, and returns those that did not answer.
fn probe_all<'t>(lab: &Lab, links: &[Silent<'t>]) -> Vec<Silent<'t>> {
    thread::scope(|scope| {
        let probes: Vec<_> = links.iter().map(|silent| scope.spawn(move || probe(lab, silent))).collect();
        probes.into_iter().filter_map(|probe| probe.join().ok().flatten()).collect()
    })
}

/// Probes a link. Returns `None` if its other end answered.
fn probe<'t>(lab: &Lab, silent: &Silent<'t>) -> Option<Silent<'t>> {
    let &Silent { number, link, .. } = silent;
    let [a, _] = &link.ends;
    let port = lab.topology.ports(&a.node).into_iter().find(|port| port.own.port == a.port)?;
    let target = IpAddr::V6(port.neighbor_v6().unwrap_or_else(|| kernel::link_local(number))).to_string();
    let netns = lab.netns(&a.node);
    let answered = netns::enter(&netns, || {
        netns::run(netns::tool("ping").args(["-n", "-q", "-c", "1", "-w", ROUND_SECONDS, "-I", &a.port, &target]))
    });
    if answered.is_ok() {
        return None;
    }
    let known = netns::run(netns::tool("ip").args(["-n", &netns, "-6", "neigh", "show", &target, "dev", &a.port]));
    Some(Silent { number, link, is_resolved: known.is_ok_and(|shown| shown.contains("lladdr")) })
}
