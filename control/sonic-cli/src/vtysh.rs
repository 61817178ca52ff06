//! `vtysh` on a node without FRR: what it can be asked, and which configuration lines are taken.

mod lines;
mod prompt;

pub use lines::{Lines, append};
pub use prompt::{Prompt, Typed};

use std::fmt::Write;

use srv6d_sonic::Switch;

use crate::words::{WordError, resolve};

/// A command outside of `configure terminal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `show version`
    Version,
    /// `show running-config`
    RunningConfig,
    /// `show segment-routing srv6 locator`
    Locators,
    /// `show ip route`, `show ipv6 route`
    Routes {
        /// `ipv6`
        ipv6: bool,
        /// What stands behind `route`.
        rest: Vec<String>,
    },
    /// `configure terminal`: what follows are lines of the configuration.
    Configure,
    /// `write`, `copy running-config startup-config`
    Write,
    /// `exit`, `end`, `enable`, `terminal length 0`, ...: done by doing nothing.
    Nothing,
}

/// Why a line is not carried out, as vtysh says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A daemon of FRR would know.
    #[error("{daemon} is not running")]
    NotRunning {
        /// Its name.
        daemon: &'static str,
    },
    /// Nobody knows.
    #[error("% Unknown command: {0}")]
    Unknown(String),
    /// Several words begin so.
    #[error("% Ambiguous command: {0}")]
    Ambiguous(String),
}

/// What a line asks for. Words may be shortened while only one is meant.
///
/// # Errors
/// Nobody here knows it.
pub fn command(line: &str) -> Result<Command, Refusal> {
    const FIRST: [&str; 11] =
        ["configure", "copy", "debug", "do", "enable", "end", "exit", "quit", "show", "terminal", "write"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |index: usize, known: &[&'static str]| word(line, words.get(index).copied().unwrap_or_default(), known);
    match word(0, &FIRST)? {
        "configure" => Ok(Command::Configure),
        "copy" | "write" => Ok(Command::Write),
        "do" => command(words.get(1..).unwrap_or_default().join(" ").as_str()),
        "show" => show(line, &words),
        _ => Ok(Command::Nothing),
    }
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
        WordError::TooMany { .. } => Refusal::Ambiguous(line.to_owned()),
        WordError::Unknown { .. } => Refusal::Unknown(line.to_owned()),
    })
}

/// `show running-config`.
pub fn running_config(frr: &str) -> String {
    let lines = frr.lines().filter(|line| line.trim() != "end").fold(String::new(), |mut text, line| {
        text.push_str(line);
        text.push('\n');
        text
    });
    format!("Building configuration...\n\nCurrent configuration:\n!\n{lines}!\nend\n")
}

/// `show segment-routing srv6 locator`.
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
    fn what_needs_a_daemon_says_which() {
        assert_eq!(command("show bgp summary").unwrap_err().to_string(), "bgpd is not running");
        assert_eq!(command("show ip bgp").unwrap_err().to_string(), "bgpd is not running");
        assert_eq!(command("show i route").unwrap_err().to_string(), "% Ambiguous command: show i route");
        assert_eq!(command("frobnicate").unwrap_err().to_string(), "% Unknown command: frobnicate");
        assert_eq!(command("show").unwrap_err().to_string(), "% Unknown command: show");
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
        assert!(running_config(frr).ends_with("prefix fcbb:0:1004::/48\n!\nend\n"));
    }
}
