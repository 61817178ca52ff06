//! `bench-net`: measures forwarding in network namespaces, srv6d beside the kernel, the AF_XDP floor and the ceiling of
//! a veth. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};
use signal_hook::consts::{SIGINT, SIGTERM};
use srv6d_bench_net::campaign::{Campaign, Plan};
use srv6d_bench_net::compare::Comparison;
use srv6d_bench_net::document::Document;
use srv6d_bench_net::dut::{self, Dut};
use srv6d_bench_net::frames::Size;
use srv6d_bench_net::layout::{Layout, Placement};
use srv6d_bench_net::machine::Stamp;
use srv6d_bench_net::results::{Results, UNDER_WAY};
use srv6d_bench_net::sink::SinkKind;
use srv6d_bench_net::statistics::number_of;
use srv6d_bench_net::trial::Timing;
use srv6d_bench_net::{BenchError, affinity, host, netns, report};

/// Exit status of a command line that cannot be, as clap's own.
const USAGE: u8 = 2;
/// Exit status when a second signal does not let it clean up: as a shell's after SIGINT.
const KILLED: i32 = 130;
const RESULTS: &str = "results.json";

#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
#[command(version, about = "Forwarding measured in network namespaces: generator -> device under test -> sink")]
struct Arguments {
    /// Fewer sizes, rounds and searches, shorter trials: some twenty minutes
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,

    /// Everything once and as short as possible, to see that it works: the figures mean nothing
    #[arg(long)]
    smoke: bool,

    /// Rows to measure; all when left out
    #[arg(long = "dut", value_name = "NAME", value_parser = dut_named)]
    duts: Vec<Dut>,

    /// Placements to measure, and to search rates without loss in; when left out those with their own bars, and one of
    /// them for the searches
    #[arg(long = "placement", value_enum, value_name = "NAME")]
    placements: Vec<Placement>,

    /// Frame sizes: 64 to 9000, or imix; rates without loss are searched at these, too
    #[arg(long = "size", value_name = "BYTES")]
    sizes: Vec<Size>,

    /// How frames end
    #[arg(long, value_enum, default_value = "xdp")]
    sink: SinkKind,

    /// How often everything is measured
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,

    /// How often sizes other than 64 and 1500, and several workers, are measured [default: as all else]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u16).range(1..=100))]
    other_rounds: Option<u16>,

    /// Cores to use, as generator, receiver, worker and sink of the placements that have them [default: all, in order]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,

    /// Measured part of a trial, in milliseconds
    #[arg(long, value_parser = clap::value_parser!(u16).range(20..=60_000))]
    trial_ms: Option<u16>,

    /// Pairs of turns that srv6d and the floor take, 5 ms each; 0: none [default: 200; 100 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pairs: Option<u16>,

    /// No NDR, PDR and latency
    #[arg(long)]
    no_search: bool,

    /// No rows with several workers
    #[arg(long)]
    no_workers: bool,

    /// The threads that carry packets go before everything else on this machine, at real-time priority
    #[arg(long)]
    first: bool,

    /// The srv6d to measure [default: beside this program]
    #[arg(long, value_name = "FILE", global = true)]
    srv6d: Option<PathBuf>,

    /// Where results.json, report.md, report.html and report.json go; those of `host` into host/ there
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench-net", global = true)]
    out: PathBuf,

    #[command(subcommand)]
    command: Option<Word>,
}

