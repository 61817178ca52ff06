//! What is wrong with a file, and where: a path into the JSON, which is looked up in the text only then.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

/// One step into a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Of an object.
    Key(String),
    /// Of a list.
    Index(usize),
}

/// What is wrong with one value, and what to do about it.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// From the top of the file.
    pub path: Vec<Step>,
    pub what: String,
    pub fix: String,
}

impl Wrong {
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: Vec::new(), what: what.into(), fix: fix.into() }
    }

    /// The value is that of a key.
    pub fn in_key(mut self, key: impl Into<String>) -> Self {
        self.path.insert(0, Step::Key(key.into()));
        self
    }

    /// The value is one of a list.
    pub fn in_index(mut self, index: usize) -> Self {
        self.path.insert(0, Step::Index(index));
        self
    }
}

/// Which of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The one that holds everything.
    #[default]
    Whole,
    /// The list of nodes.
    Nodes,
    /// The list of hosts.
    Hosts,
    /// The list of edges.
    Edges,
}

/// A file that is no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The file.
    pub part: Part,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// `edges[3]._to`; empty: the file as a whole.
    pub entry: String,
    /// What is wrong there.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl std::error::Error for StoreError {}

/// `14:7: edges[3]._to: what`, and the fix in a line of its own; the name of the file goes in front.
impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, entry, what, fix, .. } = self;
        let colon = if entry.is_empty() { "" } else { ": " };
        write!(f, "{line}:{column}: {entry}{colon}{what}\nfix: {fix}")
    }
}

impl StoreError {
    /// The text is not JSON.
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

    /// Something in the text is wrong.
    pub(super) fn at(part: Part, text: &str, wrong: Wrong) -> Self {
        let Wrong { path, what, fix } = wrong;
        // A file of its own begins with its list.
        let below = if part == Part::Whole { path.as_slice() } else { path.get(1..).unwrap_or_default() };
        let (line, column) = position(text, offset(text, below));
        Self { part, line, column, entry: shown(&path), what, fix }
    }
}

fn shown(path: &[Step]) -> String {
    let is_name = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let step = |(number, step): (usize, &Step)| match step {
        Step::Index(index) => format!("[{index}]"),
        Step::Key(key) if !is_name(key) => format!("[{key:?}]"),
        Step::Key(key) if number == 0 => key.clone(),
        Step::Key(key) => format!(".{key}"),
    };
    path.iter().enumerate().map(step).collect()
}

/// Where the value begins in the text, or the last one on the way that is there.
fn offset(text: &str, path: &[Step]) -> usize {
    let mut value = text;
    for step in path {
        let next: Option<&RawValue> = match step {
            Step::Key(key) => {
                serde_json::from_str::<BTreeMap<String, &RawValue>>(value).ok().and_then(|keys| keys.get(key).copied())
            }
            Step::Index(index) => {
                serde_json::from_str::<Vec<&RawValue>>(value).ok().and_then(|list| list.get(*index).copied())
            }
        };
        let Some(next) = next else { break };
        value = next.get();
    }
    // It is a part of the text.
    let blanks = value.len() - value.trim_start().len();
    value.as_ptr().addr() - text.as_ptr().addr() + blanks
}

fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
