//! `srv6d doctor`: reports what prevents or slows AF_XDP on this machine, each with its fix.
//!
//! Facts are gathered first and judged by pure functions, so that every verdict can be tested on any machine.

mod fpm;
mod interface;
mod machine;
mod nic;

use std::fmt::Write;
use std::fs;

use serde::Serialize;
use srv6d_text::escaped;

use srv6d_api::state::{ProcessView, SourceView};

/// Maximum number of listed kernel routes that are not followed.
const ROUTES_SHOWN: usize = 5;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Everything is as it should be.
    Ok,
    /// srv6d works, but slower or with less than it could.
    Warn,
    /// srv6d cannot work.
    Fail,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub verdict: Severity,
    /// Subject of the check: the machine, or the name of an interface.
    pub subject: String,
    /// Name of the check.
    pub check: &'static str,
    /// Description of the present state.
    pub found: String,
    /// The correction. `None` means that nothing has to be done.
    pub fix: Option<String>,
}

/// State of the tc program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TcEngine {
    /// It is not configured.
    #[default]
    NotAsked,
    /// It is configured, and no daemon runs.
    Planned,
    /// A running daemon has it in force.
    InForce,
    /// A running daemon does not have it in force, for this reason.
    Refused(String),
}

/// The parts of a configuration and of the running daemon on which the verdicts depend.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    /// Cores to which workers are pinned. Empty: there is one worker, which is not pinned.
    pub cores: Vec<usize>,
    /// Whether workers never sleep.
    pub busy: bool,
    /// Whether workers poll drivers themselves (`busy_budget`).
    pub polls_drivers: bool,
    /// Number of frames in each packet memory of a worker.
    pub frames: u64,
    /// Number of UMEM bytes of one worker.
    pub umem_bytes: u64,
    /// Ids of the XDP programs of the running daemon.
    pub own_programs: Vec<u32>,
    /// Devices whose ports complete checksums themselves (`checksum = "fill"`).
    pub filled: Vec<String>,
    /// Whether a port forwards in its XDP program (`offload = "xdp"`).
    pub offloads: bool,
    /// The tc program, which is to encapsulate what local applications send (`[host] engine = "tc"`).
    pub tc: TcEngine,
    /// Kernel routes that srv6d does not follow although it follows their table: destination and reason. `None`: no
    /// table is followed, or it is not known which are.
    pub followed: Option<Vec<(String, String)>>,
    /// The veth of the running daemon, by the end to which its sockets are bound. Its two ends are not checked unless
    /// they are named.
    pub own_veth: Option<String>,
    /// The process of the running daemon with its privileges.
    pub process: Option<ProcessView>,
    /// State of the running daemon's FPM. `None`: FPM is not configured. If no daemon runs, the `fpm` part is missing.
    pub fpm: Option<SourceView>,
}

impl Finding {
    fn ok(subject: &str, check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Severity::Ok, subject: subject.to_owned(), check, found: found.into(), fix: None }
    }

    fn warn(subject: &str, check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { verdict: Severity::Warn, subject: subject.to_owned(), check, found: found.into(), fix }
    }

    fn fail(subject: &str, check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Severity::Fail, ..Self::warn(subject, check, found, fix) }
    }
}

/// Examines the machine and `interfaces`. If none is named, examines every Ethernet interface.
pub fn examine(interfaces: &[String], plans: &Plans) -> Vec<Finding> {
    let every = if interfaces.is_empty() { interfaces_of_others(plans) } else { interfaces.to_vec() };
    let mut findings = machine::judge(&srv6d_xsk::probe::machine(), &machine::Host::read(), plans);
    findings.extend(plans.followed.iter().flat_map(|unfollowed| routes(unfollowed)));
    findings.extend(plans.fpm.iter().map(fpm::judge));
    findings.extend(plans.process.iter().map(privileges));
    if every.is_empty() {
        findings.push(Finding::warn(
            "machine",
            "interfaces",
            "there is no Ethernet interface in this network namespace",
            "run doctor in the namespace of the ports (`ip netns exec NAME srv6d doctor`)",
        ));
    }
    for name in &every {
        match srv6d_xsk::probe::interface(name) {
            Ok(facts) => {
                findings.extend(interface::judge(&facts, &interface::KernelPlacement::read(name), plans));
                findings.extend(nic::judge(&facts, &nic::Place::read(name), plans));
            }
            Err(error) => findings.push(Finding::fail(
                name,
                "interface",
                error.to_string(),
                "check the name with `ip link`, and the network namespace doctor runs in",
            )),
        }
    }
    findings
}

/// Reports routes that stay with the kernel although their table is followed.
fn routes(unfollowed: &[(String, String)]) -> Vec<Finding> {
    if unfollowed.is_empty() {
        return vec![Finding::ok("machine", "kernel routes", "all routes of the followed tables are followed")];
    }
    let shown = unfollowed.iter().take(ROUTES_SHOWN).map(|(prefix, why)| {
        let found = format!("{prefix} stays with the kernel: {why}");
        let fix = if why.contains("[[port]]") {
            "add its device as a [[port]]"
        } else {
            "nothing where the kernel may forward it; docs/configuration.md says what [kernel] follows"
        };
        Finding::warn("machine", "kernel routes", found, fix)
    });
    let more = unfollowed.len().saturating_sub(ROUTES_SHOWN);
    let rest = (more > 0).then(|| {
        let fix = "ask the running daemon for all: srv6d show routes --unfollowed";
        Finding::warn("machine", "kernel routes", format!("{more} more stay with the kernel"), fix)
    });
    shown.chain(rest).collect()
}

