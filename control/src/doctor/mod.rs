//! `srv6d doctor`: what stops or slows AF_XDP on this machine, each with its fix.
//!
//! Facts are gathered first and judged by pure functions, so that every verdict can be tested without the machine
//! that deserves it.

mod fpm;
mod interface;
mod machine;

pub(crate) use interface::passed_by;

use std::fmt::Write;
use std::fs;

use serde::Serialize;

use crate::api::state::{ProcessView, SourceView};

/// Of the routes that are not followed, so many are listed.
const ROUTES_SHOWN: usize = 5;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// srv6d works, but slower or with less than it could.
    Warn,
    /// srv6d cannot work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub verdict: Verdict,
    /// The machine, or the name of an interface.
    pub subject: String,
    /// What was looked at.
    pub check: &'static str,
    /// What was found.
    pub found: String,
    /// What to do about it; absent when nothing has to be done.
    pub fix: Option<String>,
}

/// The part of a configuration that the verdicts depend on.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    /// Cores that workers are pinned to; empty: one worker, not pinned.
    pub cores: Vec<usize>,
    /// Workers never sleep.
    pub busy: bool,
    /// Workers poll drivers themselves (`busy_budget`).
    pub polls_drivers: bool,
    /// UMEM bytes of one worker.
    pub umem_bytes: u64,
    /// XDP programs of the daemon that runs.
    pub own_programs: Vec<u32>,
    /// Devices whose ports complete checksums themselves (`checksum = "fill"`).
    pub filled: Vec<String>,
    /// Some port forwards in its XDP program (`offload = "xdp"`).
    pub offloads: bool,
    /// What of the kernel's routes stays with the kernel, where any are followed: destinations, and why.
    pub followed: Option<Vec<(String, String)>>,
    /// The veth of the daemon that runs, by the end that its sockets are bound to: its two ends are not looked at unless
    /// they are named.
    pub own_veth: Option<String>,
    /// What the running daemon's process runs with.
    pub process: Option<ProcessView>,
    /// Where FPM is configured, how the running daemon's is doing; without its part where none runs.
    pub fpm: Option<SourceView>,
}

impl Finding {
    fn ok(subject: &str, check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject: subject.to_owned(), check, found: found.into(), fix: None }
    }

    fn warn(subject: &str, check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let fix = Some(fix.into());
        Self { verdict: Verdict::Warn, subject: subject.to_owned(), check, found: found.into(), fix }
    }

    fn fail(subject: &str, check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(subject, check, found, fix) }
    }
}

/// Looks at the machine and at `interfaces`; at every Ethernet interface when none is named.
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
            Ok(facts) => findings.extend(interface::judge(&facts, &interface::Placement::read(name), plans)),
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

/// Routes that stay with the kernel although their table is followed.
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

/// What the running daemon has kept of the privileges that it was started with.
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

/// The worst verdict.
pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

/// Findings as lines for a terminal, fixes indented below what they fix.
pub fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { verdict, subject, check, found, fix } in findings {
        let verdict = match verdict {
            Verdict::Ok => "OK  ",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{verdict}  {subject}: {check}: {found}");
        if let Some(fix) = fix {
            let _ = writeln!(text, "      fix: {fix}");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let _ = writeln!(
        text,
        "\n{} ok, {} to look at, {} in the way",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail)
    );
    text
}

/// `ARPHRD_ETHER` of `linux/if_arp.h`: the only link type srv6d forwards on.
const ARPHRD_ETHER: &str = "1";

/// Every Ethernet interface but srv6d's own two.
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

/// A file of /proc or /sys, trimmed; absent files are a fact too.
fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(worst(&findings), Verdict::Fail);
        assert_eq!(worst(&[]), Verdict::Ok);
    }

    #[test]
    fn routes_that_are_not_followed_are_listed_up_to_a_few() {
        let unfollowed = ("10.1.0.0/16".to_owned(), "it leaves by lo, which is no [[port]]".to_owned());
        let findings = routes(&vec![unfollowed; ROUTES_SHOWN + 2]);
        assert_eq!(findings.len(), ROUTES_SHOWN + 1);
        assert!(findings.first().is_some_and(|finding| finding.found.contains("which is no [[port]]")));
        assert!(findings.last().is_some_and(|finding| finding.found.starts_with("2 more")));
        assert_eq!(worst(&routes(&[])), Verdict::Ok);
    }

    #[test]
    fn missing_interface_is_a_failure_that_names_it() {
        let findings = examine(&["srv6d-none".to_owned()], &Plans::default());
        let finding = findings.iter().find(|finding| finding.subject == "srv6d-none");
        assert!(
            finding.is_some_and(|finding| finding.verdict == Verdict::Fail && finding.found.contains("srv6d-none"))
        );
    }
}
