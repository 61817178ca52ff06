//! `srv6d wait`: waits until the paths of the controllers' peers are in force.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use srv6d_text::escaped;

use srv6d_api::client::{self, AskError};
use srv6d_api::state::SourceView;
use srv6d_api::{Request, Response, Topic};
use srv6d_command::{Failure, output};

/// Time between two requests to the daemon.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of peers that are named when the time is up.
const NAMED: usize = 5;

/// Waits until every peer of every controller has a path in force, but at most for `timeout`.
pub fn for_peers(socket: &Path, timeout: Option<Duration>) -> Result<(), Failure> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut told = false;
    loop {
        let missing = match client::ask(socket, &Request::Show { topic: Topic::Source }) {
            Ok(Response::Source(views)) => missing(&views)?,
            Ok(Response::Refused(refusal)) => return Err(Failure::failed(refusal.errors.join("\n"))),
            Ok(_) => return Err(Failure::failed("error: the daemon answered another question")),
            // The daemon may be about to start, or busy.
            Err(AskError::NotRunning { .. } | AskError::Broken { .. }) => {
                if !std::mem::replace(&mut told, true) {
                    let socket = escaped(&socket.display().to_string());
                    eprintln!("waiting for the daemon, which does not answer on {socket} yet");
                }
                vec!["the daemon does not answer".to_owned()]
            }
            Err(why) => return Err(why.into()),
        };
        if missing.is_empty() {
            return output::print("every peer has a path in force\n");
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(Failure::failed(too_late(&missing)));
        }
        sleep(PAUSE);
    }
}

/// Lists the peers without a path in force.
fn missing(views: &[SourceView]) -> Result<Vec<String>, Failure> {
    let controllers: Vec<&SourceView> = views.iter().filter(|view| view.fpm.is_none()).collect();
    if controllers.is_empty() {
        let why = "error: no path controller is configured: there is nothing to wait for\nfix: add [jalapeno] or [syd]";
        return Err(Failure::failed(why));
    }
    let mut missing = Vec::new();
    for view in controllers {
        let absent = view.peers.iter().filter(|row| !matches!(row.programmed.as_str(), "yes" | "kept" | "held"));
        let why = |error: &Option<String>| error.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        missing.extend(absent.map(|row| format!("{} is {}{}", row.peer, row.state, why(&row.error))));
        if view.state == "refused" || (view.state == "waiting" && view.peers.is_empty()) {
            missing.push(format!("{} is {}{}", view.source, view.state, why(&view.last_error)));
        }
    }
    Ok(missing)
}

fn too_late(missing: &[String]) -> String {
    let named = missing.iter().take(NAMED).map(|what| format!("  {what}\n"));
    let more = missing.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!("  and {more} more\n") };
    let fix = "fix: see `srv6d show source`, or wait longer with --timeout";
    format!("error: not every peer has a path in force:\n{}{more}{fix}", named.collect::<String>())
}
