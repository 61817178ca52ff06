//! Reads an experiment from its file.
#![allow(clippy::ref_option, reason = "a key that may be left out is read as an option")]

use std::ops::Range;
use std::time::Duration;

use srv6d_balance::{Adaptive, BandScale, Flows, Policy, PolicyMode, Reactive, Sampler};
use srv6d_config::{BandRule, EcnProfile, Errors, Findings, Optional, ShortTime, Source, Spanned, parse_record};

use crate::bounds;
use crate::schema::{
    CaseTable, ChoiceKeyword, DirectionKeyword, EcnKeyword, FabricTable, FaultKeyword, FaultTable, File, ModeTable,
    TrafficKeyword,
};
use crate::settings::{Case, ChoiceRule, Direction, Experiment, Fabric, Fault, FaultKind, Mode, Traffic};
use crate::traffic::most_senders;

const DEFAULT_SEEDS: u64 = 12;
const DEFAULT_PATIENCE: u32 = 20;
const DEFAULT_SAMPLE: Duration = Duration::from_millis(1);
const DEFAULT_REACTION: Duration = Duration::from_millis(50);
const DEFAULT_LOW: u16 = 200;
const DEFAULT_HIGH: u16 = 900;
const DEFAULT_DELTA: u8 = 2;
const DEFAULT_PROBABILITY: f64 = 0.01;
/// Default rate of a host in bit/s. A link between switches has twice as much.
const DEFAULT_RATE: u64 = 100_000_000;
/// Largest number of hosts.
const MOST_HOSTS: u64 = 1 << 17;
/// Largest number of pairs of a leaf and a spine, and of pairs of leaves.
const MOST_PAIRS: u64 = 1 << 20;
/// Largest numbers of cases and of modes.
const MOST_TABLES: usize = 100;

/// Reads an experiment. `filename` is only used in findings.
///
/// # Errors
/// All errors in the text, each with its line and fix.
pub fn parse(text: &str, filename: &str) -> Result<Experiment, Errors> {
    let file: File = parse_record(text, filename)?;
    let mut found = Findings::new(Source::new(filename, text));
    let fabric = fabric(&file.fabric, &mut found);
    let cases: Vec<Case> = file.cases.iter().map(|table| case(table.get_ref(), &fabric, &mut found)).collect();
    let modes: Vec<Mode> = file.modes.iter().map(|table| mode(table.get_ref(), &mut found)).collect();
    names(file.cases.iter().map(|table| &table.get_ref().name), "[[case]]", &mut found);
    names(file.modes.iter().map(|table| &table.get_ref().name), "[[mode]]", &mut found);
    for (written, case) in file.cases.iter().zip(&cases) {
        bounds::of_case(case, &written.get_ref().bytes, &fabric, &modes, &mut found);
    }
    for table in &file.modes {
        bounds::of_mode(table.get_ref(), fabric.leaves, &mut found);
    }
    found.finish()?;
    Ok(Experiment { seeds: or(&file.seeds, DEFAULT_SEEDS), fabric, cases, modes })
}

fn or<T: Copy>(value: &Optional<T>, default: T) -> T {
    value.as_ref().map_or(default, |value| *value.get_ref())
}

fn time(value: &Optional<ShortTime>, default: Duration) -> Duration {
    value.as_ref().map_or(default, |time| time.get_ref().0)
}

/// Refuses a kind of table that is missing or occurs too often, and names that occur twice.
fn names<'t>(names: impl Iterator<Item = &'t Spanned<String>>, header: &str, found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name.get_ref().as_str()) {
            let what = format!("{:?} is the name of another one", name.get_ref());
            found.error(name.span(), &format!("{header} name"), what, "write another name");
        }
        if seen.len() == MOST_TABLES {
            found.error(name.span(), header, format!("there are more than {MOST_TABLES}"), "write several files");
        }
        seen.push(name.get_ref());
    }
    if seen.is_empty() {
        let fix = "begin with `srv6d lab experiment --example`";
        found.error(0..0, header, "there is none, so nothing would run", fix);
    }
}

