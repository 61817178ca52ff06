//! `vtysh` on a node without FRR: the commands it answers, and the configuration lines it accepts.

mod lines;
mod prompt;

pub use lines::{Lines, append};
pub use prompt::{Prompt, Typed};

use std::fmt::Write;

use srv6d_sonic::{Action, Locator, Origin, Sid, Switch};

use crate::commands::{CommandError, resolve};

/// A command outside `configure terminal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The command `show version`.
    Version,
    /// The command `show running-config`.
    RunningConfig,
    /// The command `show segment-routing srv6 locator`.
    Locators,
    /// The command `show ip route` or `show ipv6 route`.
    Routes {
        /// Whether it is `ipv6`.
        ipv6: bool,
        /// Words behind `route`.
        rest: Vec<String>,
    },
    /// The command `configure terminal`: the lines that follow belong to the configuration.
    Configure,
    /// The command `write` or `copy running-config startup-config`.
    Write,
    /// A command that needs no action: `exit`, `end`, `enable`, `terminal length 0`, ...
    Nothing,
}

/// The reason why a line is not carried out, with vtysh's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The line belongs to a daemon of FRR, which does not run here.
    #[error("{daemon} is not running")]
    NotRunning {
        /// Name of the daemon.
        daemon: &'static str,
    },
    /// The command is unknown.
    #[error("% Unknown command: {0}")]
    Unknown(String),
    /// Several words begin like this one.
    #[error("% Ambiguous command: {0}")]
    Ambiguous(String),
}

