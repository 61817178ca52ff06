//! The stamp: facts without which the figures mean nothing.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::floor::{FRAMES, RING};
use crate::netns::{run, tool};
use crate::statistics::number_of;

/// Machine, kernel, versions, command, as pairs of name and value. It contains no host names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp(pub Vec<(String, String)>);

impl Stamp {
    /// Collects the facts about this machine and this program. `polling` is the polling mode that srv6d is configured
    /// with.
    pub fn take(srv6d: &Path, command: &str, polling: &str) -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let said = run(tool(program).args(arguments)).unwrap_or_default();
            said.lines().next().unwrap_or("unknown").trim().to_owned()
        };
        let facts = [
            ("command", command.to_owned()),
            ("date", said("date", &["--utc", "+%F %H:%M UTC"])),
            ("machine", machine()),
            ("kernel", said("uname", &["-sr"])),
            (
                "srv6d",
                build(&said(&srv6d.to_string_lossy(), &["--version"]), &said("sha256sum", &[&srv6d.to_string_lossy()])),
            ),
            ("bench-net", env!("CARGO_PKG_VERSION").to_owned()),
            ("iproute2", said("ip", &["-V"])),
            ("AF_XDP", format!("native XDP, copy mode; rings of {RING}, {FRAMES} buffers per worker, {polling}")),
        ];
        Self(facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Adds the reason why the run ended early, if it did.
    pub fn add_cut_off(&mut self, why: Option<&str>) {
        if let Some(why) = why {
            self.add("cut off", format!("{why}: what follows is a part of a run"));
        }
    }

    /// Adds a caution if the figures should not be quoted.
    pub fn add_caution(&mut self, smoke: bool) {
        let why = if smoke {
            "--smoke only shows that everything works"
        } else if cfg!(debug_assertions) {
            "this is a build without optimisation (make bench-net builds with it)"
        } else {
            return;
        };
        self.add("figures", format!("mean nothing: {why}"));
    }

    /// Returns whether the stamp contains the caution.
    pub fn has_caution(&self) -> bool {
        self.0.iter().any(|(name, value)| name == "figures" && value.starts_with("mean nothing"))
    }

    /// Adds a fact.
    pub fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }
}

/// Returns a version with the start of the checksum, which distinguishes two builds of the same version.
fn build(version: &str, checksum: &str) -> String {
    match checksum.get(..12) {
        Some(first) => format!("{version}, build {first}"),
        None => version.to_owned(),
    }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut values = info.lines().filter_map(|line| line.split_once(':'));
        values.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let flags = field("flags").unwrap_or_default();
    let is_virtual = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let kind = if is_virtual { "virtual machine" } else { "machine" };
    format!("{kind} with {}, {model}", number_of(affinity::available().len(), "core"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_one_version_are_told_apart() {
        assert_eq!(build("srv6d 0.1.0", "0123456789abcdef  srv6d"), "srv6d 0.1.0, build 0123456789ab");
        assert_eq!(build("srv6d 0.1.0", "unknown"), "srv6d 0.1.0");
    }
}
