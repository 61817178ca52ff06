//! Findings with their place and fix, in one form for all errors, warnings, pending entries and notes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use srv6d_text::{blanked, escaped, escaped_lines};

/// Number of characters of a line that are shown in front of the place of a finding, and from it on: a file may be one
/// line of many megabytes.
const SHOWN: usize = 120;

/// Text that stands for a part of a line that is left out.
const LEFT_OUT: &str = "...";

/// Text of a configuration, kept so that later findings can refer to places in it. It consists of the file and, behind
/// it, texts that are generated from other files.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: Arc<str>,
    parts: Arc<[Part]>,
    /// Byte offsets of all lines, for fast searches: a file with a hundred thousand routes may have as many findings.
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
    /// Takes a text; `name` is the name of its file.
    pub fn new(name: &str, text: &str) -> Self {
        Self::of_parts(text.to_owned(), vec![Part { name: name.to_owned(), start: 0, end: text.len() }])
    }

    /// Returns this text with another one appended. The second value is the offset of that text, at which the spans of
    /// its values must begin.
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

    /// Returns the file name that was given to [`parse`](super::parse).
    pub fn name(&self) -> &str {
        self.parts.first().map_or("", |part| &part.name)
    }

    fn part(&self, offset: usize) -> Option<&Part> {
        self.parts.iter().rev().find(|part| part.start <= offset)
    }

    fn number_of_line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset).max(1)
    }

    /// Returns where a span begins: `line 7`, or `line 7 of NAME` in a part with another name.
    pub fn line_of(&self, span: &Range<usize>) -> String {
        let (name, line, ..) = self.position(span.start);
        let part = if name == self.name() { String::new() } else { format!(" of {name}") };
        format!("line {line}{part}")
    }

    /// Returns the name of the text, line and column in it (both from 1, columns in characters) of a byte offset, and
    /// the line itself.
    fn position(&self, offset: usize) -> (&str, usize, usize, &str) {
        let (name, begin, end) =
            self.part(offset).map_or(("", 0, 0), |part| (part.name.as_str(), part.start, part.end));
        // If the text ends too early, the position is behind its last line and not in the empty line after it.
        let written = self.text.get(begin..end).unwrap_or_default().trim_end().len();
        let offset = offset.min(begin + written);
        let number = self.number_of_line(offset);
        let start = self.starts.get(number - 1).copied().unwrap_or_default();
        let line = self.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let before = line.get(..offset - start).unwrap_or(line);
        (name, number + 1 - self.number_of_line(begin), before.chars().count() + 1, line)
    }

    /// Returns a finding about a span of bytes.
    pub fn diagnostic(
        &self,
        severity: Severity,
        span: Range<usize>,
        entry: &str,
        what: String,
        fix: String,
    ) -> Diagnostic {
        let (name, line, column, text) = self.position(span.start);
        let (source_line, indent, behind) = excerpt(text, column - 1);
        let marked = self.text.get(span).unwrap_or_default().lines().next().unwrap_or_default();
        let marked = marked.chars().take(SHOWN).count();
        Diagnostic {
            severity,
            file: name.to_owned(),
            line,
            column,
            entry: entry.to_owned(),
            what,
            fix,
            source_line,
            indent,
            width: marked.min(behind).max(1),
        }
    }

    /// Returns the finding for an error of serde in a TOML text other than `srv6d.toml`.
    pub fn refused_toml(&self, error: &toml::de::Error, fix: &str) -> Diagnostic {
        self.diagnostic(
            Severity::Error,
            error.span().unwrap_or_default(),
            "",
            error.message().to_owned(),
            fix.to_owned(),
        )
    }

    /// Returns the finding for an error of serde in a JSON text. Its place is behind the part that was read last.
    pub fn refused_json(&self, error: &serde_json::Error, fix: &str) -> Diagnostic {
        let start = self.starts.get(error.line().saturating_sub(1)).copied().unwrap_or_default();
        let at = start + error.column().saturating_sub(1);
        // serde_json writes the place at the end of its text, but a finding has it in front.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        self.diagnostic(Severity::Error, at..at + 1, "", what.to_owned(), fix.to_owned())
    }
}

