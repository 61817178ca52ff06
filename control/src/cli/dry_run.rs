//! `srv6d run --dry-run`: what a start, or a restart, would put in force; nothing is touched.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::check::environment;
use super::output::{self, Failure};
use crate::api::client::{self, AskError};
use crate::api::{Request, Response};
use crate::config::{Config, Jalapeno, PathKind};
use crate::plan;
use crate::show;
use crate::sonic;
use crate::source::Offer;
use crate::source::running::Sources;
use srv6d_controller::Snapshot;
use srv6d_srv6::model::Desired;

/// How long controllers may take for their first round.
const PATIENCE: Duration = Duration::from_secs(15);

/// Asks the controllers, plans, and compares with the daemon that runs, or with nothing.
pub fn dry_run(filename: String, text: String, socket: &Path) -> Result<(), Failure> {
    let interfaces = sonic::interfaces_of_a_switch();
    let config = sonic::configuration(&text, &filename, interfaces.as_deref());
    let config = config.map_err(|errors| Failure::invalid(errors.to_string()))?;
    let Asked { offers, stand_in, said } = offers(&config)?;
    output::print(&said)?;
    // What a running daemon has booked is closer to what it would have than what stands in for it.
    let known: Vec<Offer> = offers.iter().filter(|offer| Some(offer.source.as_str()) != stand_in).cloned().collect();
    match client::ask(socket, &Request::Diff { filename, text, offers: Some(known) }) {
        Ok(Response::Refused(refusal)) => Err(Failure::invalid(refusal.errors.join("\n\n"))),
        Ok(response) => output::print(&show::render(&response)),
        Err(AskError::NotRunning { .. }) => from_nothing(&config, &offers),
        Err(why) => Err(why.into()),
    }
}

fn from_nothing(config: &Config, offers: &[Offer]) -> Result<(), Failure> {
    let plan =
        plan::plan_with(config, &environment(), offers).map_err(|errors| Failure::invalid(errors.to_string()))?;
    let diff = plan::diff(&Desired::default(), &plan.desired);
    let lines = diff.lines().join("\n");
    let left_out = plan.offered.iter().filter_map(|outcome| match &outcome.state {
        crate::source::OutcomeState::Programmed => None,
        crate::source::OutcomeState::Kept(why) | crate::source::OutcomeState::Pending(why) => {
            Some(format!("pending: {} {}: {why}\n", outcome.peer, outcome.prefix))
        }
        crate::source::OutcomeState::Refused(why) => {
            Some(format!("refused: {} {}: {why}\n", outcome.peer, outcome.prefix))
        }
    });
    output::print(&format!(
        "no srv6d runs here: everything would be new\n{lines}\n{}{diff}\n",
        left_out.collect::<String>()
    ))
}

/// What controllers answered.
struct Asked {
    offers: Vec<Offer>,
    /// The source whose paths are not those that it would give.
    stand_in: Option<&'static str>,
    /// For people.
    said: String,
}

/// What controllers offer now, as far as asking changes nothing there; without those that did not answer.
fn offers(config: &Config) -> Result<Asked, Failure> {
    let mut said = String::new();
    let is_by_load = |table: &Jalapeno| table.path.as_ref().is_some_and(|kind| *kind.get_ref() == PathKind::Load);
    let stand_in = config.jalapeno.as_ref().filter(|table| is_by_load(table)).map(|_| "jalapeno");
    if stand_in.is_some() {
        said.push_str(
            "jalapeno: path = \"load\" books with every question and is not asked: prefixes and carriers are those of \
             path = \"shortest\", and load may choose other carriers\n",
        );
    }
    if config.syd.is_some() {
        said.push_str("syd: a request allocates: only a workload that exists already is looked at\n");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
    let offers = runtime.block_on(async {
        let mut sources = Sources::that_only_look();
        let host_name = || nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        let name = config.node.name.as_ref().map(|name| name.get_ref().clone());
        sources.configure(config, &name.unwrap_or_else(|| host_name().unwrap_or_default())).await;
        let all = async {
            while !sources.settled() {
                sources.changed().await;
            }
        };
        let _ = timeout(PATIENCE, all).await;
        for status in sources.status() {
            let error = status.refused.or_else(|| status.snapshot.health.last_error.clone());
            let peers = status.snapshot.peers.len();
            let known = status.snapshot.peers.values().filter(|peer| !peer.prefixes.is_empty()).count();
            let why = error.map_or_else(String::new, |why| format!(": {why}"));
            let _ = writeln!(said, "{}: paths to {known} of {peers} peers{why}", status.name);
            said.push_str(&carriers(&status.snapshot));
        }
        // A controller that says nothing takes nothing away.
        sources.offers().into_iter().filter(|offer| !offer.steers.is_empty()).collect()
    });
    Ok(Asked { offers, stand_in, said })
}

/// Peers with their prefixes and carriers, and what is missing of each.
fn carriers(snapshot: &Snapshot) -> String {
    let mut lines = String::new();
    for (id, peer) in &snapshot.peers {
        for known in &peer.prefixes {
            let paths = known.paths.iter().map(|path| {
                let segments: Vec<String> = path.segments.iter().map(ToString::to_string).collect();
                segments.join(" then ")
            });
            let _ = writeln!(lines, "  {id} {}: {}", known.prefix, paths.collect::<Vec<_>>().join(", "));
        }
        if let Some(why) = &peer.last_error {
            let _ = writeln!(lines, "  {id}: {why}");
        }
    }
    lines
}