#[derive(Debug, clap::Subcommand)]
enum Word {
    /// Names the rows
    List,
    /// Measures a host's own TCP and UDP through srv6d, beside the kernel's encapsulation; needs iperf3
    Host {
        /// How often each row is measured
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: u16,
        /// Seconds of each stream
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=600))]
        seconds: u16,
    },
    /// Writes the Markdown and HTML of a report that is JSON, beside it
    Render {
        /// The report, as report.json, or the directory it is in
        file: PathBuf,
    },
    /// Writes the report of results again, beside them
    Report {
        /// The results, as results.json, or the directory they are in
        file: PathBuf,
    },
    /// Compares the ratios of two runs: which have changed by more than their rounds differ
    Compare {
        /// The results of the first run, as results.json, or the directory they are in
        before: PathBuf,
        /// Those of the second
        after: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

fn dut_named(name: &str) -> Result<Dut, String> {
    dut::named(name).ok_or_else(|| {
        let known: Vec<&str> = dut::ALL.iter().map(|dut| dut.name).collect();
        format!("no such row; there are: {}", known.join(", "))
    })
}

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|why| why.exit());
    let done = match &arguments.command {
        Some(_) if let Some(why) = misplaced(&matches) => Err(Failure::Usage(why)),
        None => measure(&arguments),
        Some(Word::List) => {
            for dut in dut::ALL {
                println!("{}", dut.name);
            }
            Ok(())
        }
        Some(Word::Host { rounds, seconds }) => measure_host(&arguments, *rounds, *seconds),
        Some(Word::Render { file }) => render(file),
        Some(Word::Report { file }) => report_again(file),
        Some(Word::Compare { before, after, json }) => compare(before, after, *json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(USAGE)
        }
        Err(Failure::Run(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// An option of a run, before a word that makes no use of it.
fn misplaced(matches: &ArgMatches) -> Option<String> {
    let (word, _) = matches.subcommand()?;
    let is_given =
        |argument: &&clap::Arg| matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine);
    let command = Arguments::command();
    let option = command.get_arguments().filter(|argument| !argument.is_global_set()).find(is_given)?.get_long()?;
    Some(format!("--{option} is of no use to `{word}`: leave it out (bench-net {word} --help)"))
}

/// Why it ends.
enum Failure {
    Usage(String),
    Run(BenchError),
}

impl From<BenchError> for Failure {
    fn from(why: BenchError) -> Self {
        Self::Run(why)
    }
}

/// What must be there before anything is measured; and what a bench that was killed has left behind goes.
fn make_ready() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::Usage("bench-net makes network namespaces: run it as root (sudo)".to_owned()));
    }
    for (program, package) in [("ip", "iproute2"), ("ethtool", "ethtool"), ("setpriv", "util-linux")] {
        if !netns::has(program) {
            let why = format!("{program} is not there. Fix: sudo apt-get install {package}");
            return Err(Failure::Usage(why));
        }
    }
    for name in netns::sweep() {
        eprintln!("removed the namespace {name} of a bench that was killed");
    }
    Ok(())
}

fn measure(arguments: &Arguments) -> Result<(), Failure> {
    make_ready()?;
    let plan = plan(arguments)?;
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut stamp = Stamp::take(&plan.srv6d, format!("bench-net {command}").trim(), "busy polling");
    stamp.add("generator", "live frames of a BPF program; 1024 flows (UDP source ports)".to_owned());
    stamp.add("frame sizes", "of what enters the DUT, without the Ethernet checksum".to_owned());
    stamp.add("sink", plan.sink.meaning().to_owned());
    stamp.add_caution(arguments.smoke);
    let say = |line: &str| eprintln!("{line}");
    let minutes = plan.estimate().as_secs().div_ceil(60);
    say(&format!("{} to measure, about {minutes} min", number_of(plan.duts.len(), "row")));
    say("million packets per second at each frame size; ~: somebody else had the cores for more than 2 % of the time");
    let keep = |results: &Results| keep(&arguments.out, results);
    let empty = Results { stamp, cut_off: Some(UNDER_WAY.to_owned()), ..Results::default() };
    keep(&empty)?;
    let results = Campaign::run(&plan, empty, &say, &keep);
    keep(&results)?;
    write_document(&report::document(&results), &arguments.out)?;
    if let Some(table) = report::promises(&results).table {
        print!("{}", table.text());
    }
    whole(results.is_empty(), results.cut_off, &results.left_out)
}

fn keep(directory: &Path, results: &impl serde::Serialize) -> Result<(), BenchError> {
    write_json(directory, RESULTS, results).map_err(|why| BenchError::of("results cannot be kept (--out)", why))
}

/// A part of a run is reported, and no success; less than that is not called a report.
fn whole(is_empty: bool, cut_off: Option<String>, left_out: &[String]) -> Result<(), Failure> {
    let why = match cut_off {
        why if is_empty => {
            let reasons: Vec<String> = left_out.iter().cloned().chain(why).collect();
            format!("nothing was measured: {}", reasons.join("; "))
        }
        Some(why) => format!("{why}; the report has what was measured until then"),
        None => return Ok(()),
    };
    Err(BenchError(why).into())
}

