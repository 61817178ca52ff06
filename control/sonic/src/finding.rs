//! Findings: facts about the files of a switch that its user should know.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The entry is correct, but something it needs is missing: a route over a port that does not exist, a SID that
    /// only exists once BGP runs.
    Note,
    /// The entry is accepted as it was meant, although SONiC's own models or daemons refuse it. In strict reading it is
    /// an error.
    Tolerated,
    /// The entry is left out, as in SONiC. In strict reading it is an error.
    Ignored,
    /// The file cannot be read, or the two files contradict each other.
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

/// A statement about one place of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    /// The place: `config_db.json: SRV6_MY_SIDS|MAIN|fcbb:bbbb:1::/48 action` or `frr.conf:12`.
    pub place: String,
    /// What is written there, and what srv6d does with it.
    pub what: String,
    /// Severity of the finding.
    pub severity: Severity,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, Escaped(&self.place), Escaped(&self.what))
    }
}

/// A text of a file, shown without the control characters that a terminal would obey.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| {
            if letter.is_control() { write!(f, "{}", letter.escape_default()) } else { write!(f, "{letter}") }
        })
    }
}

/// The findings collected while the files are read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    seen: HashSet<Finding>,
    /// Peculiarities that are only counted, per table.
    counts: BTreeMap<(String, Quirk), usize>,
}

/// Peculiarities of whole tables, which are reported once with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quirk {
    /// Addresses in upper case, or with zeros in front.
    LongForm,
    /// Numbers and truth values without quotes.
    Bare,
    /// Ports without `admin_status`.
    NoAdminStatus,
}

impl Quirk {
    const fn what(self) -> &'static str {
        match self {
            Self::LongForm => "addresses in upper case or with zeros in front: the same addresses",
            Self::Bare => "values without quotes: taken as their text",
            Self::NoAdminStatus => "ports without admin_status: administratively down, as in SONiC",
        }
    }
}

impl Findings {
    /// Adds a finding, unless the same text about the same place has been added before.
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

    /// Counts a peculiarity of a table.
    pub(crate) fn count(&mut self, table: &str, quirk: Quirk) {
        *self.counts.entry((table.to_owned(), quirk)).or_default() += 1;
    }

    /// Returns all findings, as an error if one of them is an error. If `strict`, tolerated and ignored entries are
    /// errors, too.
    pub(crate) fn finish(mut self, strict: bool) -> Result<Vec<Finding>, Vec<Finding>> {
        for ((table, quirk), count) in std::mem::take(&mut self.counts) {
            self.note(format!("config_db.json: {table}"), format!("{count} {}", quirk.what()));
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
