//! Loads files into cases: resolves names, merges configurations and builds frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::build::{self, Built};
use crate::case::{Case, Divergence, Event, Input, Linux, Neighbor, Pack, Port, Recorded, Setup, Step};
use crate::expect::Expect;
use crate::layer::Layers;
use crate::linux::Record;
use crate::{file, notation};

/// Error in the files of the pack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A file could not be read.
    #[error("{file}: {why}")]
    File {
        /// Path of the file.
        file: String,
        /// Reason.
        why: String,
    },
    /// A case is invalid.
    #[error("{file}: case {case}: {field}: {why}")]
    Case {
        /// Path of the file.
        file: String,
        /// Id of the case.
        case: String,
        /// Field, with its number if there are several.
        field: String,
        /// Reason.
        why: String,
    },
}

/// File with the behaviour of the Linux kernel; it contains no cases.
const DIVERGENCES: &str = "divergences.toml";

/// Reads every `*.toml` file of a directory, in the order of their names.
///
/// # Errors
/// [`PackError`]: the first mistake, with file, case and field.
pub fn load(directory: &Path) -> Result<Pack, PackError> {
    let listing = fs::read_dir(directory).map_err(|why| unreadable(directory, &why))?;
    let paths: Result<Vec<_>, _> = listing.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|why| unreadable(directory, &why))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut files = Vec::new();
    let mut linux = None;
    for path in &paths {
        let text = fs::read_to_string(path).map_err(|why| unreadable(path, &why))?;
        let name = path.display().to_string();
        if path.ends_with(DIVERGENCES) { linux = Some((name, text)) } else { files.push((name, text)) }
    }
    let (name, text) = linux.unwrap_or_default();
    let record = Record::parse(&text).map_err(|why| PackError::File { file: name.clone(), why })?;
    let pack = parse(&files, &record)?;
    record.check_against(&pack).map_err(|why| PackError::File { file: name, why })?;
    Ok(pack)
}

fn unreadable(path: &Path, why: &dyn ToString) -> PackError {
    PackError::File { file: path.display().to_string(), why: why.to_string() }
}

/// Like [`load`], but for texts in memory, each with its name.
pub(crate) fn parse(texts: &[(String, String)], record: &Record) -> Result<Pack, PackError> {
    let mut setups = BTreeMap::new();
    let mut files = Vec::new();
    for (name, text) in texts {
        let wrong = |why: String| PackError::File { file: name.clone(), why };
        let file: file::File = toml::from_str(text).map_err(|why| wrong(why.to_string()))?;
        for (setup_name, setup) in file.setup {
            if setups.insert(setup_name.clone(), setup).is_some() {
                return Err(wrong(format!("setup {setup_name} is already there")));
            }
        }
        files.push((name, file.case));
    }
    let mut ids = BTreeSet::new();
    let mut cases = Vec::new();
    for (name, raw) in files {
        for raw in raw {
            let wrong = |(field, why): (String, String)| PackError::Case {
                file: name.clone(),
                case: raw.id.clone(),
                field,
                why,
            };
            if !ids.insert(raw.id.clone()) {
                return Err(wrong(("id".into(), "is already there".into())));
            }
            let area = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
            cases.push(case(&raw, area, &setups, record).map_err(wrong)?);
        }
    }
    Ok(Pack { cases })
}

/// Name of a field, and what is wrong with it.
type Wrong = (String, String);

fn at<T, E: ToString>(field: &str, result: Result<T, E>) -> Result<T, Wrong> {
    result.map_err(|why| (field.to_owned(), why.to_string()))
}

fn address<T: FromStr>(field: &str, text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|_| (field.to_owned(), format!("{text:?} is not an address")))
}

