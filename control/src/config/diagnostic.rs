//! What is wrong, where, and the fix: the one form of every error, warning and pending note.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

/// Text of a configuration, kept so that later findings can still point into it: a file, and behind it what other
/// files come to.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: Arc<str>,
    parts: Arc<[Part]>,
    /// Byte offset of every line: a file of a hundred thousand routes may have as many findings.
    starts: Arc<[usize]>,
}

/// One named text of a configuration.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    start: usize,
    end: usize,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self::of_parts(text.to_owned(), vec![Part { name: name.to_owned(), start: 0, end: text.len() }])
    }

    /// This text and another one behind it; where that begins is where the spans of what is read from it must begin.
    pub(super) fn followed_by(&self, name: &str, text: &str) -> (Self, usize) {
        let mut all = self.text.to_string();
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
        let start = all.len();
        all.push_str(text);
        let mut parts = self.parts.to_vec();
        parts.push(Part { name: name.to_owned(), start, end: all.len() });
        (Self::of_parts(all, parts), start)
    }

    fn of_parts(text: String, parts: Vec<Part>) -> Self {
        let behind_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        let starts = std::iter::once(0).chain(behind_newlines).collect();
        Self { text: text.into(), parts: parts.into(), starts }
    }

    /// File name as given to [`parse`](super::parse).
    pub fn name(&self) -> &str {
        self.parts.first().map_or("", |part| &part.name)
    }

    fn part(&self, offset: usize) -> Option<&Part> {
        self.parts.iter().rev().find(|part| part.start <= offset)
    }

    fn number_of_line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset).max(1)
    }

    /// Name of the text, line and column in it (both from 1, columns in characters) of a byte offset, and the line.
    fn position(&self, offset: usize) -> (&str, usize, usize, &str) {
        let (name, begin, end) =
            self.part(offset).map_or(("", 0, 0), |part| (part.name.as_str(), part.start, part.end));
        // What ends too early is pointed at behind its last line, not in the empty one after it.
        let written = self.text.get(begin..end).unwrap_or_default().trim_end().len();
        let offset = offset.min(begin + written);
        let number = self.number_of_line(offset);
        let start = self.starts.get(number - 1).copied().unwrap_or_default();
        let line = self.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let before = line.get(..offset - start).unwrap_or(line);
        (name, number + 1 - self.number_of_line(begin), before.chars().count() + 1, line)
    }

    /// One finding about a span of bytes.
    pub(crate) fn diagnostic(
        &self,
        severity: Severity,
        span: Range<usize>,
        entry: &str,
        what: String,
        fix: String,
    ) -> Diagnostic {
        let (name, line, column, text) = self.position(span.start);
        let behind = text.chars().count().saturating_sub(column - 1);
        let marked = self.text.get(span).unwrap_or_default().lines().next().unwrap_or_default().chars().count();
        Diagnostic {
            severity,
            file: name.to_owned(),
            line,
            column,
            entry: entry.to_owned(),
            what,
            fix,
            source_line: text.to_owned(),
            width: marked.min(behind).max(1),
        }
    }

    /// What serde refuses in a TOML text that is no `srv6d.toml`.
    pub(crate) fn refused_toml(&self, error: &toml::de::Error, fix: &str) -> Diagnostic {
        self.diagnostic(
            Severity::Error,
            error.span().unwrap_or_default(),
            "",
            error.message().to_owned(),
            fix.to_owned(),
        )
    }

    /// The same for JSON, which is pointed at behind what was read last.
    pub(crate) fn refused_json(&self, error: &serde_json::Error, fix: &str) -> Diagnostic {
        let start = self.starts.get(error.line().saturating_sub(1)).copied().unwrap_or_default();
        let at = start + error.column().saturating_sub(1);
        // serde_json ends its text with the place, which stands in front here.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        self.diagnostic(Severity::Error, at..at + 1, "", what.to_owned(), fix.to_owned())
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// Accepted, but probably not what was meant.
    Warning,
    /// Right, and waiting for something that does not exist yet.
    Pending,
    /// Worth knowing: nothing is wrong, and nothing waits.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Pending => "pending",
            Self::Note => "note",
        })
    }
}

/// One finding about one place of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Table and key, e.g. `[[sid]] behavior`.
    pub entry: String,
    /// What is wrong; for a pending entry, what it waits for.
    pub what: String,
    /// What to do about it; empty when nothing has to be done.
    pub fix: String,
    /// The line itself.
    pub source_line: String,
    /// Number of characters the caret underlines.
    pub width: usize,
}

impl Diagnostic {
    /// `error: srv6d.toml:14:12: [[sid]] behavior: what`, without source line and fix.
    pub fn headline(&self) -> String {
        let Self { severity, file, line, column, entry, what, .. } = self;
        let colon = if entry.is_empty() { "" } else { ": " };
        format!("{severity}: {file}:{line}:{column}: {entry}{colon}{what}")
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = self.line.to_string().len();
        // A tab or an escape sequence in the file must neither shift the caret nor reach the terminal.
        let shown: String = self.source_line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(f, "{}", self.headline())?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{} | {}", self.line, shown.trim_end())?;
        write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(self.width), indent = self.column - 1)?;
        if !self.fix.is_empty() {
            write!(f, "\nfix: {}", self.fix)?;
        }
        Ok(())
    }
}

/// Everything that stands against a configuration: never empty, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Errors(pub Vec<Diagnostic>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Findings about a configuration that is accepted, in the order of its lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) warnings: Vec<Diagnostic>,
    pub(crate) pending: Vec<Diagnostic>,
    pub(crate) notes: Vec<Diagnostic>,
}

/// Collects findings while a configuration is read or planned.
#[derive(Debug)]
pub(crate) struct Findings {
    source: Source,
    found: Vec<Diagnostic>,
}

impl Findings {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, found: Vec::new() }
    }

    pub(crate) fn error(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, span, entry, what.into(), fix.into());
    }

    pub(crate) fn warning(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Warning, span, entry, what.into(), fix.into());
    }

    pub(crate) fn pending(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Pending, span, entry, what.into(), fix.into());
    }

    pub(crate) fn note(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>) {
        self.add(Severity::Note, span, entry, what.into(), String::new());
    }

    /// `line 14` of the place where something else was said before.
    pub(crate) fn line_of(&self, span: &Range<usize>) -> String {
        let (name, line, ..) = self.source.position(span.start);
        let part = if name == self.source.name() { String::new() } else { format!(" of {name}") };
        format!("line {line}{part}")
    }

    fn add(&mut self, severity: Severity, span: Range<usize>, entry: &str, what: String, fix: String) {
        self.found.push(self.source.diagnostic(severity, span, entry, what, fix));
    }

    /// The errors, if there are any; otherwise everything else.
    pub(crate) fn finish(mut self) -> Result<Accepted, Errors> {
        let part = |finding: &Diagnostic| self.source.parts.iter().position(|part| part.name == finding.file);
        self.found.sort_by_cached_key(|finding| (part(finding), finding.line, finding.column));
        self.found.dedup();
        let (errors, others): (Vec<_>, Vec<_>) =
            self.found.into_iter().partition(|finding| finding.severity == Severity::Error);
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        let mut accepted = Accepted::default();
        for finding in others {
            match finding.severity {
                Severity::Pending => accepted.pending.push(finding),
                Severity::Note => accepted.notes.push(finding),
                Severity::Warning | Severity::Error => accepted.warnings.push(finding),
            }
        }
        Ok(accepted)
    }
}
