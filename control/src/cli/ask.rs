//! `srv6d show` and `srv6d reload`: send one request to the daemon.

use std::path::Path;

use srv6d_api::client;
use srv6d_api::{Refusal, Request, Response, Topic};
use srv6d_command::{Failure, output};
use srv6d_show as show;

/// Sends the request and prints the answer as a table or as JSON.
pub fn ask(socket: &Path, request: &Request, json: bool) -> Result<(), Failure> {
    let response = client::ask(socket, request)?;
    if let Response::Refused(refusal) = response {
        return Err(refused(&refusal));
    }
    print(&response, json)
}

/// Prints an answer as a table or as JSON.
pub fn print(response: &Response, json: bool) -> Result<(), Failure> {
    if json { print_value(response) } else { output::print(&show::render(response)) }
}

pub fn refused(refusal: &Refusal) -> Failure {
    let message = refusal.errors.join("\n\n");
    if refusal.invalid_configuration {
        Failure::invalid(format!("{message}\n\nnothing was changed: the old configuration stays in force"))
    } else {
        Failure::failed(format!("error: {message}"))
    }
}

/// Prints, below a table of what is in force, how much of the configuration is not in force yet. If the daemon has
/// ended meanwhile, nothing is printed, because the table has answered the user's request.
pub fn say_what_waits(socket: &Path) -> Result<(), Failure> {
    let Ok(Response::Generation(view)) = client::ask(socket, &Request::Show { topic: Topic::Generation }) else {
        return Ok(());
    };
    output::print(&show::what_waits(&view))
}

/// Prints only the value as JSON, without the protocol's own fields.
fn print_value(response: &Response) -> Result<(), Failure> {
    match response {
        Response::Ports(rows) => output::print_json(rows),
        Response::Sids(rows) => output::print_json(rows),
        Response::Routes(rows) => output::print_json(rows),
        Response::Unfollowed(rows) => output::print_json(rows),
        Response::Paths(rows) => output::print_json(rows),
        Response::Neighbors(rows) => output::print_json(rows),
        Response::Balance(rows) => output::print_json(rows),
        Response::Glb(view) => output::print_json(view),
        Response::Probes(view) => output::print_json(view),
        Response::Counters(view) => output::print_json(view),
        Response::Generation(view) => output::print_json(view),
        Response::Source(views) => output::print_json(views),
        Response::Workers(rows) => output::print_json(rows),
        Response::Process(view) => output::print_json(view),
        Response::Explained(view) => output::print_json(view),
        Response::Matched(row) => output::print_json(row),
        Response::Drops(rows) => output::print_json(rows),
        Response::Capturing { devices } => output::print_json(&serde_json::json!({ "capturing": devices })),
        Response::Syncing => output::print_json(&serde_json::json!({ "syncing": true })),
        Response::Reloaded(reloaded) => output::print_json(reloaded),
        Response::Diff(diff) => output::print_json(diff),
        Response::Placed(view) => output::print_json(view),
        Response::Occupancy(rows) => output::print_json(rows),
        Response::Job(view) => output::print_json(view),
        Response::Jobs(views) => output::print_json(views),
        Response::Refused(refusal) => output::print_json(refusal),
    }
}