fn measure_host(arguments: &Arguments, rounds: u16, seconds: u16) -> Result<(), Failure> {
    make_ready()?;
    let srv6d = srv6d(arguments)?;
    if !netns::has("iperf3") {
        return Err(Failure::Usage("iperf3 is not there. Fix: sudo apt-get install iperf3".to_owned()));
    }
    let mut stamp =
        Stamp::take(&srv6d, &format!("bench-net host --rounds {rounds} --seconds {seconds}"), "adaptive polling");
    stamp.add_caution(false);
    let interrupted = interrupted()?;
    let plan = host::Plan { srv6d: &srv6d, rounds, seconds, interrupted: &interrupted };
    let out = arguments.out.join("host");
    let keep = |results: &host::Results| keep(&out, results);
    let results = host::measure(&plan, stamp, &|line| eprintln!("{line}"), &keep);
    keep(&results)?;
    write_document(&host::document(&results), &out)?;
    whole(results.streams.is_empty(), results.cut_off, &[])
}

fn plan(arguments: &Arguments) -> Result<Plan, Failure> {
    let (quick, smoke) = (arguments.quick, arguments.smoke);
    let choose = |full: u16, short: u16, shortest: u16| {
        if smoke {
            shortest
        } else if quick {
            short
        } else {
            full
        }
    };
    let bytes = |sizes: &[usize]| sizes.iter().copied().map(Size::Bytes).collect::<Vec<_>>();
    let sizes = match (smoke, quick) {
        (true, _) => bytes(&[64]),
        (_, true) => bytes(&[64, 1500]),
        _ => {
            let mut all = bytes(&[64, 128, 256, 512, 1024, 1280, 1500]);
            all.extend([Size::Imix, Size::Bytes(9000)]);
            all
        }
    };
    let given = |given: &[Size], sizes: Vec<Size>| if given.is_empty() { sizes } else { given.to_vec() };
    let measured = arguments.trial_ms.unwrap_or_else(|| choose(1000, 500, 60));
    let cores = cores(arguments)?;
    let rounds = usize::from(arguments.rounds.unwrap_or_else(|| choose(5, 3, 1)));
    let most_workers = cores.len() / 2;
    Ok(Plan {
        srv6d: srv6d(arguments)?,
        placements: match arguments.placements.as_slice() {
            [] if smoke => vec![Placement::OneCore],
            [] => vec![Placement::SinkOnDutCore, Placement::SinkOnOwnCore, Placement::OneCore],
            placements => placements.to_vec(),
        },
        duts: if arguments.duts.is_empty() { dut::ALL.to_vec() } else { arguments.duts.clone() },
        sizes: given(&arguments.sizes, sizes),
        sink: arguments.sink,
        rounds,
        other_rounds: arguments.other_rounds.map_or(rounds, usize::from).min(rounds),
        timing: Timing {
            before: Duration::from_millis(choose(250, 150, 20).min(measured).into()),
            measured: Duration::from_millis(measured.into()),
        },
        one_load: smoke,
        pairs: arguments.pairs.unwrap_or_else(|| choose(200, 100, 2)).into(),
        repeats: choose(2, 1, 0).into(),
        searched: searched(arguments),
        searched_in: searched_in(&arguments.placements, &cores),
        workers: if arguments.no_workers || smoke { Vec::new() } else { (1..=most_workers.max(2)).collect() },
        first: arguments.first,
        interrupted: interrupted()?,
        cores,
    })
}

/// Sizes at which NDR and PDR are searched.
fn searched(arguments: &Arguments) -> Vec<Size> {
    match arguments.sizes.as_slice() {
        _ if arguments.no_search || arguments.smoke => Vec::new(),
        [] if arguments.quick => vec![Size::Bytes(64)],
        [] => vec![Size::Bytes(64), Size::Bytes(1500)],
        sizes => sizes.to_vec(),
    }
}