fn case(
    raw: &file::Case,
    area: String,
    setups: &BTreeMap<String, file::Setup>,
    record: &Record,
) -> Result<Case, Wrong> {
    let written =
        setups.get(&raw.setup).ok_or_else(|| ("setup".to_owned(), format!("there is no setup {}", raw.setup)))?;
    let setup = setup(raw, written)?;
    let steps = steps(raw, &setup)?;
    let has_frames = steps.iter().any(|step| !step.inputs.is_empty());
    if raw.refused.is_some() == has_frames {
        return Err(("in".into(), "a case has either frames, or a configuration that is refused".into()));
    }
    let counters = raw.counters.as_ref().map(counters).transpose()?;
    if has_frames && let Some(counters) = &counters {
        check_sum(raw, counters)?;
    }
    let linux = linux(raw, &setup, record)?;
    Ok(Case {
        id: raw.id.clone(),
        row: raw.row.clone(),
        title: raw.title.clone(),
        clause: raw.clause.clone(),
        priority: raw.priority,
        area,
        note: raw.note.clone(),
        setup,
        steps,
        counters,
        refused: raw.refused.clone(),
        linux,
        properties: raw.property.clone(),
    })
}

fn linux(raw: &file::Case, setup: &Setup, record: &Record) -> Result<Linux, Wrong> {
    let name = match raw.linux.as_str() {
        "agree" => return Ok(Linux::Agree),
        "none" => return at("linux", record.why_not_compared(&raw.id)).map(Linux::None),
        name => name.to_owned(),
    };
    let why = at("linux", record.why(&name))?;
    let found = at("linux", record.of(&raw.id))?;
    let recorded = match (&found.refused, found.accepted) {
        (Some(text), _) => Recorded::Refused(text.clone()),
        (None, true) => Recorded::Accepted,
        (None, false) => Recorded::Frames(steps(&found.laid_over(raw), setup)?),
    };
    Ok(Linux::Diverge(Divergence { name, why, recorded }))
}

/// Flattens nested tables into names with dots.
fn counters(table: &toml::Table) -> Result<BTreeMap<String, u64>, Wrong> {
    let mut flat = BTreeMap::new();
    for (name, value) in table {
        match (value, value.as_integer().and_then(|count| u64::try_from(count).ok())) {
            (_, Some(count)) => drop(flat.insert(name.clone(), count)),
            (toml::Value::Table(inner), _) => {
                flat.extend(counters(inner)?.into_iter().map(|(rest, count)| (format!("{name}.{rest}"), count)));
            }
            _ => return Err(("counters".into(), format!("{name} is not a count"))),
        }
    }
    Ok(flat)
}

/// Checks that every received frame ends in exactly one counter.
fn check_sum(raw: &file::Case, counters: &BTreeMap<String, u64>) -> Result<(), Wrong> {
    let ends = |name: &str| matches!(name, "tx" | "kernel") || name.starts_with("reply.") || name.starts_with("drop.");
    let known = |name: &str| name == "rx" || ends(name) || name.starts_with("sid.") || name.starts_with("path.");
    if let Some(name) = counters.keys().find(|name| !known(name)) {
        return Err(("counters".into(), format!("{name} is not a counter")));
    }
    let received = counters.get("rx").copied().unwrap_or(0);
    let ended: u64 = counters.iter().filter(|(name, _)| ends(name)).map(|(_, count)| count).sum();
    let steps = raw.step.iter().flat_map(|step| &step.inputs);
    let sent: u64 = raw.inputs.iter().chain(steps).map(|input| u64::from(input.repeat)).sum();
    if received != ended || received != sent {
        return Err((
            "counters".into(),
            format!("{sent} frames arrive, rx is {received}, tx + reply + kernel + drop is {ended}"),
        ));
    }
    Ok(())
}

fn setup(raw: &file::Case, written: &file::Setup) -> Result<Setup, Wrong> {
    let mut ports = Vec::new();
    for port in &written.port {
        let change = raw.port.iter().find(|change| change.name == port.name);
        ports.push(self::port(port, change)?);
    }
    if let Some(unknown) = raw.port.iter().find(|change| ports.iter().all(|port| port.name != change.name)) {
        return Err(("port".into(), format!("the setup has no port {}", unknown.name)));
    }
    let mut neighbors = Vec::new();
    for entry in written.neighbor.iter().filter(|entry| !raw.unresolved.contains(&entry.address)) {
        neighbors.push(neighbor("neighbor", entry)?);
    }
    let linux = written.linux.iter().chain(&raw.oracle).cloned().collect();
    Ok(Setup {
        name: raw.setup.clone(),
        summary: written.summary.clone(),
        config: config(&written.config, raw.config.as_ref())?,
        ports,
        addresses: written.addresses.iter().map(|text| address("addresses", text)).collect::<Result<_, _>>()?,
        neighbors,
        linux,
    })
}

