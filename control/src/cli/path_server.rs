//! `srv6d path-server`: a controller that speaks Jalapeno's API over a topology file.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum, ValueHint};
use srv6d_path_server::store::Part;
use srv6d_path_server::{EXAMPLE, Edition, FaultPlan, Running, Server, Store, StoreError};
use srv6d_text::read_text_up_to;
use srv6d_text::shown;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};

use srv6d_command::{Failure, output};
use srv6d_daemon as daemon;

/// Time between two looks at the files. A changed file is read once it has been the same for this long, because editors
/// write in steps.
const LOOK: Duration = Duration::from_millis(500);

/// Length of the longest file that is read, in MiB: more than a topology of a hundred thousand links takes.
const MOST: u64 = 256;

/// Arguments of `srv6d path-server`.
#[derive(Debug, Args)]
pub struct PathServerArguments {
    /// Topology: one JSON object with `nodes`, `hosts` and `edges`, or what Jalapeno's /topology answers
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present_any = ["nodes", "example"])]
    topology: Option<PathBuf>,
    /// JSON list of nodes, as Jalapeno's lab loads it; together with --hosts and --edges
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["hosts", "edges"], conflicts_with = "topology")]
    nodes: Option<PathBuf>,
    /// JSON list of hosts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "nodes")]
    hosts: Option<PathBuf>,
    /// JSON list of edges
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "nodes")]
    edges: Option<PathBuf>,
    /// Print an example topology, and end
    #[arg(long, conflicts_with_all = ["topology", "nodes", "check", "listen", "edition", "faults"])]
    example: bool,
    /// Read the topology, print a summary, and end
    #[arg(long)]
    check: bool,
    /// Address and port to listen on; '[::]:30800' is every address
    #[arg(short, long, value_name = "ADDRESS", default_value = "[::1]:30800")]
    listen: SocketAddr,
    /// Version of Jalapeno's API whose behaviour the answers have
    #[arg(long, value_enum, default_value = "2026-01")]
    edition: EditionName,
    /// For tests of clients: JSON list of faults, e.g. [{"route": "/load", "after": 2, "fault": {"delay": 500}}]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    faults: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EditionName {
    /// Jalapeno's API as merged into its main project
    #[value(name = "2026-01")]
    January2026,
    /// The API before the merge: a carrier begins with the sender's own SID
    #[value(name = "2025-11")]
    November2025,
}

impl From<EditionName> for Edition {
    fn from(name: EditionName) -> Self {
        match name {
            EditionName::January2026 => Self::January2026,
            EditionName::November2025 => Self::November2025,
        }
    }
}

/// Serves until SIGTERM or Ctrl-C. SIGHUP, or a change of the file, makes it read the topology again.
pub fn path_server(arguments: &PathServerArguments) -> Result<(), Failure> {
    if arguments.example {
        return output::print(EXAMPLE);
    }
    daemon::log_to_stderr();
    let invalid = |why| Failure::invalid(format!("error: {why}"));
    // The stamps are taken before the files are read, so that a change in the meantime is noticed.
    let seen = stamp(arguments);
    let store = read(arguments).map_err(invalid)?;
    if arguments.check {
        return output::print(&format!("{}\n", summary(&store)));
    }
    let faults = faults(arguments).map_err(invalid)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
    let ended = runtime.block_on(async {
        // Signals are handled before the server reports that it listens, because a script may stop it as soon as it
        // does.
        let signals = Signals::new().map_err(|why| Failure::failed(format!("error: cannot handle signals: {why}")))?;
        info!("{}", summary(&store));
        let server = Server { store, edition: arguments.edition.into(), faults };
        let running = server.start(arguments.listen).await.map_err(|why| Failure::failed(format!("error: {why}")))?;
        info!("listening on {0}/api/v1; its routes: {0}/docs", running.url());
        serve(arguments, &running, signals, seen).await;
        running.stop().await;
        Ok(())
    });
    // Nobody waits for the result of a search that is still running.
    runtime.shutdown_background();
    ended
}

struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
}

async fn serve(arguments: &PathServerArguments, running: &Running, mut signals: Signals, mut seen: Stamp) {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hangup.recv() => take(arguments, running),
            _ = look.tick() => {
                let now = stamp(arguments);
                if now != seen {
                    seen = now;
                    take(arguments, running);
                }
            }
        }
    }
}

/// Reads the topology again. An invalid file changes nothing.
fn take(arguments: &PathServerArguments, running: &Running) {
    match read(arguments) {
        Ok(store) => {
            info!("{}", summary(&store));
            running.replace(store);
        }
        Err(why) => error!("the topology stays as it was: {}", shown(&why.replace('\n', "; "))),
    }
}

fn files(arguments: &PathServerArguments) -> impl Iterator<Item = &PathBuf> {
    [&arguments.topology, &arguments.nodes, &arguments.hosts, &arguments.edges].into_iter().flatten()
}

/// Time of the last change and length of each file.
type Stamp = Vec<Option<(SystemTime, u64)>>;

fn stamp(arguments: &PathServerArguments) -> Stamp {
    let of = |file: &PathBuf| {
        let data = fs::metadata(file).ok()?;
        Some((data.modified().ok()?, data.len()))
    };
    files(arguments).map(of).collect()
}

fn read(arguments: &PathServerArguments) -> Result<Store, String> {
    let wrong = |file: &Path, why: &StoreError| format!("{}:{why}", file.display());
    match (&arguments.topology, &arguments.nodes, &arguments.hosts, &arguments.edges) {
        (Some(file), ..) => Store::parse(&text(file)?).map_err(|why| wrong(file, &why)),
        (None, Some(nodes), Some(hosts), Some(edges)) => {
            let store = Store::parse_parts(&text(nodes)?, &text(hosts)?, &text(edges)?);
            store.map_err(|why| match why.part {
                Part::Whole | Part::Nodes => wrong(nodes, &why),
                Part::Hosts => wrong(hosts, &why),
                Part::Edges => wrong(edges, &why),
            })
        }
        _ => Err("no topology\nfix: name one with --topology".to_owned()),
    }
}

fn faults(arguments: &PathServerArguments) -> Result<FaultPlan, String> {
    let Some(file) = &arguments.faults else { return Ok(FaultPlan::default()) };
    FaultPlan::parse(&text(file)?).map_err(|why| {
        let said = why.to_string();
        let what = said.split(" at line ").next().unwrap_or_default();
        let place = format!("{}:{}:{}", file.display(), why.line(), why.column());
        format!("{place}: {what}\nfix: write rules as [{{\"route\": \"/load\", \"after\": 2, \"fault\": {{\"delay\": 500}}}}]")
    })
}

fn text(file: &Path) -> Result<String, String> {
    let fix = "name a file that exists and can be read; `srv6d path-server --example` prints one";
    read_text_up_to(MOST, file).map_err(|why| format!("cannot read {}: {why}\nfix: {fix}", file.display()))
}

fn summary(store: &Store) -> String {
    let graphs = store.graphs().map(|graph| {
        let edges = store.edges(graph).map_or(0, |edges| edges.len());
        let vertices = store.vertices(graph).map_or(0, |vertices| vertices.len());
        format!("{graph}: {vertices} vertices, {edges} edges")
    });
    let mut summary = graphs.collect::<Vec<_>>();
    if store.left_out() > 0 {
        summary.push(format!("{} edges left out: their ends are not in the file", store.left_out()));
    }
    summary.join("; ")
}
