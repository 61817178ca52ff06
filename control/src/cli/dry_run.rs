//! `srv6d run --dry-run`: what a start, or a restart, would put in force; nothing is touched.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::check::environment;
use super::output::{self, Failure};
use crate::api::client::{self, AskError};
use crate::api::{Request, Response};
use crate::config::{self, Config, PathKind};
use crate::plan;
use crate::show;
use crate::sonic;
use crate::source::Offer;
use crate::source::running::Sources;
use srv6d_srv6::model::Desired;

/// How long controllers may take for their first round.
const PATIENCE: Duration = Duration::from_secs(15);

/// Asks the controllers, plans, and compares with the daemon that runs, or with nothing.
pub fn dry_run(filename: String, text: String, socket: &Path) -> Result<(), Failure> {
    let interfaces = sonic::interfaces_of_a_switch();
    let config = sonic::configuration(&text, &filename, interfaces.as_deref());
    let config = config.map_err(|errors| Failure::invalid(errors.to_string()))?;
    let (offers, said) = offers(&config)?;
    output::print(&said)?;
    match client::ask(socket, &Request::Diff { filename, text, offers: Some(offers.clone()) }) {
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
        crate::source::OutcomeState::Pending(why) => {
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

/// What controllers offer now; without those that were not asked or did not answer. Asking by load would change the
/// loads: that is not done for a look.
fn offers(config: &Config) -> Result<(Vec<Offer>, String), Failure> {
    let mut config = config.clone();
    let mut said = String::new();
    let by_load = |table: &config::Jalapeno| table.path.as_ref().is_some_and(|kind| *kind.get_ref() == PathKind::Load);
    if config.jalapeno.as_ref().is_some_and(by_load) {
        config.jalapeno = None;
        said.push_str("jalapeno: not asked: path = \"load\" allocates with every question\n");
    }
    if config.syd.take().is_some() {
        said.push_str("syd: not asked: a request allocates\n");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
    let offers = runtime.block_on(async {
        let mut sources = Sources::default();
        sources.configure(&config, "").await;
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
        }
        // A controller that says nothing takes nothing away.
        sources.offers().into_iter().filter(|offer| !offer.steers.is_empty()).collect()
    });
    Ok((offers, said))
}