fn port(written: &file::Port, change: Option<&file::PortChange>) -> Result<Port, Wrong> {
    let addresses = change.and_then(|change| change.addresses.as_ref()).unwrap_or(&written.addresses);
    Ok(Port {
        name: written.name.clone(),
        mac: at("port mac", notation::mac(&written.mac))?,
        peer: at("port peer", notation::mac(&written.peer))?,
        mtu: change.and_then(|change| change.mtu).or(written.mtu).unwrap_or(1500),
        up: change.and_then(|change| change.up).or(written.up).unwrap_or(true),
        addresses: addresses.iter().map(|text| address("port addresses", text)).collect::<Result<_, _>>()?,
        kernel: written.kernel,
        vlan: written.device.clone().zip(written.vlan),
    })
}

fn neighbor(field: &str, written: &file::Neighbor) -> Result<Neighbor, Wrong> {
    Ok(Neighbor {
        port: written.port.clone(),
        address: address(field, &written.address)?,
        mac: written.mac.as_deref().map(|mac| at(field, notation::mac(mac))).transpose()?,
    })
}

/// Returns the configuration of the setup, unchanged or with the changes of the case merged into it.
fn config(base: &str, changes: Option<&toml::Table>) -> Result<String, Wrong> {
    let mut table: toml::Table = at("setup config", base.parse())?;
    let Some(changes) = changes else { return Ok(base.to_owned()) };
    overlay(&mut table, changes);
    at("config", toml::to_string(&table))
}

/// Merges changes into a configuration. Tables are merged; an item of an array of tables is merged with the item of the
/// same identity, or added.
fn overlay(base: &mut toml::Table, changes: &toml::Table) {
    for (key, change) in changes {
        match (base.get_mut(key), change) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(change)) => overlay(inner, change),
            (Some(toml::Value::Array(items)), toml::Value::Array(changes))
                if changes.iter().all(toml::Value::is_table) && !changes.is_empty() =>
            {
                for change in changes.iter().filter_map(toml::Value::as_table) {
                    let same = |item: &&mut toml::Value| {
                        item.as_table().is_some_and(|item| identity(item) == identity(change))
                    };
                    match items.iter_mut().find(same).and_then(toml::Value::as_table_mut) {
                        Some(item) => overlay(item, change),
                        None => items.push(toml::Value::Table(change.clone())),
                    }
                }
            }
            _ => drop(base.insert(key.clone(), change.clone())),
        }
    }
}

/// Returns the values that identify an item of `[[port]]`, `[[sid]]`, `[[block]]`, `[[steer]]`, `[[route]]` or
/// `[[neighbor]]`.
fn identity(item: &toml::Table) -> Vec<Option<&toml::Value>> {
    let keys = if item.contains_key("name") { vec!["name"] } else { vec!["sid", "prefix", "table", "address", "via"] };
    let keys =
        if item.contains_key("sid") || item.contains_key("prefix") { vec!["sid", "prefix", "table"] } else { keys };
    keys.into_iter().map(|key| item.get(key).filter(|_| !(key == "table" && item.contains_key("sid")))).collect()
}

/// Frames of one entry of `in`.
struct Arrived {
    built: Vec<Built>,
}

