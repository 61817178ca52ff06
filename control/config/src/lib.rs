//! Conversion of the text of `srv6d.toml` into a [`Config`].
//!
//! The whole text is read even if it has errors, so that one run reports all of them. Types and limits of single values
//! are checked here; the plan checks relations between tables.

#![forbid(unsafe_code)]

mod balance;
mod diagnostic;
mod emulate;
mod fpm;
mod glb;
mod jobs;
mod merge;
mod probes;
mod records;
mod schema;
mod sources;
mod table;
mod value;

use std::ops::Range;

use toml::de::DeTable;

pub use balance::{Balance, BalanceMode, BandRule, HASH, Reactive, Reorder, ShortTime, WeightMetric};
pub use diagnostic::{Diagnostic, Errors, Severity, Source};
pub use emulate::{EcnMarking, EcnProfile, EcnRule, Emulate, NonEct, Rate, Share, WireTime};
pub use fpm::{Fpm, FpmDialect, ListenAddress};
pub use glb::{Glb, GlbRole, LinkGroup, NodeId};
pub use jobs::Jobs;
pub use probes::Probes;
pub use schema::{
    Api, Block, Checksum, Config, DtArgument, Ecn, Flavor, Host, HostEngine, InnerDscp, Neighbor, NextHop, Node,
    OneHop, Optional, PathKeys, Polling, Port, PortMode, PortOffload, PortRole, Route, RouteType, Sid, SidBehavior,
    SrhCheck, Steer, SteerMode, SteerPath, UaLast, Unknown, Workers,
};
pub use sources::{
    Criterion, Disjointness, Endpoint, Function, Jalapeno, Kernel, RequestSettings, Sharing, Steering, Syd, SydPeer,
};
pub use toml::Spanned;
pub use value::{Keyword, MetricsAddress, OuterDscp, Refusal, Value};

pub use diagnostic::{Accepted, Findings};
pub use table::{Record, Table};
pub use value::{is_interface_name, nearest};

/// Parses a configuration. `filename` is only used in findings.
///
/// # Errors
/// All errors in the text: if there are errors of TOML syntax, only these; otherwise unknown and missing keys, and
/// unfit values.
pub fn parse(text: &str, filename: &str) -> Result<Config, Errors> {
    read(text, Source::new(filename, text), |_| ()).map(|(config, ())| config)
}

/// A table of `srv6d.toml` that has no meaning for srv6d itself. A program around it reads the table.
pub trait ForeignTable: Record {
    /// Key of the table.
    const KEY: &'static str;
}

/// Parses a configuration that may have the table `E`, too.
///
/// # Errors
/// The errors are those of [`parse`].
pub fn parse_with<E: ForeignTable>(text: &str, filename: &str) -> Result<(Config, Option<E>), Errors> {
    read(text, Source::new(filename, text), |table| table.optional_record(E::KEY))
}

/// Returns a configuration that is extended by `text`, which is generated from other files and has the same form. For
/// the same port, SID or prefix, the entry of `config` has precedence.
///
/// # Errors
/// All errors in `text`.
pub fn extend(config: &Config, name: &str, text: &str) -> Result<Config, Errors> {
    let (source, start) = config.source.followed_by(name, text);
    // Blanks in front make its spans begin at the offset of its text in the source.
    let (more, ()) = read(&(" ".repeat(start) + text), source.clone(), |_| ())?;
    Ok(Config { source, ..merge::merge(config.clone(), more) })
}

/// Parses a text that is written as `srv6d.toml` is, and has tables of its own. `filename` is only used in findings.
///
/// # Errors
/// The errors are those of [`parse`].
pub fn parse_record<T: Record + Default>(text: &str, filename: &str) -> Result<T, Errors> {
    read_tables(text, Source::new(filename, text), |table| T::read(table).unwrap_or_default())
}

/// Reads a configuration. `extension` reads further keys of the outermost table.
fn read<T: Default>(
    text: &str,
    source: Source,
    extension: impl FnOnce(&mut Table<'_, '_>) -> T,
) -> Result<(Config, T), Errors> {
    let read = |table: &mut Table<'_, '_>| (Config::read(table).unwrap_or_default(), extension(table));
    let (config, extension) = read_tables(text, source.clone(), read)?;
    Ok((Config { source, ..config }, extension))
}

/// What the TOML parser says of a key or a table that stands twice.
const DUPLICATE: &str = "duplicate key";

