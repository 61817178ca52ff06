//! Reads `divergences.toml`: how the Linux kernel differs from the cases, and which cases it is not tested with.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::case::{Linux, Pack};
use crate::file;

/// Contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Reason for each divergence in one sentence, by name of the divergence.
    #[serde(default)]
    why: BTreeMap<String, String>,
    #[serde(default)]
    not_compared: Vec<NotCompared>,
    #[serde(default)]
    linux: Vec<Found>,
}

/// Cases that the kernel is not tested with, and the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotCompared {
    why: String,
    cases: Vec<String>,
}

/// Observed behaviour of the kernel in one case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    case: String,
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) accepted: bool,
    /// Frames that the kernel sends, for a case without steps.
    #[serde(default)]
    out: Vec<file::Out>,
    /// Frames that the kernel sends in each step, for a case with steps.
    #[serde(default)]
    step: Vec<Vec<file::Out>>,
}

impl Found {
    /// Returns the case with these frames in place of the expected ones.
    pub(crate) fn laid_over(&self, case: &file::Case) -> file::Case {
        let mut kernel = case.clone();
        kernel.outputs.clone_from(&self.out);
        let nothing = Vec::new();
        for (step, outputs) in kernel.step.iter_mut().zip(self.step.iter().chain(std::iter::repeat(&nothing))) {
            step.outputs.clone_from(outputs);
        }
        kernel
    }
}

impl Record {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|why| why.to_string())
    }

    /// Returns the reason for the divergence of this name.
    pub(crate) fn why(&self, name: &str) -> Result<String, String> {
        let why = self.why.get(name).cloned();
        why.ok_or_else(|| format!("divergence {name:?} has no sentence in [why] of divergences.toml"))
    }

    pub(crate) fn why_not_compared(&self, case: &str) -> Result<String, String> {
        let found = self.not_compared.iter().find(|group| group.cases.iter().any(|id| id == case));
        let why = found.map(|group| group.why.clone());
        why.ok_or_else(|| "none, but no [[not_compared]] of divergences.toml says why".to_owned())
    }

    /// Returns the behaviour of the kernel in a case that names a divergence.
    pub(crate) fn of(&self, case: &str) -> Result<&Found, String> {
        let found = self.linux.iter().find(|found| found.case == case);
        found.ok_or_else(|| "differs, but divergences.toml has no [[linux]] with what the kernel does".to_owned())
    }

    /// Checks that each entry belongs to a case that refers to it.
    pub(crate) fn check_against(&self, pack: &Pack) -> Result<(), String> {
        let linux = |id: &str| pack.case(id).map(|case| &case.linux);
        for id in self.not_compared.iter().flat_map(|group| &group.cases) {
            if !matches!(linux(id), Some(Linux::None(_))) {
                return Err(format!("not_compared: {id} is no case that says linux = \"none\""));
            }
        }
        for (index, found) in self.linux.iter().enumerate() {
            let id = &found.case;
            if !matches!(linux(id), Some(Linux::Diverge(_))) {
                return Err(format!("linux: {id} is no case that names a divergence"));
            }
            if self.linux.iter().take(index).any(|other| other.case == *id) {
                return Err(format!("linux: {id} is there twice"));
            }
        }
        let used = |name: &str| pack.cases.iter().any(|case| case.linux.to_string() == name);
        match self.why.keys().find(|name| !used(name)) {
            Some(name) => Err(format!("why: no case names the divergence {name}")),
            None => Ok(()),
        }
    }
}
