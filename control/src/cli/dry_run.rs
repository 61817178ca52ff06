//! `srv6d run --dry-run`: shows what a start or a restart would put in force, without changing anything.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::check::environment;
use srv6d_api::client::{self, AskError};
use srv6d_api::{Request, Response};
use srv6d_command::{Failure, output};
use srv6d_config::{Config, Criterion, Jalapeno};
use srv6d_controller::Snapshot;
use srv6d_daemon::kernel::host_name;
use srv6d_daemon::source::running::Controllers;
use srv6d_offer::Offer;
use srv6d_plan as plan;
use srv6d_show as show;
use srv6d_sonic_switch::{self as sonic, SwitchConfig};
use srv6d_srv6::desired::Desired;

/// Longest time for the controllers' first round.
const PATIENCE: Duration = Duration::from_secs(15);

/// Asks the controllers, makes a plan, and compares it with the running daemon or, if none runs, with an empty state.
pub fn dry_run(filename: String, text: String, socket: &Path) -> Result<(), Failure> {
    let interfaces = sonic::interfaces_of_a_switch();
    let read = sonic::configuration(&text, &filename, interfaces.as_deref());
    let read = read.map_err(|errors| Failure::invalid(errors.to_string()))?;
    let Asked { offers, stand_in, said } = offers(&read.config)?;
    output::print(&said)?;
    // For a source that cannot be asked, the paths that a running daemon has booked are closer to the real ones than
    // the substitute.
    let known: Vec<Offer> = offers.iter().filter(|offer| Some(offer.source.as_str()) != stand_in).cloned().collect();
    match client::ask(socket, &Request::Diff { filename, text, offers: Some(known) }) {
        Ok(Response::Refused(refusal)) => Err(Failure::invalid(refusal.errors.join("\n\n"))),
        Ok(response) => output::print(&show::render(&response)),
        Err(AskError::NotRunning { .. }) => from_nothing(&read, &offers),
        Err(why) => Err(why.into()),
    }
}

fn from_nothing(read: &SwitchConfig, offers: &[Offer]) -> Result<(), Failure> {
    let environment = environment();
    let plan = plan::plan_with(&read.config, &read.environment(&environment), offers);
    let plan = plan.map_err(|errors| Failure::invalid(errors.to_string()))?;
    let diff = plan::diff(&Desired::default(), &plan.desired);
    let lines = diff.lines().join("\n");
    let left_out = plan.offered.iter().filter_map(|outcome| match &outcome.state {
        srv6d_offer::OutcomeState::Programmed => None,
        srv6d_offer::OutcomeState::Kept(why) | srv6d_offer::OutcomeState::Pending(why) => {
            Some(format!("pending: {} {}: {why}\n", outcome.peer, outcome.prefix))
        }
        srv6d_offer::OutcomeState::Refused(why) => {
            Some(format!("refused: {} {}: {why}\n", outcome.peer, outcome.prefix))
        }
    });
    output::print(&format!(
        "no srv6d runs here: everything would be new\n{lines}\n{}{diff}\n",
        left_out.collect::<String>()
    ))
}

/// The answers of the controllers.
struct Asked {
    offers: Vec<Offer>,
    /// The source that was not asked for its own kind of paths, because a question would book them. Its paths are substitutes.
    stand_in: Option<&'static str>,
    /// The report for the user.
    said: String,
}

/// Asks the controllers for their present offers, by requests that change nothing at the controllers. Controllers that
/// do not answer are left out.
fn offers(config: &Config) -> Result<Asked, Failure> {
    let mut said = String::new();
    let is_by_load = |table: &Jalapeno| table.path.as_ref().is_some_and(|kind| *kind.get_ref() == Criterion::Load);
    let stand_in = config.jalapeno.as_ref().filter(|table| is_by_load(table)).map(|_| "jalapeno");
    if stand_in.is_some() {
        said.push_str(
            "jalapeno: path = \"load\" books with every question and is not asked: prefixes and carriers are those of \
             path = \"shortest\", and load may choose other carriers\n",
        );
    }
    if config.syd.is_some() {
        said.push_str("syd: a request allocates: only an existing workload is read\n");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
    let offers = runtime.block_on(async {
        let mut sources = Controllers::that_only_look();
        let name = config.node.name.as_ref().map(|name| name.get_ref().clone());
        sources.configure(config, &name.unwrap_or_else(host_name));
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
        // A controller that offers nothing must not remove what the daemon has.
        sources.offers().into_iter().filter(|offer| !offer.steers.is_empty()).collect()
    });
    Ok(Asked { offers, stand_in, said })
}

/// Lists peers with their prefixes and carriers, and what is missing for each.
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
