//! `srv6d place`: places the flows of a job on a fabric, and compares the result with hashing and with Jalapeno's load
//! book.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use serde_json::Value;
use srv6d_placement::{ChosenPaths, Clos, Fabric, Job, Pattern, Report, compare, short, sids, svg};

use srv6d_command::{Failure, output, read};
use srv6d_config::Source;
use srv6d_show::Table;

/// Arguments of `srv6d place`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("fabric").args(["topology", "clos"]).required(true)))]
pub struct PlaceArguments {
    /// Topology: what Jalapeno's /topology answers, or one JSON object with `nodes`, `hosts` and `edges`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    topology: Option<PathBuf>,
    /// A generated fabric: leaves, spines and hosts at each leaf, as in 32x32x32; or pods, leaves and spines of each
    /// pod, cores, and hosts at each leaf, as in 4x4x4x16x4
    #[arg(long, value_name = "SIZES")]
    clos: Option<Clos>,
    /// Number of copies of the generated fabric side by side, each with hosts of its own
    #[arg(long, value_name = "COUNT", requires = "clos", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    rails: u16,
    /// Job: hosts, pattern, pairs, tenants; TOML if its name ends in .toml, else JSON
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    job: Option<PathBuf>,
    /// Pairs of hosts that send [default: all-to-all, unless the job lists pairs]
    #[arg(short, long, value_enum)]
    pattern: Option<PatternName>,
    /// Hosts that take part, in the order of their ranks [default: all, by id]
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    hosts: Vec<String>,
    /// A further flow: source, destination, and its demand
    #[arg(long = "pair", value_name = "FROM,TO[,DEMAND]")]
    pairs: Vec<String>,
    /// A switch, the key of an edge, or FROM,TO that does not work. May be given several times
    #[arg(long, value_name = "NAME")]
    down: Vec<String>,
    /// Number of hops by which paths may be longer than the shortest
    #[arg(long, value_name = "HOPS")]
    detour: Option<usize>,
    /// Seed of permutations and of all other random choices
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Seed of the hashes that placement is compared with
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    ecmp_seed: u64,
    /// Number of flows to list [default: 10 in the table, all in JSON]
    #[arg(long, value_name = "COUNT")]
    flows: Option<usize>,
    /// Number of links to list in the table, the busiest first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    links: usize,
    /// Write a picture of the link loads
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PatternName {
    /// Each host to the next one
    Ring,
    /// Each host to every other one
    AllToAll,
    /// Each host to one other, and from one other
    Permutation,
    /// Only the listed pairs
    List,
}

impl From<PatternName> for Pattern {
    fn from(name: PatternName) -> Self {
        match name {
            PatternName::Ring => Self::Ring,
            PatternName::AllToAll => Self::AllToAll,
            PatternName::Permutation => Self::Permutation,
            PatternName::List => Self::List,
        }
    }
}

/// Examples of jobs, for error messages.
const JOB_IN_TOML: &str =
    r#"write e.g. `pattern = "ring"`, `pairs = [["host00", "host01", 4]]`; docs/placement.md has every key"#;
const JOB_IN_JSON: &str =
    r#"write e.g. {"pattern": "ring", "pairs": [["host00", "host01", 4]]}; docs/placement.md has every key"#;

/// Default number of flows listed in a table.
const FLOWS: usize = 10;

/// Places the flows, compares, and prints the result.
pub fn place(arguments: &PlaceArguments) -> Result<(), Failure> {
    let document = arguments.topology.as_deref().map(read_json).transpose()?;
    let mut fabric = fabric(arguments, document.as_ref())?;
    for name in &arguments.down {
        take_down(&mut fabric, name)?;
    }
    let job = job(arguments)?;
    let place = arguments.job.as_deref().map_or_else(String::new, |file| format!("{}: ", file.display()));
    let invalid = |why: &dyn std::fmt::Display| Failure::invalid(format!("error: {place}{why}"));
    let (demand, constraints) = job.resolve(&fabric).map_err(|why| invalid(&why))?;
    let comparison = compare(&fabric, &demand, &constraints, arguments.ecmp_seed).map_err(|why| invalid(&why))?;
    let topology = document.as_ref().and_then(sids);
    let all = if arguments.json { usize::MAX } else { FLOWS };
    let report = Report {
        fabric: &fabric,
        demand: &demand,
        constraints: &constraints,
        comparison: &comparison,
        sids: topology.as_ref(),
        most_flows: arguments.flows.unwrap_or(all),
    };
    if let Some(file) = &arguments.svg {
        fs::write(file, svg(&report))
            .map_err(|why| Failure::failed(format!("error: cannot write {}: {why}", file.display())))?;
    }
    if arguments.json {
        return output::write_json(&report);
    }
    output::print(&text(&report, arguments.links))
}

fn fabric(arguments: &PlaceArguments, document: Option<&Value>) -> Result<Fabric, Failure> {
    match (document, &arguments.topology, arguments.clos) {
        (Some(document), Some(file), _) => {
            Fabric::from_topology(document).map_err(|why| Failure::invalid(format!("error: {}: {why}", file.display())))
        }
        (_, _, Some(clos)) => Ok(Clos { rails: usize::from(arguments.rails), ..clos }.build()),
        _ => Err(Failure::invalid("error: no fabric; name one with --topology or --clos")),
    }
}

fn source(file: &Path, text: &str) -> Source {
    Source::new(&file.display().to_string(), text)
}

fn read_json(file: &Path) -> Result<Value, Failure> {
    let text = read(file)?;
    let fix = "write JSON: an object with `nodes`, `hosts` and `edges`, or what Jalapeno's /topology answers";
    serde_json::from_str(&text).map_err(|why| Failure::invalid(source(file, &text).refused_json(&why, fix).to_string()))
}

/// Reads the job from its file and applies the options of the command line to it.
fn job(arguments: &PlaceArguments) -> Result<Job, Failure> {
    let mut job = match &arguments.job {
        None => Job::default(),
        Some(file) => {
            let text = read(file)?;
            let source = source(file, &text);
            let refused = if file.extension().is_some_and(|extension| extension == "toml") {
                toml::from_str(&text).map_err(|why| source.refused_toml(&why, JOB_IN_TOML))
            } else {
                serde_json::from_str(&text).map_err(|why| source.refused_json(&why, JOB_IN_JSON))
            };
            refused.map_err(|why| Failure::invalid(why.to_string()))?
        }
    };
    if let Some(pattern) = arguments.pattern {
        job.pattern = Some(pattern.into());
    }
    if !arguments.hosts.is_empty() {
        job.hosts.clone_from(&arguments.hosts);
    }
    for text in &arguments.pairs {
        job.pairs.push(text.parse().map_err(|why| Failure::invalid(format!("error: --pair: {why}")))?);
    }
    job.detour = arguments.detour.unwrap_or(job.detour);
    job.seed = arguments.seed.or(job.seed);
    Ok(job)
}

/// Takes a part of the fabric down. A switch goes down with its links; FROM,TO stands for both directions of the links
/// between the two.
fn take_down(fabric: &mut Fabric, name: &str) -> Result<(), Failure> {
    if let Some(node) = fabric.find(name) {
        fabric.node_mut(node).up = false;
        return Ok(());
    }
    let ends = name.split_once(',').map(|(one, other)| [one, other].map(|end| fabric.find(end.trim())));
    let is_meant = |key: &str, from, to| match ends {
        Some([Some(one), Some(other)]) => (from, to) == (one, other) || (from, to) == (other, one),
        Some(_) => false,
        None => key == name,
    };
    let meant = fabric.links().filter(|(_, link)| is_meant(&link.key, link.from, link.to));
    let links: Vec<_> = meant.map(|(id, _)| id).collect();
    if links.is_empty() {
        return Err(Failure::invalid(format!(
            "error: --down {name}: no such node, edge or pair of neighbours; write a name as the topology has it, e.g. \
             leaf00 or leaf00,spine01"
        )));
    }
    for link in links {
        fabric.link_mut(link).up = false;
    }
    Ok(())
}

fn text(report: &Report, most_links: usize) -> String {
    let comparison = report.comparison;
    let flows = report.demand.flows.len();
    let mut sections = vec![
        format!(
            "{flows} flows between {} hosts over {} links; the busiest link carries at least {}\n",
            report.fabric.hosts().count(),
            comparison.links.len(),
            short(comparison.bound.value()),
        ),
        summary(report),
    ];
    if most_links > 0 {
        let (most, all) = (most_links.min(comparison.links.len()), comparison.links.len());
        sections.push(format!("links, {most} of {all}:\n{}", links(report, most_links)));
    }
    if report.most_flows > 0 {
        let most = report.most_flows.min(flows);
        sections.push(format!("flows, {most} of {flows}:\n{}", flow_table(report)));
    }
    sections.join("\n")
}

fn summary(report: &Report) -> String {
    let comparison = report.comparison;
    let mut table = Table::new(&["", ">BUSIEST", ">MEAN", ">TIMES THE BOUND", "BUSIEST LINK"]);
    let ecmp = format!("ECMP, seed {}", comparison.ecmp_seed);
    let outcomes: [(&str, &ChosenPaths); 3] =
        [("placed", &comparison.placed), (&ecmp, &comparison.ecmp), ("Jalapeno /load", &comparison.load)];
    for (name, outcome) in outcomes {
        let (busiest, bound) = (outcome.busiest.value(), comparison.bound.value());
        table.row([
            name.to_owned(),
            short(busiest),
            short(report.mean(outcome)),
            if bound > 0.0 { format!("{:.3}", busiest / bound) } else { "-".to_owned() },
            report.busiest_link(outcome).unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.finish("")
}

fn links(report: &Report, most: usize) -> String {
    let comparison = report.comparison;
    let mut table = Table::new(&["LINK", ">CAPACITY", ">PLACED", ">ECMP", ">/LOAD"]);
    for link in comparison.links.iter().take(most) {
        let load = |outcome: &ChosenPaths| outcome.loads[*link].to_string();
        let capacity = report.fabric.link(*link).capacity.to_string();
        let [placed, ecmp, by_load] = [&comparison.placed, &comparison.ecmp, &comparison.load].map(load);
        table.row([report.link_name(*link), capacity, placed, ecmp, by_load]);
    }
    table.finish("none")
}

fn flow_table(report: &Report) -> String {
    let mut table = Table::new(&["FROM", "TO", ">DEMAND", "PLACED VIA", "CARRIER", "ECMP VIA", "/LOAD VIA"]);
    let mut reason = None;
    for (number, flow) in report.demand.flows.iter().enumerate().take(report.most_flows) {
        let name = |node| report.fabric.node(node).name.clone();
        let placed = report.hop(&report.comparison.placed, number, true);
        let via = |outcome: &ChosenPaths| report.hop(outcome, number, false).via.join(" ");
        let carriers: Vec<String> = placed.carriers.iter().map(ToString::to_string).collect();
        reason = reason.or(placed.no_carrier);
        table.row([
            name(flow.source),
            name(flow.destination),
            flow.demand.to_string(),
            placed.via.join(" "),
            if carriers.is_empty() { "-".to_owned() } else { carriers.join(" ") },
            via(&report.comparison.ecmp),
            via(&report.comparison.load),
        ]);
    }
    let reason = reason.map_or_else(String::new, |reason| format!("no carrier where there is none: {reason}\n"));
    table.finish("none") + &reason
}