/// Returns the fix of what the TOML parser says.
fn fix_of_syntax(message: &str) -> &'static str {
    match message {
        DUPLICATE => "keep one of the lines that set it, and remove the others",
        _ => "write it as TOML: `key = value`, texts in quotes, see https://toml.io",
    }
}

/// Reads the tables of a text. `read` reads the keys of the outermost table.
fn read_tables<T: Default>(
    text: &str,
    source: Source,
    read: impl FnOnce(&mut Table<'_, '_>) -> T,
) -> Result<T, Errors> {
    let mut findings = Findings::new(source);
    let (document, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let span = error.span().unwrap_or_default();
        let is_text = error.message() != DUPLICATE;
        let unquoted = is_text.then(|| unquoted(text, span.start).or_else(|| unquoted_item(text, span.start)));
        match unquoted.flatten() {
            Some((at, fix)) => findings.error(at.unwrap_or(span), "", "a text without quotes", fix),
            None => findings.error(span, "", error.message(), fix_of_syntax(error.message())),
        }
    }
    if !syntax.is_empty() {
        // Values that were recovered behind a syntax error would only cause misleading findings.
        return findings.finish().map(|_| T::default());
    }
    let mut table = Table::new("", document.get_ref(), 0..0, &mut findings);
    let tables = read(&mut table);
    table.finish();
    findings.finish().map(|_| tables)
}

/// Place of a text that lacks its quotes, if it is known, and the fix.
type Unquoted = (Option<Range<usize>>, String);

/// Returns what to fix if the value in the line at `offset` is an address, a prefix or a keyword that lacks its quotes.
fn unquoted(text: &str, offset: usize) -> Option<Unquoted> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |newline| newline + 1);
    let (key, value) = text.get(start..)?.lines().next()?.split_once('=')?;
    let value = value.split('#').next()?.trim();
    is_text(value).then(|| (None, format!("write {} = {value:?}", key.trim())))
}

/// Returns the unquoted text at `offset`, which is an item of a list or a value in an inline table.
fn unquoted_item(text: &str, offset: usize) -> Option<Unquoted> {
    let (before, behind) = text.split_at_checked(offset)?;
    let start = before.trim_end_matches(is_letter).len();
    let end = offset + behind.len() - behind.trim_start_matches(is_letter).len();
    let item = text.get(start..end).filter(|item| is_text(item))?;
    let opens = text.get(..start)?.trim_end().ends_with(['[', ',', '=']);
    let closes = text.get(end..)?.trim_start().starts_with([',', ']', '}', '#']);
    (opens && closes).then(|| (Some(start..end), format!("texts are written in quotes: {item:?}")))
}

/// Returns true for a word, a name, an address or a prefix, and false for a number or a truth value.
fn is_text(value: &str) -> bool {
    let is_other = matches!(value, "true" | "false") || value.parse::<f64>().is_ok();
    !value.is_empty() && !is_other && value.chars().all(is_letter)
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || ".:/-_".contains(letter)
}

/// Returns all tables of the schema with their keys, in the order of the reference. Those of extensions are not among
/// them.
pub fn keys() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        keys_of::<Node>(),
        keys_of::<Workers>(),
        keys_of::<Host>(),
        keys_of::<Api>(),
        keys_of::<Block>(),
        keys_of::<Port>(),
        keys_of::<Emulate>(),
        keys_of::<EcnRule>(),
        keys_of::<Balance>(),
        keys_of::<Reactive>(),
        keys_of::<Glb>(),
        keys_of::<Probes>(),
        keys_of::<Sid>(),
        keys_of::<Steer>(),
        keys_of::<SteerPath>(),
        keys_of::<NextHop>(),
        keys_of::<Route>(),
        keys_of::<Neighbor>(),
        keys_of::<Fpm>(),
        keys_of::<Kernel>(),
        keys_of::<Jalapeno>(),
        keys_of::<Syd>(),
        keys_of::<SydPeer>(),
        keys_of::<Jobs>(),
    ]
}

/// Returns the header of one table, and its keys.
pub fn keys_of<T: Record>() -> (&'static str, Vec<&'static str>) {
    let nothing = DeTable::new();
    let mut findings = Findings::new(Source::default());
    let mut table = Table::new(T::HEADER, &nothing, 0..0, &mut findings);
    T::read(&mut table);
    (T::HEADER, table.known().to_vec())
}