/// Reports which of its initial privileges the running daemon has kept.
fn privileges(process: &ProcessView) -> Finding {
    let check = "privileges";
    let held = process.privileges.capabilities.join(", ");
    if process.least_privilege {
        return Finding::ok("machine", check, format!("the running srv6d has {held}, NoNewPrivs and a seccomp filter"));
    }
    let has = |is: bool, what: &str| if is { what.to_owned() } else { format!("no {what}") };
    let found = format!(
        "the running srv6d has more than it needs: {held}, {}, {}",
        has(process.privileges.no_new_privs, "NoNewPrivs"),
        has(process.privileges.seccomp, "seccomp filter")
    );
    Finding::warn("machine", check, found, "start it without --unconfined (SRV6D_UNCONFINED), and see its log")
}

/// Returns the worst verdict.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Severity::Ok)
}

/// Formats findings as lines for a terminal. A fix is indented below its finding. Names of interfaces and programs are
/// whatever somebody has called them, so control characters are escaped.
pub fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { verdict, subject, check, found, fix } in findings {
        let verdict = match verdict {
            Severity::Ok => "OK  ",
            Severity::Warn => "WARN",
            Severity::Fail => "FAIL",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{verdict}  {}: {check}: {}", escaped(subject), escaped(found));
        if let Some(fix) = fix {
            let _ = writeln!(text, "      fix: {}", escaped(fix));
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let _ = writeln!(
        text,
        "\n{} ok, {} to look at, {} in the way",
        count(Severity::Ok),
        count(Severity::Warn),
        count(Severity::Fail)
    );
    text
}

/// `ARPHRD_ETHER` of `linux/if_arp.h`, the only link type on which srv6d forwards.
const ARPHRD_ETHER: &str = "1";

/// Returns every Ethernet interface except the two ends of srv6d's own veth.
fn interfaces_of_others(plans: &Plans) -> Vec<String> {
    let number = |name: &str, file: &str| text(&format!("/sys/class/net/{name}/{file}"));
    let kernels_end = plans.own_veth.as_ref().and_then(|own| number(own, "iflink"));
    let is_own = |name: &String| Some(name) == plans.own_veth.as_ref() || number(name, "ifindex") == kernels_end;
    ethernet_interfaces().into_iter().filter(|name| plans.own_veth.is_none() || !is_own(name)).collect()
}

fn ethernet_interfaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| text(&format!("/sys/class/net/{name}/type")).as_deref() == Some(ARPHRD_ETHER)).collect();
    names.sort();
    names
}

/// Reads a file of /proc or /sys and trims it. `None`: the file does not exist or cannot be read.
fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Parses a list of cores such as `0-2,7`, as the kernel writes it.
fn cpu_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.trim().parse::<usize>().ok()?..=high.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use srv6d_xsk::device_features::Features;
    use srv6d_xsk::probe::{Coalescing, Interface, Rings};

    use super::*;

    /// Returns a NIC with nothing to fix.
    pub(super) fn a_nic() -> Interface {
        Interface {
            ifname: "eth1".into(),
            driver: "ice".into(),
            queues: 1,
            most_queues: 1,
            mtu: 1500,
            features: Features { tx_checksum: true, tso: true, gso: true, gro: true },
            program: None,
            zero_copy: Some(true),
            takes_redirect: None,
            rings: Some(Rings { receive: 1024, transmit: 1024 }),
            coalescing: Some(Coalescing { is_adaptive: false, microseconds: 50 }),
        }
    }

    #[test]
    fn cpu_lists_are_the_kernels() {
        assert_eq!(cpu_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(cpu_list("3"), [3]);
        assert_eq!(cpu_list(""), [0; 0]);
    }

    #[test]
    fn fixes_stand_below_what_they_fix() {
        let findings = [
            Finding::ok("machine", "kernel", "6.12"),
            Finding::fail("eth1", "xdp program", "xdp_filter (id 7)", "remove it"),
        ];
        assert_eq!(
            render(&findings),
            "OK    machine: kernel: 6.12\n\
             FAIL  eth1: xdp program: xdp_filter (id 7)\n      fix: remove it\n\
             \n1 ok, 0 to look at, 1 in the way\n"
        );
        assert_eq!(worst(&findings), Severity::Fail);
        assert_eq!(worst(&[]), Severity::Ok);
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let name = "p\u{1b}[31mX";
        let findings =
            [Finding::fail(name, "interface", format!("{name} is down"), format!("ip link set {name} up\n"))];
        let shown = render(&findings);
        assert!(!shown.contains('\u{1b}') && shown.contains("p\\u{1b}[31mX is down"), "{shown}");
        assert_eq!(shown.lines().count(), 4, "{shown}");
    }

    #[test]
    fn routes_that_are_not_followed_are_listed_up_to_a_few() {
        let unfollowed = ("10.1.0.0/16".to_owned(), "it leaves by lo, which is no [[port]]".to_owned());
        let findings = routes(&vec![unfollowed; ROUTES_SHOWN + 2]);
        assert_eq!(findings.len(), ROUTES_SHOWN + 1);
        assert!(findings.first().is_some_and(|finding| finding.found.contains("which is no [[port]]")));
        assert!(findings.last().is_some_and(|finding| finding.found.starts_with("2 more")));
        assert_eq!(worst(&routes(&[])), Severity::Ok);
    }

    #[test]
    fn missing_interface_is_a_failure_that_names_it() {
        let findings = examine(&["srv6d-none".to_owned()], &Plans::default());
        let finding = findings.iter().find(|finding| finding.subject == "srv6d-none");
        assert!(
            finding.is_some_and(|finding| finding.verdict == Severity::Fail && finding.found.contains("srv6d-none"))
        );
    }
}