fn steps(raw: &file::Case, setup: &Setup) -> Result<Vec<Step>, Wrong> {
    let single = file::Step {
        at_ms: 0,
        neighbor: Vec::new(),
        link: Vec::new(),
        inputs: raw.inputs.clone(),
        outputs: raw.outputs.clone(),
    };
    let is_single = !raw.inputs.is_empty() || !raw.outputs.is_empty();
    if is_single && !raw.step.is_empty() {
        return Err(("step".into(), "a case has either steps, or `in` and `out`".into()));
    }
    let written = if raw.step.is_empty() { vec![&single] } else { raw.step.iter().collect() };
    let mut arrived: Vec<Arrived> = Vec::new();
    let mut outs = 0;
    let mut steps = Vec::new();
    for step in written {
        let mut events = Vec::new();
        for entry in &step.neighbor {
            events.push(Event::Neighbor(neighbor("step neighbor", entry)?));
        }
        events.extend(step.link.iter().map(|link| Event::Link { port: link.port.clone(), up: link.up }));
        let mut inputs = Vec::new();
        for input in &step.inputs {
            let entry = self::inputs(input, setup, arrived.len() + 1)?;
            arrived.push(Arrived { built: entry.iter().map(|input| input.built.clone()).collect() });
            inputs.extend(entry);
        }
        let mut outputs = Vec::new();
        for output in &step.outputs {
            outs += 1;
            outputs.extend(self::outputs(output, setup, outs, &arrived)?);
        }
        steps.push(Step { at_ms: step.at_ms, events, inputs, outputs });
    }
    Ok(steps)
}

fn inputs(input: &file::In, setup: &Setup, number: usize) -> Result<Vec<Input>, Wrong> {
    let field = format!("in {number}");
    let port =
        setup.port(&input.port).ok_or_else(|| (field.clone(), format!("the setup has no port {}", input.port)))?;
    let mut all = Vec::new();
    for count in 0..input.repeat {
        let text = with_ethernet(numbered(&input.frame, count), port, true);
        let built = at(&field, build::build(&text, None))?;
        if !built.rules.is_empty() {
            return Err((field, "`any` and `hash` are for frames that come out".into()));
        }
        all.push(Input { port: input.port.clone(), text, built });
    }
    Ok(all)
}

fn outputs(output: &file::Out, setup: &Setup, number: usize, arrived: &[Arrived]) -> Result<Vec<Expect>, Wrong> {
    let field = format!("out {number}");
    let default = if number <= arrived.len() { number } else { 1 };
    let of = arrived.get(output.of.unwrap_or(default).saturating_sub(1));
    let mut all = Vec::new();
    for count in 0..output.repeat {
        let input = of.and_then(|entry| entry.built.get(count as usize).or(entry.built.first()));
        let text = numbered(&output.frame, count);
        let mut candidates = Vec::new();
        for name in output.port.split('|') {
            let port = setup.port(name).ok_or_else(|| (field.clone(), format!("the setup has no port {name}")))?;
            let layers: Layers = at(&field, notation::parse(&with_ethernet(text.clone(), port, false)))?;
            let built = at(&field, build::alternatives(&layers, input))?;
            candidates.extend(built.into_iter().map(|built| (name.to_owned(), built)));
        }
        all.push(Expect { text, candidates });
    }
    Ok(all)
}

/// Adds an Ethernet header to a frame that lacks one, with the addresses of the port and the station behind it.
fn with_ethernet(mut frame: Vec<String>, port: &Port, is_input: bool) -> Vec<String> {
    let begins = |kind: &str| frame.first().is_some_and(|layer| layer.split(' ').next() == Some(kind));
    if !begins("eth") && !begins("hex") && !begins("bytes") {
        let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let (source, destination) = if is_input { (port.peer, port.mac) } else { (port.mac, port.peer) };
        frame.insert(0, format!("eth {} > {}", text(source), text(destination)));
    }
    frame
}

/// Replaces `{i}`, `{i+N}`, `{i:x}` and `{i+N:x}` by the number of the repetition, counted from 0.
fn numbered(frame: &[String], count: u32) -> Vec<String> {
    frame.iter().map(|layer| numbered_layer(layer, count)).collect()
}

fn numbered_layer(layer: &str, count: u32) -> String {
    let mut pieces = layer.split("{i");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (format, rest) = piece.split_once('}').unwrap_or((piece, ""));
        let (sum, is_hex) = format.strip_suffix(":x").map_or((format, false), |sum| (sum, true));
        let value = count + sum.trim_start_matches('+').parse::<u32>().unwrap_or(0);
        let _ = if is_hex { write!(text, "{value:x}") } else { write!(text, "{value}") };
        text += rest;
    }
    text
}