fn fabric(table: &FabricTable, found: &mut Findings) -> Fabric {
    let rate = |value: &Optional<_>, default| {
        value.as_ref().map_or(default, |rate: &Spanned<srv6d_config::Rate>| rate.get_ref().0)
    };
    let host_rate = rate(&table.host_rate, DEFAULT_RATE);
    let fabric = Fabric {
        leaves: or(&table.leaves, 4),
        spines: or(&table.spines, 4),
        hosts: or(&table.hosts, 8),
        host_rate,
        link_rate: rate(&table.link_rate, 2 * host_rate),
        delay: table.delay.as_ref().map_or(Duration::from_micros(50), |delay| delay.get_ref().0),
        frame: or(&table.frame, 1554),
        queue: or(&table.queue, 256_000),
        ecn: or(&table.ecn, EcnKeyword::Lab).profile().map(EcnProfile::rule),
        window: or(&table.window, 60_000),
    };
    let span = |keys: [Option<Range<usize>>; 2]| keys.into_iter().flatten().next().unwrap_or(0..0);
    let of = |key: &Optional<u32>| key.as_ref().map(Spanned::span);
    let [leaves, spines, hosts] = [fabric.leaves, fabric.spines, fabric.hosts].map(u64::from);
    for (keys, number, most, things) in [
        ([of(&table.hosts), of(&table.leaves)], leaves * hosts, MOST_HOSTS, "hosts"),
        ([of(&table.spines), of(&table.leaves)], leaves * spines, MOST_PAIRS, "links between switches"),
        ([of(&table.leaves), None], leaves * leaves, MOST_PAIRS, "pairs of leaves"),
    ] {
        if number > most {
            let what = format!("the fabric would have {number} {things}");
            found.error(span(keys), "[fabric]", what, format!("write smaller numbers: at most {most} are possible"));
        }
    }
    if fabric.queue < 2 * u64::from(fabric.frame) {
        let what = format!("a queue of {} bytes holds less than two frames", fabric.queue);
        let fix = format!("write a queue of at least {} bytes", 2 * fabric.frame);
        found.error(table.queue.as_ref().map_or(0..0, Spanned::span), "[fabric] queue", what, fix);
    }
    fabric
}

fn case(table: &CaseTable, fabric: &Fabric, found: &mut Findings) -> Case {
    let hosts = or(&table.hosts, fabric.hosts);
    if let Some(written) = table.hosts.as_ref().filter(|_| hosts > fabric.hosts) {
        let what = format!("only {} hosts are at each leaf", fabric.hosts);
        found.error(written.span(), "[[case]] hosts", what, "write a smaller number, or more `hosts` in [fabric]");
    }
    Case {
        name: table.name.get_ref().clone(),
        traffic: traffic(table, fabric.leaves, hosts, found),
        hosts,
        bytes: *table.bytes.get_ref(),
        spread: time(&table.spread, Duration::ZERO),
        fault: table.fault.as_ref().map(|table| fault(table, fabric, found)),
        patience: or(&table.patience, DEFAULT_PATIENCE),
    }
}

fn traffic(table: &CaseTable, leaves: u32, hosts: u32, found: &mut Findings) -> Traffic {
    let most = most_senders(leaves, hosts);
    if let Some(senders) = &table.senders {
        if *table.traffic.get_ref() != TrafficKeyword::Incast {
            let fix = "remove it, or write traffic = \"incast\"";
            found.error(senders.span(), "[[case]] senders", "only an incast has senders", fix);
        } else if *senders.get_ref() > most {
            let what = format!("only {most} hosts at other leaves can send, beside the one whose transfer competes");
            found.error(senders.span(), "[[case]] senders", what, format!("write at most {most}"));
        }
    }
    match table.traffic.get_ref() {
        TrafficKeyword::Permutation => Traffic::Permutation,
        TrafficKeyword::Ring => Traffic::Ring,
        TrafficKeyword::AllToAll => Traffic::AllToAll,
        TrafficKeyword::Incast => Traffic::Incast { senders: or(&table.senders, most.clamp(1, 16)) },
    }
}

fn fault(table: &FaultTable, fabric: &Fabric, found: &mut Findings) -> Fault {
    for (key, number, count, nodes) in
        [("leaf", &table.leaf, fabric.leaves, "leaves"), ("spine", &table.spine, fabric.spines, "spines")]
    {
        if let Some(number) = number.as_ref().filter(|number| *number.get_ref() >= count) {
            let what = format!("there are {count} {nodes}, from 0");
            found.error(number.span(), &format!("fault {key}"), what, format!("write at most {}", count - 1));
        }
    }
    keys_of_fault(table, found);
    let share = |default| table.share.as_ref().map_or(default, |share| share.get_ref().0);
    let second = Duration::from_secs(1);
    let kind = match table.kind.get_ref() {
        FaultKeyword::Slow => FaultKind::Slow(slow_share(table, fabric, share(0.25), found)),
        FaultKeyword::Down => FaultKind::Down,
        FaultKeyword::BlackHole => FaultKind::BlackHole,
        FaultKeyword::Lossy => FaultKind::Lossy(share(0.05)),
        FaultKeyword::Flap => FaultKind::Flap { up: time(&table.up, second), down: time(&table.down, second) },
    };
    let at = time(&table.at, Duration::ZERO);
    let until = table.until.as_ref().map(|until| until.get_ref().0);
    if let Some(written) = table.until.as_ref().filter(|until| until.get_ref().0 <= at) {
        found.error(written.span(), "fault until", "the fault would end before it begins", "write a time behind `at`");
    }
    let direction = match or(&table.direction, DirectionKeyword::Both) {
        DirectionKeyword::Both => Direction::Both,
        DirectionKeyword::Up => Direction::Up,
        DirectionKeyword::Down => Direction::Down,
    };
    let (leaf, spine) = (or(&table.leaf, 0), or(&table.spine, 0));
    Fault { kind, leaf, spine, direction, at, until, reaction: time(&table.reaction, DEFAULT_REACTION) }
}

