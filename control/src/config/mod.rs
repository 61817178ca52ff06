//! `srv6d.toml`: text to [`Config`].
//!
//! The text is read to its end whatever is wrong with it, so that one run names every mistake. Types and bounds
//! of single values are checked here; what several tables have to do with each other is checked by
//! [`plan`](crate::plan).

mod diagnostic;
mod fpm;
mod merge;
mod records;
mod schema;
mod sources;
mod table;
mod value;

use toml::de::DeTable;

pub use diagnostic::{Diagnostic, Errors, Severity, Source};
pub use fpm::{Fpm, FpmDialect, ListenAddress};
pub use schema::{
    Api, Block, Checksum, Config, DtArgument, Ecn, Flavor, Host, InnerDscp, Neighbor, NextHop, Node, OneHop, Optional,
    Polling, Port, PortMode, PortOffload, PortRole, Route, RouteType, SegmentRoute, Sid, SidBehavior, SrhCheck, Steer,
    SteerMode, SteerPath, UaLast, Unknown, Workers,
};
pub use sources::{
    Asking, Disjointness, Endpoint, Function, Jalapeno, Kernel, PathKind, RouterMac, Sharing, Sonic, Steering,
    SwitchUsd, Syd, SydPeer,
};
pub use toml::Spanned;
pub use value::{MetricsAddress, OuterDscp};

pub(crate) use diagnostic::{Accepted, Findings};
use table::{Record, Table};
pub(crate) use value::{is_interface_name, nearest};

/// Reads a configuration. `filename` is only shown.
///
/// # Errors
/// Every mistake in the text: TOML syntax first, otherwise unknown and missing keys, and values that do not fit.
pub fn parse(text: &str, filename: &str) -> Result<Config, Errors> {
    read(text, Source::new(filename, text))
}

/// A configuration with what other files come to beside it: `text`, written in the same form. What `config` says of a
/// port, a SID, a prefix goes first.
///
/// # Errors
/// Every mistake in `text`.
pub fn extend(config: &Config, name: &str, text: &str) -> Result<Config, Errors> {
    let (source, start) = config.source.followed_by(name, text);
    // Blanks in front of it, so that its spans begin where its text begins.
    let more = read(&(" ".repeat(start) + text), source.clone())?;
    Ok(Config { source, ..merge::merge(config.clone(), more) })
}

fn read(text: &str, source: Source) -> Result<Config, Errors> {
    let mut findings = Findings::new(source.clone());
    let (document, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let span = error.span().unwrap_or_default();
        match unquoted(text, span.start) {
            Some((key, value)) => {
                findings.error(span, "", "a text without quotes", format!("write {key} = {value:?}"));
            }
            None => findings.error(
                span,
                "",
                error.message(),
                "write it as TOML: `key = value`, texts in quotes, see https://toml.io",
            ),
        }
    }
    if !syntax.is_empty() {
        // What was recovered behind a syntax error would only add misleading ones.
        return findings.finish().map(|_| Config::default());
    }
    let mut table = Table::new(Config::HEADER, document.get_ref(), 0..0, &mut findings);
    let config = Config::read(&mut table);
    table.finish();
    findings.finish()?;
    Ok(Config { source, ..config.unwrap_or_default() })
}

/// Key and value of the line at `offset`, where the value is an address, a prefix or a word that lacks its quotes.
fn unquoted(text: &str, offset: usize) -> Option<(&str, &str)> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |newline| newline + 1);
    let (key, value) = text.get(start..)?.lines().next()?.split_once('=')?;
    let value = value.split('#').next()?.trim();
    let is_text = |c: char| c.is_ascii_alphanumeric() || ".:/-_".contains(c);
    let is_other = matches!(value, "true" | "false") || value.parse::<f64>().is_ok();
    (!value.is_empty() && !is_other && value.chars().all(is_text)).then_some((key.trim(), value))
}

/// Every table of the schema with its keys, in the order of the reference.
pub fn keys() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        keys_of::<Node>(),
        keys_of::<Workers>(),
        keys_of::<Host>(),
        keys_of::<Api>(),
        keys_of::<Block>(),
        keys_of::<Port>(),
        keys_of::<Sid>(),
        keys_of::<Steer>(),
        keys_of::<SteerPath>(),
        keys_of::<NextHop>(),
        keys_of::<Route>(),
        keys_of::<Neighbor>(),
        keys_of::<Fpm>(),
        keys_of::<Kernel>(),
        keys_of::<Sonic>(),
        keys_of::<Jalapeno>(),
        keys_of::<Syd>(),
        keys_of::<SydPeer>(),
    ]
}

fn keys_of<T: Record>() -> (&'static str, Vec<&'static str>) {
    let nothing = DeTable::new();
    let mut findings = Findings::new(Source::default());
    let mut table = Table::new(T::HEADER, &nothing, 0..0, &mut findings);
    T::read(&mut table);
    (T::HEADER, table.known().to_vec())
}
