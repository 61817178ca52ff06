//! `srv6d show`: topics, and the longest match of an address.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use ipnet::IpNet;

use srv6d_api::state::RouteStatus;
use srv6d_api::{Request, Response, Topic, client};
use srv6d_command::{Failure, output};
use srv6d_show as show;

use super::{ask, watch};

/// Number of the table `main`.
const MAIN: u32 = 254;

/// Time over which `show workers` measures.
const A_SECOND: Duration = Duration::from_secs(1);

/// Arguments of `srv6d show`.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// Topic to show
    #[arg(value_enum)]
    topic: Topic,
    /// With `routes`: an address, whose longest match is shown. With `drops`: a reason
    #[arg(value_name = "ADDRESS|REASON", conflicts_with = "watch")]
    about: Option<String>,
    /// With `routes`: show the kernel's routes that are not followed, with the reason
    #[arg(long)]
    unfollowed: bool,
    /// With `routes`: show only routes in this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["about", "watch"])]
    prefix: Option<IpNet>,
    /// With `routes`: show only routes with a next hop on this port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["about", "watch"])]
    port: Option<String>,
    /// With `routes`: show only routes of this table; with an address: the table to look it up in [default: main]
    #[arg(long, value_name = "TABLE", value_parser = table, conflicts_with = "watch")]
    table: Option<u32>,
    /// With `drops`: show the first bytes of each packet
    #[arg(long, conflicts_with = "watch")]
    hex: bool,
    /// Repeat every SECONDS (default 1); packet counters are shown as rates
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    watch: Option<u64>,
    /// Print JSON, for programs; names of keys do not change
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

fn table(text: &str) -> Result<u32, String> {
    match text {
        "main" => Ok(MAIN),
        number => number.parse().map_err(|_| "a table is `main` or a number".to_owned()),
    }
}

/// Asks the daemon and prints its answer.
pub fn show(arguments: &ShowArguments, socket: &Path) -> Result<(), Failure> {
    let topic = checked(arguments)?;
    if let Some(seconds) = arguments.watch {
        return watch::watch(socket, topic, Duration::from_secs(seconds));
    }
    if let (Topic::Routes, Some(address)) = (topic, &arguments.about) {
        let address: IpAddr = address.parse().map_err(|_| {
            wrong(&format!("{address:?} is not an address"), "srv6d show routes 2001:db8::1, or --prefix 2001:db8::/32")
        })?;
        return ask::ask(socket, &Request::Match { address, table: arguments.table }, arguments.json);
    }
    if topic == Topic::Workers && !arguments.json {
        return workers(socket);
    }
    let mut response = client::ask(socket, &Request::Show { topic })?;
    match &mut response {
        Response::Refused(refusal) => return Err(ask::refused(refusal)),
        Response::Routes(rows) => rows.retain(|row| is_wanted(arguments, row)),
        Response::Drops(rows) => {
            rows.retain(|row| arguments.about.as_ref().is_none_or(|reason| row.reason == *reason));
            if arguments.hex && !arguments.json {
                return output::print(&show::explain::drops(rows, true));
            }
        }
        _ => {}
    }
    ask::print(&response, arguments.json)?;
    let is_planned = matches!(topic, Topic::Sids | Topic::Routes | Topic::Paths);
    if is_planned && !arguments.json { ask::say_what_waits(socket) } else { Ok(()) }
}

/// Returns the topic, or what does not fit it.
fn checked(arguments: &ShowArguments) -> Result<Topic, Failure> {
    let ShowArguments { topic, about, unfollowed, prefix, port, table, hex, .. } = arguments;
    let filters = prefix.is_some() || port.is_some() || table.is_some();
    match topic {
        Topic::Routes if *hex => Err(wrong("only drops have bytes", "srv6d show drops --hex")),
        Topic::Routes if *unfollowed && (filters || about.is_some()) => {
            Err(wrong("--unfollowed shows all of them", "srv6d show routes --unfollowed"))
        }
        Topic::Routes if *unfollowed => Ok(Topic::Unfollowed),
        Topic::Routes => Ok(Topic::Routes),
        _ if *unfollowed => Err(wrong("only routes can be unfollowed", "srv6d show routes --unfollowed")),
        _ if filters => Err(wrong("--prefix, --port and --table are of routes", "srv6d show routes --table main")),
        Topic::Drops => match about {
            Some(reason) if !srv6d_srv6::DropReason::ALL.iter().any(|known| known.name() == reason) => {
                Err(wrong(&format!("{reason:?} is no drop reason"), "name one that `srv6d show counters` shows"))
            }
            _ => Ok(Topic::Drops),
        },
        _ if *hex => Err(wrong("only drops have bytes", "srv6d show drops --hex")),
        topic if about.is_some() => {
            let name = format!("{topic:?}").to_lowercase();
            Err(wrong(&format!("`show {name}` takes no address or reason"), &format!("srv6d show {name}")))
        }
        topic => Ok(*topic),
    }
}

/// Shows what the workers do in one second.
fn workers(socket: &Path) -> Result<(), Failure> {
    let request = Request::Show { topic: Topic::Workers };
    let ask = || match client::ask(socket, &request)? {
        Response::Refused(refusal) => Err(ask::refused(&refusal)),
        response => Ok(response),
    };
    let (before, asked) = (ask()?, Instant::now());
    std::thread::sleep(A_SECOND);
    output::print(&show::rates::render(&ask()?, Some((&before, asked.elapsed()))))
}

fn wrong(what: &str, fix: &str) -> Failure {
    Failure::invalid(format!("error: {what}\nfix: {fix}"))
}

fn is_wanted(arguments: &ShowArguments, row: &RouteStatus) -> bool {
    let inside = |wanted: &IpNet| row.prefix.parse::<IpNet>().is_ok_and(|prefix| wanted.contains(&prefix));
    arguments.prefix.as_ref().is_none_or(inside)
        && arguments.table.is_none_or(|table| row.table == table)
        && arguments.port.as_ref().is_none_or(|port| row.next_hops.iter().any(|hop| hop.port == *port))
}
