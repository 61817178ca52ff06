//! What the Linux kernel does where it differs from the cases, and what it was not asked: `divergences.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::case::{Linux, Pack};
use crate::file;

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// One sentence for each divergence, by its name.
    #[serde(default)]
    why: BTreeMap<String, String>,
    #[serde(default)]
    not_compared: Vec<NotCompared>,
    #[serde(default)]
    linux: Vec<Found>,
}

/// Cases that are not put to the kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotCompared {
    why: String,
    cases: Vec<String>,
}

/// What the kernel was seen to do in one case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    case: String,
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) accepted: bool,
    /// Frames that come out, of a case without steps.
    #[serde(default)]
    out: Vec<file::Out>,
    /// The same for each step.
    #[serde(default)]
    step: Vec<Vec<file::Out>>,
}

impl Found {
    /// The case with these frames in place of those that are right.
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

    /// Why a divergence of that name is there.
    pub(crate) fn why(&self, name: &str) -> Result<String, String> {
        let why = self.why.get(name).cloned();
        why.ok_or_else(|| format!("divergence {name:?} has no sentence in [why] of divergences.toml"))
    }

    pub(crate) fn why_not_compared(&self, case: &str) -> Result<String, String> {
        let found = self.not_compared.iter().find(|group| group.cases.iter().any(|id| id == case));
        let why = found.map(|group| group.why.clone());
        why.ok_or_else(|| "none, but no [[not_compared]] of divergences.toml says why".to_owned())
    }

    /// What the kernel does in a case that says that it differs.
    pub(crate) fn of(&self, case: &str) -> Result<&Found, String> {
        let found = self.linux.iter().find(|found| found.case == case);
        found.ok_or_else(|| "differs, but divergences.toml has no [[linux]] with what the kernel does".to_owned())
    }

    /// Everything that is listed belongs to a case that says so.
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