/// Where they are: a search takes longer than all else, so one placement has to do unless others are asked for. It is the
/// one whose rates the kernel and srv6d share fairly, if there are cores for it.
fn searched_in(placements: &[Placement], cores: &[usize]) -> Vec<Placement> {
    if !placements.is_empty() {
        return placements.to_vec();
    }
    let fits = Layout::of(Placement::SinkOnDutCore, cores).is_ok();
    vec![if fits { Placement::SinkOnDutCore } else { Placement::OneCore }]
}

/// Those that were asked for, in that order, or all.
fn cores(arguments: &Arguments) -> Result<Vec<usize>, Failure> {
    let available = affinity::available();
    if arguments.cores.is_empty() {
        return Ok(available);
    }
    for (at, core) in arguments.cores.iter().enumerate() {
        if !available.contains(core) {
            return Err(Failure::Usage(format!("--cores: there is no core {core}; there are {available:?}")));
        }
        if arguments.cores.iter().take(at).any(|earlier| earlier == core) {
            return Err(Failure::Usage(format!("--cores: core {core} stands there twice; each has one role")));
        }
    }
    Ok(arguments.cores.clone())
}

/// Set when somebody wants the run to end: after the trial under way, or at once when he asks twice.
fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, KILLED, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|why| BenchError::of("catch signals", why))?;
    }
    Ok(flag)
}

/// The srv6d beside this program, unless another was named.
fn srv6d(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("srv6d"));
    let file = arguments.srv6d.clone().or_else(beside).unwrap_or_else(|| PathBuf::from("srv6d"));
    if file.is_file() {
        return Ok(file);
    }
    let shown = file.display();
    Err(Failure::Usage(format!(
        "{shown} is not there. Fix: cargo build --release --package srv6d, or name it: --srv6d"
    )))
}

/// The file of this name, where the directory it is in was given.
fn file_in(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_path_buf() }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path, form: &str) -> Result<T, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|why| Failure::Usage(format!("{shown}: {why}")))?;
    serde_json::from_str(&text).map_err(|why| Failure::Usage(format!("{shown} is not {form}: {why}")))
}

/// What one of the two kinds of runs has left.
enum Measured {
    Forwarding(Results),
    Host(host::Results),
}

fn read_results(path: &Path) -> Result<Measured, Failure> {
    /// Only a host's results have streams.
    #[derive(serde::Deserialize)]
    struct Kind {
        streams: Option<serde::de::IgnoredAny>,
    }
    let form = "what bench-net measured (results.json; a report.json is for `bench-net render`)";
    let file = file_in(path, RESULTS);
    match read::<Kind>(&file, form)?.streams {
        Some(_) => read(&file, form).map(Measured::Host),
        None => read(&file, form).map(Measured::Forwarding),
    }
}

fn report_again(path: &Path) -> Result<(), Failure> {
    let document = match read_results(path)? {
        Measured::Host(results) => host::document(&results),
        Measured::Forwarding(results) => report::document(&results),
    };
    write_document(&document, file_in(path, RESULTS).parent().unwrap_or(Path::new("")))
}

/// Pages of the same name as the file: reports of several runs may lie in one directory.
fn render(path: &Path) -> Result<(), Failure> {
    let file = file_in(path, "report.json");
    let form = "a report (report.json; a results.json is for `bench-net report`)";
    write_pages(&read(&file, form)?, &file)
}

fn compare(before: &Path, after: &Path, json: bool) -> Result<(), Failure> {
    let comparison = match (read_results(before)?, read_results(after)?) {
        (Measured::Forwarding(before), Measured::Forwarding(after)) => Comparison::of(&before, &after),
        (Measured::Host(before), Measured::Host(after)) => Comparison::of(&before, &after),
        _ => {
            let why = "one of the two runs is of `bench-net host`, and the other is not: compare runs of one kind";
            return Err(Failure::Usage(why.to_owned()));
        }
    };
    if comparison.figures.is_empty() {
        let why = "the two runs have no ratio in common: it takes the same two rows (srv6d-uN and linux-uN, say) with a \
                   figure at the same size and placement in both";
        return Err(Failure::Usage(why.to_owned()));
    }
    if json {
        let text = serde_json::to_string_pretty(&comparison).map_err(|why| BenchError::of("compare", why))?;
        println!("{text}");
    } else {
        print!("{}", comparison.text());
    }
    Ok(())
}

