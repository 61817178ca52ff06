//! Reader for one TOML table, which takes it key by key and reports keys that nothing has read.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::diagnostic::Findings;
use super::value::{InterfaceName, Refusal, Value, nearest, type_name, unsigned};

/// A table of the schema.
pub trait Record: Sized {
    /// Header of the table in a file, e.g. `[[sid]]`.
    const HEADER: &'static str;

    /// Reads all keys of the table. Returns `None` after an error was reported.
    fn read(table: &mut Table<'_, '_>) -> Option<Self>;
}

/// A table that is being read.
pub struct Table<'t, 'f> {
    header: &'static str,
    entries: &'t DeTable<'t>,
    span: Range<usize>,
    known: Vec<&'static str>,
    missing: Vec<(&'static str, String)>,
    findings: &'f mut Findings,
}

impl<'t, 'f> Table<'t, 'f> {
    pub(super) fn new(
        header: &'static str,
        entries: &'t DeTable<'t>,
        span: Range<usize>,
        findings: &'f mut Findings,
    ) -> Self {
        Self { header, entries, span, known: Vec::new(), missing: Vec::new(), findings }
    }

    /// Returns all keys that were read, whether the table has them or not.
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    fn take(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.entries.get(key)
    }

    /// Reports an error about a key of this table.
    pub fn refuse(&mut self, span: Range<usize>, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        let entry = if self.header.is_empty() { key.to_owned() } else { format!("{} {key}", self.header) };
        self.findings.error(span, entry.trim(), what, fix);
    }

    fn accept<T>(&mut self, key: &str, span: Range<usize>, read: Result<T, Refusal>) -> Option<Spanned<T>> {
        match read {
            Ok(value) => Some(Spanned::new(span, value)),
            Err(Refusal { what, fix }) => {
                self.refuse(span, key, what, fix);
                None
            }
        }
    }

    /// Reads an optional key.
    pub fn optional<T: Value>(&mut self, key: &'static str) -> Option<Spanned<T>> {
        let value = self.take(key)?;
        self.accept(key, value.span(), T::read(value.get_ref()))
    }

    /// Reads an optional name of a network device.
    pub fn optional_interface(&mut self, key: &'static str) -> Option<Spanned<String>> {
        let name = self.optional::<InterfaceName>(key)?;
        Some(Spanned::new(name.span(), name.into_inner().0))
    }

    /// Reads a required key.
    pub fn required<T: Value>(&mut self, key: &'static str) -> Option<Spanned<T>> {
        if !self.entries.contains_key(key) {
            self.missing.push((key, format!("add `{key} = ...`: {}", T::expected())));
        }
        self.optional(key)
    }

    /// Reads a required integer within limits.
    pub fn required_number<N: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Spanned<N>> {
        if !self.entries.contains_key(key) {
            let fix = format!("add `{key} = ...`: a number from {} to {}", range.start(), range.end());
            self.missing.push((key, fix));
        }
        self.number(key, range)
    }

    /// Reads an optional integer within limits.
    pub fn number<N: TryFrom<u64>>(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Spanned<N>> {
        let value = self.take(key)?;
        let (low, high) = (*range.start(), *range.end());
        let number = unsigned(value.get_ref()).filter(|number| range.contains(number));
        let read = number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| Refusal {
            what: match value.get_ref() {
                DeValue::Integer(number) => format!("{number} is out of range"),
                other => format!("is {}", type_name(other)),
            },
            fix: format!("write a number from {low} to {high}, without quotes"),
        });
        self.accept(key, value.span(), read)
    }

    /// Reads a list of values; a missing key is an empty list.
    pub fn list<T: Value>(&mut self, key: &'static str) -> Vec<Spanned<T>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let Some(items) = self.array(key, value, || format!("write a list: [...] of {}", T::expected())) else {
            return Vec::new();
        };
        items.iter().filter_map(|item| self.accept(key, item.span(), T::read(item.get_ref()))).collect()
    }

    /// Reads a list of at least one value.
    pub fn required_list<T: Value>(&mut self, key: &'static str) -> Vec<Spanned<T>> {
        if !self.entries.contains_key(key) {
            self.missing.push((key, format!("add `{key} = [...]`: {}", T::expected())));
        }
        self.list(key)
    }