/// Returns the part of a line around a column, counted from 0, the number of its characters in front of that column, and
/// the number of the line's characters from it on, as far as they are shown.
fn excerpt(line: &str, column: usize) -> (String, usize, usize) {
    let skipped = column.saturating_sub(SHOWN);
    let mut rest = line.chars().skip(skipped);
    let mut text = if skipped > 0 { LEFT_OUT.to_owned() } else { String::new() };
    let indent = text.len() + column - skipped;
    text.extend(rest.by_ref().take(column - skipped));
    let behind: String = rest.by_ref().take(SHOWN).collect();
    text.push_str(&behind);
    if rest.next().is_some() {
        text.push_str(LEFT_OUT);
    }
    (text, indent, behind.chars().count())
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is accepted, but is probably not what the user meant.
    Warning,
    /// The entry is correct, and waits for something that does not exist yet.
    Pending,
    /// Information for the user: nothing is wrong, and nothing waits.
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

/// A finding about one place of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Severity of the finding.
    pub severity: Severity,
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Table and key, e.g. `[[sid]] behavior`.
    pub entry: String,
    /// What is wrong or, for a pending entry, what it waits for.
    pub what: String,
    /// How to correct it; empty if nothing has to be done.
    pub fix: String,
    /// Text of the line; of a long one the part around the column, with `...` for the rest.
    pub source_line: String,
    /// Number of characters in `source_line` in front of the carets.
    pub indent: usize,
    /// Number of characters that the carets underline.
    pub width: usize,
}

impl Diagnostic {
    /// Makes an error that is about a file as a whole.
    pub fn of_file(file: String, entry: &str, what: String, fix: String) -> Self {
        Self {
            severity: Severity::Error,
            file,
            line: 1,
            column: 1,
            entry: entry.to_owned(),
            what,
            fix,
            source_line: String::new(),
            indent: 0,
            width: 0,
        }
    }

    /// Returns `error: srv6d.toml:14:12: [[sid]] behavior: what`, without source line and fix.
    pub fn headline(&self) -> String {
        let Self { severity, file, line, column, entry, what, .. } = self;
        let colon = if entry.is_empty() { "" } else { ": " };
        // Names in it may come from a file, from the kernel, or from a controller.
        escaped(&format!("{severity}: {file}:{line}:{column}: {entry}{colon}{what}"))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gutter = self.line.to_string().len();
        // Control characters of the file are replaced, so that none shifts the caret or controls the terminal.
        let shown = blanked(&self.source_line);
        writeln!(f, "{}", self.headline())?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{} | {}", self.line, shown.trim_end())?;
        write!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(self.width), indent = self.indent)?;
        if !self.fix.is_empty() {
            write!(f, "\nfix: {}", escaped_lines(&self.fix))?;
        }
        Ok(())
    }
}

/// All errors of a configuration, in the order of the file; never empty.
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

/// Findings about an accepted configuration, in the order of its lines.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Accepted, but probably not what was meant.
    pub warnings: Vec<Diagnostic>,
    /// Correct, and waiting for something that does not exist yet.
    pub pending: Vec<Diagnostic>,
    /// Facts that are worth knowing and wait for nothing.
    pub notes: Vec<Diagnostic>,
}

/// Collects findings while a configuration is read or planned.
#[derive(Debug)]
pub struct Findings {
    source: Source,
    found: Vec<Diagnostic>,
}

impl Findings {
    /// Begins a collection of findings about a text.
    pub fn new(source: Source) -> Self {
        Self { source, found: Vec::new() }
    }

    /// Adds an error: the configuration is refused.
    pub fn error(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, span, entry, what.into(), fix.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Warning, span, entry, what.into(), fix.into());
    }

    /// Adds an entry that waits for something.
    pub fn pending(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Pending, span, entry, what.into(), fix.into());
    }

    /// Adds a note.
    pub fn note(&mut self, span: Range<usize>, entry: &str, what: impl Into<String>) {
        self.add(Severity::Note, span, entry, what.into(), String::new());
    }

    /// Adds findings that were made before.
    pub fn extend(&mut self, others: &[Diagnostic]) {
        self.found.extend(others.iter().cloned());
    }

    /// Returns `line 14` for a place, so that another finding can refer to it.
    pub fn line_of(&self, span: &Range<usize>) -> String {
        self.source.line_of(span)
    }

    fn add(&mut self, severity: Severity, span: Range<usize>, entry: &str, what: String, fix: String) {
        self.found.push(self.source.diagnostic(severity, span, entry, what, fix));
    }

    /// Returns all findings in the order in which they were made.
    pub fn into_all(self) -> Vec<Diagnostic> {
        self.found
    }

    /// Returns the errors if there are any, otherwise all other findings.
    pub fn finish(mut self) -> Result<Accepted, Errors> {
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