/// Refuses keys of other kinds of faults.
fn keys_of_fault(table: &FaultTable, found: &mut Findings) {
    let kind = *table.kind.get_ref();
    let is_flap = kind == FaultKeyword::Flap;
    let has_share = matches!(kind, FaultKeyword::Slow | FaultKeyword::Lossy);
    for (key, span, belongs) in [
        ("share", table.share.as_ref().map(Spanned::span), has_share),
        ("up", table.up.as_ref().map(Spanned::span), is_flap),
        ("down", table.down.as_ref().map(Spanned::span), is_flap),
    ] {
        if let Some(span) = span.filter(|_| !belongs) {
            let what = format!("kind \"{}\" does not use `{key}`", kind.keyword());
            found.error(span, &format!("fault {key}"), what, "remove it");
        }
    }
}

/// Returns the share of a slow link, which leaves it a rate that a port can have.
#[allow(clippy::cast_precision_loss, reason = "a rate to compare with")]
fn slow_share(table: &FaultTable, fabric: &Fabric, share: f64, found: &mut Findings) -> f64 {
    let least = srv6d_emulate::LEAST_RATE as f64 / fabric.link_rate as f64;
    if !(least..=1.0).contains(&share) {
        let span = table.share.as_ref().map_or_else(|| table.kind.span(), Spanned::span);
        let what = format!("{share} of the rate of a link is less than a port can have");
        found.error(span, "fault share", what, format!("write a share from {least:.3} to 1"));
    }
    share
}

fn mode(table: &ModeTable, found: &mut Findings) -> Mode {
    keys_of_mode(table, found);
    let rule = match table.choose.get_ref() {
        ChoiceKeyword::Hash => ChoiceRule::Hash,
        ChoiceKeyword::Weighted => ChoiceRule::Weighted,
        ChoiceKeyword::Placed => ChoiceRule::Placed,
        ChoiceKeyword::Flowlet => by_state(table, PolicyMode::Flowlet),
        ChoiceKeyword::Adaptive => {
            by_state(table, PolicyMode::Adaptive(Adaptive { scale: scale(table, found), reactive: reactive(table) }))
        }
    };
    Mode { name: table.name.get_ref().clone(), queue_pairs: or(&table.queue_pairs, 1), rule }
}

fn by_state(table: &ModeTable, mode: PolicyMode) -> ChoiceRule {
    let gap = time(&table.gap, Duration::from_nanos(Policy::GAP));
    let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
    ChoiceRule::ByState {
        policy: Policy { gap, mode },
        sample: time(&table.sample, DEFAULT_SAMPLE),
        rate_weight: or(&table.rate_weight, Sampler::RATE_WEIGHT),
        flows: or(&table.flows, Flows::DEFAULT.room()),
    }
}

/// Refuses keys of other ways of choosing.
fn keys_of_mode(table: &ModeTable, found: &mut Findings) {
    let rule = *table.choose.get_ref();
    let is_adaptive = rule == ChoiceKeyword::Adaptive;
    let has_flows = is_adaptive || rule == ChoiceKeyword::Flowlet;
    for (key, span, belongs) in [
        ("gap", table.gap.as_ref().map(Spanned::span), has_flows),
        ("flows", table.flows.as_ref().map(Spanned::span), has_flows),
        ("band", table.band.as_ref().map(Spanned::span), is_adaptive),
        ("low", table.low.as_ref().map(Spanned::span), is_adaptive),
        ("high", table.high.as_ref().map(Spanned::span), is_adaptive),
        ("rate_weight", table.rate_weight.as_ref().map(Spanned::span), is_adaptive),
        ("sample", table.sample.as_ref().map(Spanned::span), is_adaptive),
        ("reactive", table.reactive.as_ref().map(|_| table.choose.span()), is_adaptive),
    ] {
        if let Some(span) = span.filter(|_| !belongs) {
            let what = format!("choose = \"{}\" does not use `{key}`", rule.keyword());
            found.error(span, &format!("[[mode]] {key}"), what, "remove it");
        }
    }
}