    /// Reads a list of numbers that fit the type; a missing key is an empty list.
    pub fn numbers<N: TryFrom<u64>>(&mut self, key: &'static str, example: &str) -> Vec<Spanned<N>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let fix = format!("write a list of numbers, e.g. {example}");
        let Some(items) = self.array(key, value, || fix.clone()) else { return Vec::new() };
        let read = |item: &DeValue<'_>| {
            unsigned(item).and_then(|number| N::try_from(number).ok()).ok_or_else(|| Refusal {
                what: format!("an item is {} that does not fit", type_name(item)),
                fix: fix.clone(),
            })
        };
        items.iter().filter_map(|item| self.accept(key, item.span(), read(item.get_ref()))).collect()
    }

    fn array(
        &mut self,
        key: &str,
        value: &'t Spanned<DeValue<'t>>,
        fix: impl Fn() -> String,
    ) -> Option<&'t DeArray<'t>> {
        let items = value.get_ref().as_array();
        if items.is_none() {
            self.refuse(value.span(), key, format!("is {}, not a list", type_name(value.get_ref())), fix());
        }
        items
    }

    /// Reads a `[table]`; a missing one is empty.
    pub fn record<T: Record + Default>(&mut self, key: &'static str) -> T {
        let Some(value) = self.take(key) else { return T::default() };
        match value.get_ref() {
            DeValue::Table(entries) => self.nested::<T>(entries, value.span()).unwrap_or_default(),
            other => {
                let what = format!("is {}, not a table", type_name(other));
                self.refuse(value.span(), key, what, format!("write it once, as {}", T::HEADER));
                T::default()
            }
        }
    }

    /// Reads a `[table]` whose existence has a meaning.
    pub fn optional_record<T: Record>(&mut self, key: &'static str) -> Option<T> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => self.nested::<T>(entries, value.span()),
            other => {
                let what = format!("is {}, not a table", type_name(other));
                self.refuse(value.span(), key, what, format!("write it once, as {}", T::HEADER));
                None
            }
        }
    }

    /// Reads a key that is either a word or a table.
    pub fn word_or_record<W: Value, T: Record>(&mut self, key: &'static str) -> Option<Result<Spanned<W>, T>> {
        let value = self.take(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => self.nested::<T>(entries, value.span()).map(Err),
            other => self.accept(key, value.span(), W::read(other)).map(Ok),
        }
    }

    /// Refuses a key that people expect here and that has no meaning.
    pub fn never(&mut self, key: &'static str, what: &str, fix: &str) {
        if let Some(value) = self.take(key) {
            self.refuse(value.span(), key, what, fix);
        }
    }

    /// Reads `[[table]]` or a list of inline tables; a missing key is an empty list.
    pub fn records<T: Record>(&mut self, key: &'static str) -> Vec<Spanned<T>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let Some(items) = self.array(key, value, || form::<T>(key)) else { return Vec::new() };
        let mut records = Vec::new();
        for item in items {
            if let DeValue::Table(entries) = item.get_ref() {
                records.extend(self.nested(entries, item.span()).map(|record| Spanned::new(item.span(), record)));
            } else {
                self.refuse(item.span(), key, "an item is not a table", form::<T>(key));
            }
        }
        records
    }

    fn nested<T: Record>(&mut self, entries: &DeTable<'_>, span: Range<usize>) -> Option<T> {
        let mut table = Table::new(T::HEADER, entries, span, self.findings);
        let record = T::read(&mut table);
        table.finish();
        record
    }

    /// Reports missing and unknown keys, each unknown one with the most similar known one.
    pub(super) fn finish(mut self) {
        let mut suggested = Vec::new();
        for (key, _) in self.entries {
            if self.known.contains(&key.get_ref().as_ref()) {
                continue;
            }
            let unused = self.known.iter().copied().filter(|known| !self.entries.contains_key(*known));
            let fix = match nearest(key.get_ref(), unused) {
                Some(near) => {
                    suggested.push(near);
                    format!("did you mean `{near}`?")
                }
                None => format!("remove it, or use one of: {}", self.known.join(", ")),
            };
            self.refuse(key.span(), key.get_ref(), "unknown key", fix);
        }
        // A misspelt key is reported once, not also as missing.
        for (key, fix) in std::mem::take(&mut self.missing) {
            if !suggested.contains(&key) {
                self.refuse(self.span.clone(), "", format!("`{key}` is missing"), fix);
            }
        }
    }
}

/// Returns how to write a list of tables under a key.
fn form<T: Record>(key: &str) -> String {
    if T::HEADER.starts_with("[[") { format!("write {}", T::HEADER) } else { format!("write {key} = [{{ ... }}]") }
}
