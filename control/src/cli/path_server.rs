//! `srv6d path-server`: a controller that speaks Jalapeno's API over a topology file.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use srv6d_path_server::{Edition, FaultPlan, Running, Server, Store};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use super::output::{self, Failure};
use crate::daemon;

/// A file that has been the same for so long is read: editors write in steps.
const LOOK: Duration = Duration::from_millis(500);

/// `srv6d path-server`
#[derive(Debug, Args)]
pub struct PathServerArguments {
    /// Topology: what Jalapeno's /topology answers, or one JSON object with `nodes`, `hosts` and `edges`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "nodes")]
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
    /// Address and port to listen on
    #[arg(short, long, value_name = "ADDRESS", default_value = "[::1]:30800")]
    listen: SocketAddr,
    /// Whose habits the answers have
    #[arg(long, value_enum, default_value = "2026-01")]
    edition: EditionName,
    /// For tests of clients: JSON list of faults, e.g. [{"route": "/load", "after": 2, "fault": {"delay": 500}}]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    faults: Option<PathBuf>,
    /// Read the topology, say what is in it, and end
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EditionName {
    /// Jalapeno's API as merged into its main project
    #[value(name = "2026-01")]
    January2026,
    /// The API before that: the sender's own SID comes first in its carriers
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

/// Serves until SIGTERM or Ctrl-C; SIGHUP, or a change of the file, reads the topology again.
pub fn path_server(arguments: &PathServerArguments) -> Result<(), Failure> {
    daemon::log_to_stderr();
    let store = read(arguments).map_err(Failure::invalid)?;
    if arguments.check {
        return output::print(&format!("{}\n", summary(&store)));
    }
    let faults = match &arguments.faults {
        None => FaultPlan::default(),
        Some(file) => {
            let text = text(file).map_err(Failure::invalid)?;
            FaultPlan::parse(&text).map_err(|why| Failure::invalid(format!("error: {}: {why}", file.display())))?
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
    runtime.block_on(async {
        info!("{}", summary(&store));
        let server = Server { store, edition: arguments.edition.into(), faults };
        let running = server.start(arguments.listen).await.map_err(|why| Failure::failed(format!("error: {why}")))?;
        info!("listening on {}/api/v1", running.url());
        let ended = serve(arguments, &running).await;
        running.stop().await;
        ended
    })
}

async fn serve(arguments: &PathServerArguments, running: &Running) -> Result<(), Failure> {
    let handler = |kind| signal(kind).map_err(|why| Failure::failed(format!("error: cannot handle signals: {why}")));
    let (mut hangup, mut terminate) = (handler(SignalKind::hangup())?, handler(SignalKind::terminate())?);
    let mut interrupt = handler(SignalKind::interrupt())?;
    let mut look = tokio::time::interval(LOOK);
    let mut seen = stamp(arguments);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => take(arguments, running),
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

/// A bad file changes nothing.
fn take(arguments: &PathServerArguments, running: &Running) {
    match read(arguments) {
        Ok(store) => {
            info!("{}", summary(&store));
            running.replace(store);
        }
        Err(why) => error!("the topology stays as it was: {why}"),
    }
}

fn files(arguments: &PathServerArguments) -> impl Iterator<Item = &PathBuf> {
    [&arguments.topology, &arguments.nodes, &arguments.hosts, &arguments.edges].into_iter().flatten()
}

fn stamp(arguments: &PathServerArguments) -> Vec<Option<(std::time::SystemTime, u64)>> {
    let of = |file: &PathBuf| {
        let data = fs::metadata(file).ok()?;
        Some((data.modified().ok()?, data.len()))
    };
    files(arguments).map(of).collect()
}

fn read(arguments: &PathServerArguments) -> Result<Store, String> {
    let wrong = |file: &Path, why: &dyn std::fmt::Display| format!("error: {}: {why}", file.display());
    match (&arguments.topology, &arguments.nodes, &arguments.hosts, &arguments.edges) {
        (Some(file), ..) => Store::parse(&text(file)?).map_err(|why| wrong(file, &why)),
        (None, Some(nodes), Some(hosts), Some(edges)) => {
            Store::parse_parts(&text(nodes)?, &text(hosts)?, &text(edges)?).map_err(|why| wrong(nodes, &why))
        }
        _ => Err("error: no topology; name one with --topology".to_owned()),
    }
}

fn text(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|why| {
        format!("error: cannot read {}: {why}\nfix: name a file that exists and can be read", file.display())
    })
}

fn summary(store: &Store) -> String {
    let graphs = store.graphs().map(|graph| {
        let edges = store.edges(graph).map_or(0, |edges| edges.len());
        let vertices = store.vertices(graph).map_or(0, |vertices| vertices.len());
        format!("{graph}: {vertices} vertices, {edges} edges")
    });
    graphs.collect::<Vec<_>>().join("; ")
}