fn write_document(document: &Document, directory: &Path) -> Result<(), Failure> {
    write_json(directory, "report.json", document)?;
    write_pages(document, &directory.join("report.json"))
}

/// Beside the JSON of a report.
fn write_pages(document: &Document, json: &Path) -> Result<(), Failure> {
    write(&json.with_extension("md"), &document.markdown())?;
    let html = json.with_extension("html");
    write(&html, &document.html())?;
    println!("report: {}", html.display());
    Ok(())
}

fn write_json(directory: &Path, name: &str, value: &impl serde::Serialize) -> Result<(), BenchError> {
    fs::create_dir_all(directory).map_err(|why| BenchError::of(directory.display(), why))?;
    let text = serde_json::to_string_pretty(value).map_err(|why| BenchError::of(name, why))?;
    write(&directory.join(name), &text)
}

fn write(file: &Path, text: &str) -> Result<(), BenchError> {
    // Whole or not at all: a run that is killed while it writes keeps what it wrote before.
    let new = file.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|why| BenchError::of(file.display(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_without_loss_are_searched_at_the_sizes_asked_for() {
        let sizes = |words: &[&str]| {
            let given = Arguments::try_parse_from([&["bench-net"], words].concat());
            given.map(|arguments| searched(&arguments)).map_err(|wrong| wrong.to_string())
        };
        assert_eq!(sizes(&[]), Ok(vec![Size::Bytes(64), Size::Bytes(1500)]));
        assert_eq!(sizes(&["--quick"]), Ok(vec![Size::Bytes(64)]));
        assert_eq!(sizes(&["--quick", "--size", "256", "--size", "imix"]), Ok(vec![Size::Bytes(256), Size::Imix]));
        assert_eq!(sizes(&["--size", "256", "--no-search"]), Ok(vec![]));
    }

    #[test]
    fn rates_without_loss_are_searched_in_the_placements_asked_for_or_in_one() {
        let (own, dut, one) = (Placement::SinkOnOwnCore, Placement::SinkOnDutCore, Placement::OneCore);
        assert_eq!(searched_in(&[own, one], &[0, 1, 2, 3]), [own, one]);
        assert_eq!((searched_in(&[], &[0, 1, 2]), searched_in(&[], &[0, 1])), (vec![dut], vec![one]));
    }

    #[test]
    fn a_run_that_measured_nothing_does_not_speak_of_its_report() {
        let said = |is_empty, cut_off: Option<&str>, left_out: &[&str]| {
            let left_out: Vec<String> = left_out.iter().map(|&why| why.to_owned()).collect();
            match whole(is_empty, cut_off.map(str::to_owned), &left_out) {
                Ok(()) => String::new(),
                Err(Failure::Usage(why) | Failure::Run(BenchError(why))) => why,
            }
        };
        assert_eq!(said(false, None, &["one core"]), "");
        assert_eq!(said(false, Some("interrupted"), &[]), "interrupted; the report has what was measured until then");
        assert_eq!(said(true, Some("interrupted"), &["one core"]), "nothing was measured: one core; interrupted");
        assert_eq!(said(true, None, &["one core"]), "nothing was measured: one core");
    }

    #[test]
    fn an_option_that_a_word_makes_no_use_of_is_refused() {
        let said = |words: &[&str]| {
            let given = Arguments::command().try_get_matches_from([&["bench-net"], words].concat());
            given.map(|matches| misplaced(&matches)).map_err(|wrong| wrong.to_string())
        };
        let why = |option: &str| format!("{option} is of no use to `host`: leave it out (bench-net host --help)");
        assert_eq!(said(&["--quick", "host"]), Ok(Some(why("--quick"))));
        assert_eq!(said(&["--dut", "srv6d-uN", "host", "--rounds", "2"]), Ok(Some(why("--dut"))));
        assert_eq!(said(&["--out", "there", "host", "--srv6d", "that"]), Ok(None));
        assert_eq!(said(&["--quick"]), Ok(None));
    }
}