fn scale(table: &ModeTable, found: &mut Findings) -> BandScale {
    let (low, high) = (or(&table.low, DEFAULT_LOW), or(&table.high, DEFAULT_HIGH));
    match or(&table.band, BandRule::Available) {
        BandRule::Available => BandScale::Available,
        BandRule::Relative => {
            if low >= high {
                let what = format!("`low` = {low} is not below `high` = {high}");
                found.error(table.choose.span(), "[[mode]]", what, "write low = 200 and high = 900");
            }
            BandScale::Relative { low, high }
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^32")]
fn reactive(table: &ModeTable) -> Option<Reactive> {
    let reactive = table.reactive.as_ref()?;
    let probability = reactive.probability.as_ref().map_or(DEFAULT_PROBABILITY, |share| share.get_ref().0);
    let chance = (probability * f64::from(u32::MAX)).round() as u32;
    Some(Reactive { delta: or(&reactive.delta, DEFAULT_DELTA), chance })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use crate::EXAMPLE;

    fn errors(text: &str) -> Vec<String> {
        let found = parse(text, "e.toml").unwrap_err().0;
        found.iter().map(|error| format!("{}; fix: {}", error.headline(), error.fix)).collect()
    }

    /// Returns the smallest file, with these lines in its tables.
    fn file(fabric: &str, case: &str, mode: &str) -> String {
        format!(
            "[fabric]\n{fabric}\n[[case]]\nname = \"c\"\ntraffic = \"permutation\"\nbytes = 1000\n{case}\n[[mode]]\n\
             name = \"m\"\nchoose = \"hash\"\n{mode}\n"
        )
    }

    #[test]
    fn the_example_is_right() {
        let experiment = parse(EXAMPLE, "example").unwrap();
        assert_eq!((experiment.seeds, experiment.fabric.link_rate), (12, 200_000_000));
        assert!(experiment.cases.len() >= 4 && experiment.modes.len() >= 6);
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let experiment = parse(&file("", "", ""), "e.toml").unwrap();
        let Fabric { leaves, spines, hosts, host_rate, link_rate, window, .. } = experiment.fabric;
        assert_eq!((leaves, spines, hosts, host_rate, link_rate, window), (4, 4, 8, 100_000_000, 200_000_000, 60_000));
        assert_eq!((experiment.seeds, experiment.cases[0].hosts), (12, 8));
    }

    #[test]
    fn every_mistake_has_its_line_and_fix() {
        let cases = [
            (
                file("leaves = 1", "", ""),
                "e.toml:2:10: [fabric] leaves: 1 is out of range; fix: write a number from 2 to 1024",
            ),
            (file("", "spred = \"1ms\"", ""), "e.toml:7:1: [[case]] spred: unknown key; fix: did you mean `spread`?"),
            (file("", "hosts = 9", ""), "e.toml:7:9: [[case]] hosts: only 8 hosts are at each leaf; fix: "),
            (file("", "senders = 3", ""), "e.toml:7:11: [[case]] senders: only an incast has senders; fix: remove it"),
            (
                file("", "fault = { kind = \"down\", share = 0.5 }", ""),
                "fault share: kind \"down\" does not use `share`; fix: ",
            ),
            (file("", "fault = { kind = \"slow\", share = 0.001 }", ""), "fix: write a share from 0.005 to 1"),
            (
                file("", "fault = { kind = \"down\", spine = 4 }", ""),
                "fault spine: there are 4 spines, from 0; fix: write at most 3",
            ),
            (
                file("", "", "gap = \"1ms\""),
                "e.toml:11:7: [[mode]] gap: choose = \"hash\" does not use `gap`; fix: remove it",
            ),
            (file("leaves = 1024\nspines = 1\nhosts = 1024", "", ""), "the fabric would have 1048576 hosts; fix: "),
            (file("queue = 1000", "", ""), "[fabric] queue: a queue of 1000 bytes holds less than two frames; fix: "),
            (
                file("", "", "[[mode]]\nname = \"m\"\nchoose = \"placed\""),
                "[[mode]] name: \"m\" is the name of another one",
            ),
            (
                "[[mode]]\nname = \"m\"\nchoose = \"hash\"\n".to_owned(),
                "[[case]]: there is none, so nothing would run; fix: ",
            ),
            (file("", "", "").replace("bytes = 1000\n", ""), "[[case]]: `bytes` is missing; fix: add `bytes = ...`"),
            (
                file("", "", "").replace("1000\n", "1000000000000\n"),
                "packets each are too many; fix: write fewer `bytes`",
            ),
        ];
        for (text, expected) in cases {
            let errors = errors(&text);
            assert!(errors.iter().any(|error| error.contains(expected)), "{expected}\n{errors:#?}");
        }
    }
}
