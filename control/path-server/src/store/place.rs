//! Errors in a file with their places. A place is recorded as a path into the JSON. Line and column are computed from
//! the path only if there is an error.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

/// One step of a path into a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonStep {
    /// A key of an object.
    Key(String),
    /// An index of a list.
    Index(usize),
}

/// An error of one value, and how to correct it.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Path of the value from the top of the file.
    pub path: Vec<JsonStep>,
    pub what: String,
    pub fix: String,
}

impl Wrong {
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: Vec::new(), what: what.into(), fix: fix.into() }
    }

    /// Moves the error into the value of a key.
    pub fn in_key(mut self, key: impl Into<String>) -> Self {
        self.path.insert(0, JsonStep::Key(key.into()));
        self
    }

    /// Moves the error into an entry of a list.
    pub fn in_index(mut self, index: usize) -> Self {
        self.path.insert(0, JsonStep::Index(index));
        self
    }
}

/// The file in which an error is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The file that contains the whole topology.
    #[default]
    Whole,
    /// The list of nodes.
    Nodes,
    /// The list of hosts.
    Hosts,
    /// The list of edges.
    Edges,
}

/// Error of a file that is not a valid topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// File with the error.
    pub part: Part,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Place of the value, such as `edges[3]._to`; empty for the file as a whole.
    pub entry: String,
    /// What is wrong there.
    pub what: String,
    /// Correction that the user can make.
    pub fix: String,
}

impl std::error::Error for StoreError {}

/// Writes `14:7: edges[3]._to: what`, and the fix in its own line. The caller writes the name of the file in front.
impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, entry, what, fix, .. } = self;
        let colon = if entry.is_empty() { "" } else { ": " };
        write!(f, "{line}:{column}: {entry}{colon}{what}\nfix: {fix}")
    }
}

impl StoreError {
    /// Returns the error of a text that is not JSON.
    pub(super) fn syntax(part: Part, why: &serde_json::Error) -> Self {
        let text = why.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        Self {
            part,
            line: why.line().max(1),
            column: why.column().max(1),
            entry: String::new(),
            what: format!("not JSON: {what}"),
            fix: "look at what stands before that place: a comma too many or too few, a quote, a bracket".to_owned(),
        }
    }

    /// Returns the error of a value in the text.
    pub(super) fn at(part: Part, text: &str, wrong: Wrong) -> Self {
        let Wrong { path, what, fix } = wrong;
        // A separate file has its list at the top.
        let below = if part == Part::Whole { path.as_slice() } else { path.get(1..).unwrap_or_default() };
        let (line, column) = position(text, offset(text, below));
        Self { part, line, column, entry: shown(&path), what, fix }
    }
}

fn shown(path: &[JsonStep]) -> String {
    let is_name = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let step = |(number, step): (usize, &JsonStep)| match step {
        JsonStep::Index(index) => format!("[{index}]"),
        JsonStep::Key(key) if !is_name(key) => format!("[{key:?}]"),
        JsonStep::Key(key) if number == 0 => key.clone(),
        JsonStep::Key(key) => format!(".{key}"),
    };
    path.iter().enumerate().map(step).collect()
}

/// Returns the offset at which the value begins in the text, or the last value on its path that exists.
fn offset(text: &str, path: &[JsonStep]) -> usize {
    let mut value = text;
    for step in path {
        let next: Option<&RawValue> = match step {
            JsonStep::Key(key) => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(value).ok().and_then(|keys| keys.get(key).copied())
            }
            JsonStep::Index(index) => {
                serde_json::from_str::<Vec<&RawValue>>(value).ok().and_then(|list| list.get(*index).copied())
            }
        };
        let Some(next) = next else { break };
        value = next.get();
    }
    // `value` is a slice of `text`.
    let blanks = value.len() - value.trim_start().len();
    value.as_ptr().addr() - text.as_ptr().addr() + blanks
}

fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
