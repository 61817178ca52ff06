//! What is noteworthy about the files of a switch.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Right, but not all there: a route over a port that does not exist, a SID that only exists once BGP runs.
    Note,
    /// Taken as it was meant, where SONiC's own models or daemons refuse it. An error when reading is strict.
    Tolerated,
    /// Left out, as SONiC does it too. An error when reading is strict.
    Ignored,
    /// It cannot be read, or the two files contradict each other.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Tolerated => "tolerated",
            Self::Ignored => "ignored",
            Self::Error => "error",
        })
    }
}

/// Something about one place of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    /// `config_db.json: SRV6_MY_SIDS|MAIN|fcbb:bbbb:1::/48 action` or `frr.conf:12`.
    pub place: String,
    /// What is there, and what becomes of it.
    pub what: String,
    /// How bad it is.
    pub severity: Severity,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.place, self.what)
    }
}

/// Findings while the files are read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    seen: HashSet<Finding>,
    /// What is only counted, per table.
    tallies: BTreeMap<(String, Tally), usize>,
}

/// Habits of a whole table, said once with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tally {
    /// Addresses in upper case, or with zeros in front.
    LongForm,
    /// Numbers and truth values without quotes.
    Bare,
    /// Ports without `admin_status`.
    NoAdminStatus,
}

impl Tally {
    const fn what(self) -> &'static str {
        match self {
            Self::LongForm => "addresses in upper case or with zeros in front: the same addresses",
            Self::Bare => "values without quotes: taken as their text",
            Self::NoAdminStatus => "ports without admin_status: administratively down, as in SONiC",
        }
    }
}

impl Findings {
    /// Notes a finding. The same about the same place is said once.
    pub(crate) fn add(&mut self, severity: Severity, place: impl Into<String>, what: impl Into<String>) {
        let finding = Finding { place: place.into(), what: what.into(), severity };
        if self.seen.insert(finding.clone()) {
            self.found.push(finding);
        }
    }

    pub(crate) fn note(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.add(Severity::Note, place, what);
    }

    pub(crate) fn tolerated(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.add(Severity::Tolerated, place, what);
    }

    pub(crate) fn ignored(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.add(Severity::Ignored, place, what);
    }

    pub(crate) fn error(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.add(Severity::Error, place, what);
    }

    /// Counts a habit of a table.
    pub(crate) fn tally(&mut self, table: &str, habit: Tally) {
        *self.tallies.entry((table.to_owned(), habit)).or_default() += 1;
    }

    /// All of them, or an error if one is an error. `strict`: what was tolerated or ignored is one too.
    pub(crate) fn finish(mut self, strict: bool) -> Result<Vec<Finding>, Vec<Finding>> {
        for ((table, habit), count) in std::mem::take(&mut self.tallies) {
            self.note(format!("config_db.json: {table}"), format!("{count} {}", habit.what()));
        }
        if strict {
            for finding in self.found.iter_mut().filter(|finding| finding.severity > Severity::Note) {
                finding.severity = Severity::Error;
            }
        }
        if self.found.iter().any(|finding| finding.severity == Severity::Error) {
            Err(self.found)
        } else {
            Ok(self.found)
        }
    }
}