/// Finds out which command a line means. Words may be shortened as long as only one is meant.
///
/// # Errors
/// The command is unknown or ambiguous, or it belongs to a daemon of FRR.
pub fn command(line: &str) -> Result<Command, Refusal> {
    const FIRST: [&str; 10] =
        ["configure", "copy", "debug", "enable", "end", "exit", "quit", "show", "terminal", "write"];
    let line = without_do(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |index: usize, known: &[&'static str]| word(line, words.get(index).copied().unwrap_or_default(), known);
    match word(0, &FIRST)? {
        "configure" => Ok(Command::Configure),
        "copy" | "write" => Ok(Command::Write),
        "show" => show(line, &words),
        _ => Ok(Command::Nothing),
    }
}

/// Removes every leading `do` from a command.
fn without_do(line: &str) -> &str {
    let mut line = line.trim_start();
    while let Some(rest) = line.strip_prefix("do").filter(|rest| rest.starts_with(char::is_whitespace)) {
        line = rest.trim_start();
    }
    line
}

fn show(line: &str, words: &[&str]) -> Result<Command, Refusal> {
    const TOPICS: [&str; 9] =
        ["bgp", "ip", "ipv6", "isis", "running-config", "segment-routing", "version", "startup-config", "ospf"];
    let at = |index: usize| words.get(index).copied().unwrap_or_default();
    match word(line, at(1), &TOPICS)? {
        "version" => Ok(Command::Version),
        "running-config" | "startup-config" => Ok(Command::RunningConfig),
        "segment-routing" => {
            word(line, at(2), &["srv6"])?;
            word(line, at(3), &["locator"])?;
            Ok(Command::Locators)
        }
        "bgp" => Err(Refusal::NotRunning { daemon: "bgpd" }),
        "isis" => Err(Refusal::NotRunning { daemon: "isisd" }),
        "ospf" => Err(Refusal::NotRunning { daemon: "ospfd" }),
        family => {
            if word(line, at(2), &["route", "bgp"])? == "bgp" {
                return Err(Refusal::NotRunning { daemon: "bgpd" });
            }
            let rest = words.iter().skip(3).map(|&word| word.to_owned()).collect();
            Ok(Command::Routes { ipv6: family == "ipv6", rest })
        }
    }
}

fn word(line: &str, word: &str, known: &[&'static str]) -> Result<&'static str, Refusal> {
    if word.is_empty() {
        return Err(Refusal::Unknown(line.to_owned()));
    }
    resolve(word, known).map_err(|why| match why {
        CommandError::TooMany { .. } => Refusal::Ambiguous(line.to_owned()),
        CommandError::Unknown { .. } => Refusal::Unknown(line.to_owned()),
    })
}

/// Formats `show running-config`: FRR's own configuration together with what bgpcfgd makes of CONFIG_DB's locators and
/// SIDs, as FRR 10 writes it. If the configuration has a block of the same kind, they are added to that block.
pub fn running_config(frr: &str, switch: &Switch) -> String {
    let of_database = |origin| origin == Origin::ConfigDb;
    let sids = switch.sids.iter().filter(|sid| of_database(sid.origin));
    let locators = switch.locators.iter().filter(|locator| of_database(locator.origin));
    let mut blocks = [
        ("static-sids", sids.map(static_sid).collect::<Vec<_>>().concat()),
        ("locators", locators.map(locator_lines).collect::<Vec<_>>().concat()),
    ];
    let mut text = "Building configuration...\n\nCurrent configuration:\n!\n".to_owned();
    for line in frr.lines().filter(|line| line.trim() != "end") {
        text.push_str(line);
        text.push('\n');
        if let Some((_, added)) = blocks.iter_mut().find(|(name, _)| *name == line.trim()) {
            text.push_str(&std::mem::take(added));
        }
    }
    format!("{text}!\n{}end\n", segment_routing(&blocks))
}

/// Returns the `segment-routing` tree with these blocks. It is empty if all of them are.
fn segment_routing(blocks: &[(&str, String)]) -> String {
    let filled = blocks.iter().filter(|(_, lines)| !lines.is_empty());
    let written: Vec<String> = filled.map(|(name, lines)| format!("  {name}\n{lines}  exit\n  !\n")).collect();
    let inside = written.concat();
    if inside.is_empty() { inside } else { format!("segment-routing\n srv6\n{inside} exit\n !\nexit\n!\n") }
}

fn static_sid(sid: &Sid) -> String {
    let Sid { prefix, locator, .. } = sid;
    let word = sid.action.keyword();
    let what = match sid.action {
        Action::Un => word.to_owned(),
        Action::Ua => {
            let interface = sid.interface.iter().map(|interface| format!(" interface {interface}"));
            let neighbor = sid.adjacency.iter().map(|neighbor| format!(" nexthop {neighbor}"));
            interface.chain(neighbor).fold(word.to_owned(), |text, part| text + &part)
        }
        Action::Udt4 | Action::Udt6 | Action::Udt46 => {
            format!("{word} vrf {}", sid.vrf.as_deref().unwrap_or("default"))
        }
    };
    format!("   sid {prefix} locator {locator} behavior {what}\n")
}

fn locator_lines(locator: &Locator) -> String {
    let Locator { name, prefix, block_len, node_len, func_len, .. } = locator;
    format!(
        "   locator {name}\n    prefix {prefix} block-len {block_len} node-len {node_len} func-bits {func_len}\n    \
         behavior usid\n   exit\n   !\n"
    )
}

/// Formats `show segment-routing srv6 locator`.
pub fn locators(switch: &Switch) -> String {
    let mut text = "Locator:\nName                 ID      Prefix                   Status\n\
                    -------------------- ------- ------------------------ -------\n"
        .to_owned();
    for (locator, number) in switch.locators.iter().zip(1..) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<20} {number:>7} {:<24} Up", locator.name, locator.prefix.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn words_may_be_shortened() {
        assert_eq!(command("show version"), Ok(Command::Version));
        assert_eq!(command(" sh run"), Ok(Command::RunningConfig));
        assert_eq!(command("conf t"), Ok(Command::Configure));
        assert_eq!(command("wr mem"), Ok(Command::Write));
        assert_eq!(command("show segment-routing srv6 locator"), Ok(Command::Locators));
        assert_eq!(
            command("do show ipv6 route vrf Vrf1"),
            Ok(Command::Routes { ipv6: true, rest: vec!["vrf".to_owned(), "Vrf1".to_owned()] })
        );
        assert_eq!(command("exit"), Ok(Command::Nothing));
    }

    #[test]
    fn a_line_may_say_do_as_often_as_it_likes() {
        let line = format!("{}show version", "do ".repeat(1_000_000));
        assert_eq!(command(&line), Ok(Command::Version));
        assert_eq!(command("do").unwrap_err().to_string(), "% Unknown command: do");
    }

    #[test]
    fn what_needs_a_daemon_says_which() {
        assert_eq!(command("show bgp summary").unwrap_err().to_string(), "bgpd is not running");
        assert_eq!(command("show ip bgp").unwrap_err().to_string(), "bgpd is not running");
        assert_eq!(command("show i route").unwrap_err().to_string(), "% Ambiguous command: show i route");
        assert_eq!(command("frobnicate").unwrap_err().to_string(), "% Unknown command: frobnicate");
        assert_eq!(command("show").unwrap_err().to_string(), "% Unknown command: show");
    }

    #[test]
    fn the_running_configuration_has_what_bgpcfgd_writes_of_the_database() {
        let database = r#"{
            "SRV6_MY_LOCATORS": {"loc1": {"prefix": "fcbb:bbbb:1::", "func_len": "0"}},
            "SRV6_MY_SIDS": {
                "loc1|fcbb:bbbb:1::/48": {"action": "uN", "decap_dscp_mode": "pipe"},
                "loc1|fcbb:bbbb:1:fe04::/64": {"action": "uDT46", "decap_vrf": "Vrf1"},
                "loc1|fcbb:bbbb:fe11::/48": {"action": "uA", "interface": "Ethernet0", "adj": "2001:db8::2"}},
            "VRF": {"Vrf1": {}}}"#;
        let switch = srv6d_sonic::read(Some(database), Some("hostname a\n"), None, false).unwrap().switch;
        let expected = "hostname a\n!\nsegment-routing\n srv6\n  static-sids\n   \
            sid fcbb:bbbb:1::/48 locator loc1 behavior uN\n   \
            sid fcbb:bbbb:1:fe04::/64 locator loc1 behavior uDT46 vrf Vrf1\n   \
            sid fcbb:bbbb:fe11::/48 locator loc1 behavior uA interface Ethernet0 nexthop 2001:db8::2\n  exit\n  !\n  \
            locators\n   locator loc1\n    \
            prefix fcbb:bbbb:1::/48 block-len 32 node-len 16 func-bits 0\n    behavior usid\n   exit\n   !\n  exit\n  \
            !\n exit\n !\nexit\n!\nend\n";
        let shown = running_config("hostname a\n", &switch);
        assert!(shown.ends_with(expected), "{shown}");
        // The reader of frr.conf accepts the output.
        let again = srv6d_sonic::read(None, Some(&shown), None, false).unwrap().switch;
        assert_eq!(again.sids.len(), 3);
        assert_eq!(again.locators.len(), 1);
    }

    #[test]
    fn locators_stand_in_columns_of_frr() {
        let frr = "segment-routing\n srv6\n  locators\n   locator MAIN\n    prefix fcbb:0:1004::/48\n";
        let switch = srv6d_sonic::read(None, Some(frr), None, false).unwrap().switch;
        let expected = "\
Locator:
Name                 ID      Prefix                   Status
-------------------- ------- ------------------------ -------
MAIN                       1 fcbb:0:1004::/48         Up
";
        assert_eq!(locators(&switch), expected);
        assert!(running_config(frr, &switch).ends_with("prefix fcbb:0:1004::/48\n!\nend\n"));
    }
}
