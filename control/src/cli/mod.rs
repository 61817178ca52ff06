//! The command line: one binary is the daemon and the client for all requests to it.

mod ask;
mod check;
mod doctor;
mod dry_run;
mod explain;
mod job;
mod manual;
mod path_server;
mod place;
mod plugin;
mod probe;
mod show;
mod wait;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use srv6d_api::{DEFAULT_SOCKET, Request};
use srv6d_command::{Failure, Privileges, capture, output};
use srv6d_config as config;
use srv6d_daemon::Prepared;
use srv6d_daemon::{self as daemon, kernel};
use srv6d_lab as lab;
use srv6d_sonic_switch::{Sonic, SwitchExtension, cli as sonic};

/// Default path of the configuration.
const DEFAULT_CONFIG: &str = "/etc/srv6d/srv6d.toml";

/// Default of `[host] interface`.
const DEFAULT_HOST_INTERFACE: &str = "srv6d0";

/// SRv6 forwarding in user space over AF_XDP.
#[derive(Debug, Parser)]
#[command(
    name = "srv6d",
    version = env!("SRV6D_VERSION"),
    about = "SRv6 forwarding in user space over AF_XDP",
    long_about = "srv6d forwards SRv6 traffic (uSID carriers, H.Encaps.Red, uN, uA, uDT4/6/46) in user space over \
                  AF_XDP sockets.\n\nWhat it does not claim stays with the kernel, on the very same port: BGP, \
                  neighbour discovery and ssh keep working. When it stops or dies, its ports are the kernel's again.",
    after_help = "First steps:\n  \
                  srv6d doctor                         what stops or slows AF_XDP here\n  \
                  srv6d check srv6d.toml               is the configuration right?\n  \
                  srv6d run --config srv6d.toml        forward, in the foreground\n  \
                  srv6d show ports                     is it forwarding, and in which mode?\n  \
                  srv6d show counters                  where did every packet end?\n\n\
                  Exit status: 0 done, 1 the run failed, 2 wrong usage or invalid configuration.",
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Management socket of the daemon [env: `SRV6D_SOCKET`] [default: /run/srv6d/srv6d.sock; for `run`, the configuration's]
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Forward packets, in the foreground, until SIGTERM or Ctrl-C
    #[command(after_help = "Examples:\n  \
        srv6d run\n  \
        srv6d run --config leaf00.toml --socket /tmp/leaf00.sock\n  \
        RUST_LOG=srv6d=debug srv6d run --config leaf00.toml\n\n\
        SIGHUP reads the configuration again. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, not root;\n\
        with CAP_PERFMON its XDP and tc programs are fast.\n\
        A port whose interface does not exist yet is picked up when it appears.")]
    Run {
        /// Configuration file
        #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
        config: PathBuf,
        /// Ask the controllers, show what would come into force, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Take the configuration from the environment of Jalapeno's plugin
        #[arg(
            long,
            conflicts_with = "config",
            help = "Take the configuration from the environment of Jalapeno's PyTorch plugin (JALAPENO_API_ENDPOINT, \
                    HOSTS, RANK, ...)"
        )]
        plugin_environment: bool,
        #[command(flatten)]
        privileges: Privileges,
    },
    /// Check a configuration without touching anything
    #[command(after_help = "Examples:\n  \
        srv6d check leaf00.toml\n  \
        srv6d check --diff                   what would `srv6d reload` change?\n  \
        srv6d check --offline leaf00.toml    in CI: is the file right, whatever this machine has?\n\n\
        Exit status 2 when the configuration is invalid.")]
    Check {
        /// Configuration file
        #[arg(value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Show what it would change in the running daemon
        #[arg(long)]
        diff: bool,
        /// Check the file for another machine: ports, cores and routes of this one are not read
        #[arg(long, conflicts_with = "diff")]
        offline: bool,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Let the daemon read its configuration again; a bad one changes nothing
    #[command(after_help = "No packet is lost: the new tables take the place of the old ones between two bursts.\n\
        If the file is invalid the old configuration stays in force and the errors are printed here.\n\
        A reload also ends a rollback.")]
    Reload {
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Return to an earlier generation, and stay there until the next reload
    #[command(after_help = "Examples:\n  \
        srv6d show generation                which ones are remembered?\n  \
        srv6d rollback --dry-run             what would the step back change?\n  \
        srv6d rollback && srv6d rollback     two steps back\n  \
        srv6d rollback 12\n\n\
        What comes back is the configuration and the controller's paths of that generation; links, addresses and \
        neighbours are those of now. Controllers are listened to, but not followed, until `srv6d reload`.")]
    Rollback {
        /// Generation to return to [default: the newest one with another configuration or other paths; if repeated: an
        /// older one]
        #[arg(value_name = "GENERATION")]
        generation: Option<u64>,
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Let the daemon ask its path controllers now, instead of at the next interval
    Sync {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Wait until the paths to all peers of the path controllers are in force
    #[command(after_help = "Examples:\n  \
        srv6d wait --peers\n  \
        srv6d wait --peers --timeout 60s && torchrun train.py\n\n\
        The daemon may be about to start. Exit status 1 when time is up: what is missing is named then.")]
    Wait {
        /// Wait for the paths to all peers
        #[arg(long, required = true)]
        peers: bool,
        /// Longest time to wait, e.g. 60s [default: no limit]
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        timeout: Option<Duration>,
    },
    /// A path controller that speaks Jalapeno's API over a topology file, without a database
    #[command(
        long_about = "A path controller on one machine: it reads a fabric from a JSON file, computes paths, and answers \
                      as Jalapeno's API does.\n\nFor labs, tests and small fabrics that do not change by themselves. It \
                      collects nothing: where BGP and BMP feed a Jalapeno, ask that one.",
        after_help = "First steps:\n  \
            srv6d path-server --example > fabric.json            two leaves, two spines, two hosts\n  \
            srv6d path-server --topology fabric.json --check     what is in it, or what is wrong with it\n  \
            srv6d path-server --topology fabric.json             serve, in the foreground\n\n\
            and in another shell:\n  \
            curl -G 'http://[::1]:30800/api/v1/graphs/fabric_graph/shortest_path' \\\n  \
            \x20    -d source=hosts/host00 -d destination=hosts/host01\n\n\
            Every route with its parameters: http://[::1]:30800/docs, /openapi.json. Metrics: /metrics.\n\
            Let a host follow it: `[jalapeno] endpoint = \"http://[::1]:30800\"`, `graph = \"fabric_graph\"`.\n\n\
            A changed file is read again at once, and on SIGHUP; a wrong one changes nothing. What is allocated\n\
            (/shortest_path/load) is kept. SIGTERM and Ctrl-C end it.\n\n\
            Exit status: 0 ended, 1 cannot listen, 2 wrong usage or topology."
    )]
    PathServer(path_server::PathServerArguments),
    /// Place a job's flows on a fabric so that the busiest link carries as little as possible
    #[command(after_help = "Examples:\n  \
        srv6d place --topology fabric.json --pattern ring\n  \
        srv6d place --topology fabric.json --job job.toml --json | jq '.flows[0].placed.carriers'\n  \
        srv6d place --clos 32x32x32 --pattern permutation --svg load.svg\n  \
        srv6d place --clos 4x4x4 --down leaf000,spine001\n\n\
        Beside the placement stands what a hash of each flow's 5-tuple, and what Jalapeno's /load in the order of the \
        flows, would make of the same. Changes nothing anywhere.")]
    Place(place::PlaceArguments),
    /// Place the paths of a whole job, and steer this host's part of its traffic over them
    #[command(after_help = "First steps, on every host:\n  \
        srv6d job start job.toml --host host03       place the job, put this host's paths in force\n  \
        srv6d job wait llm-4711 --timeout 60s        until they are\n  \
        srv6d job show                               ranks, paths, leases, shared links\n  \
        srv6d job replace llm-4711 > again.json      place it again when the fabric has changed\n  \
        srv6d job end llm-4711\n\n\
        srv6d.toml needs `[jobs]` with `allowed_prefixes`. The format of the file: docs/jobs.md.")]
    Job(job::JobArguments),
    /// Show what the daemon has and does
    #[command(after_help = "Examples:\n  \
        srv6d show ports\n  \
        srv6d show paths --json | jq '.[] | {path, packets}'\n  \
        srv6d show ports --watch             packets and bits a second, until Ctrl-C\n  \
        srv6d show workers --watch           how busy is each worker?\n  \
        srv6d show generation                what waits, what was refused, what changed last\n  \
        srv6d show routes 2001:db8::1        the longest match of an address\n  \
        srv6d show drops no_route --hex      the last packets that were dropped for this reason")]
    Show(show::ShowArguments),
    /// Explain what the tables in force do with a packet: every step, and the reason if it is dropped
    #[command(after_help = "Examples:\n  \
        srv6d explain --port eth4 from 2001:db8::1 to fcbb:0:800:2::2 udp 1000 2000\n  \
        srv6d explain --port eth1 from fcbb:0:1::1 to fcbb:0:1000:fe06:: carrying from 2001:db8::1 to 2001:db8::2 icmp\n  \
        srv6d explain --port eth4 --pcap /tmp/eth4.pcap -n 3\n  \
        srv6d explain --port eth4 --hex 33330000...    a frame from its Ethernet header on\n\n\
        It is the walk of the worker's slow path through the daemon's own tables; the fast path and XDP programs come to \
        the same result. Nothing is sent, held or counted.")]
    Explain(explain::ExplainArguments),
    /// Follow a carrier node by node: who answers, which SID was used up there, and the round-trip times
    #[command(after_help = "Examples:\n  \
        srv6d traceroute fcbb:0:1004:1001:1006:fe06::\n  \
        srv6d traceroute fcbb:0:1004:1001:1006:fe06:: --to fcbb:0:800:2::2    through the uDT6, to a host behind it\n  \
        srv6d traceroute fcbb:0:1004:: fcbb:0:1006:: --udp                    two segments in an SRH\n\n\
        Each node on the way shifts the carrier, so traceroute and mtr do not recognize the answers to their probes. This \
        recognizes its own by a random number. It needs CAP_NET_RAW, and no daemon.\n\n\
        Exit status 1 when no probe has arrived.")]
    Traceroute(Box<probe::TracerouteArguments>),
    /// Ping along a carrier: loss and round-trip times
    #[command(after_help = "Examples:\n  \
        srv6d ping fcbb:0:1004:1001:1006::\n  \
        srv6d ping fcbb:0:1004:1001:1006:fe06:: --to fcbb:0:800:2::2 -c 100 -i 10ms\n  \
        srv6d ping fcbb:0:1004:1001:1006:: -c 1000 -i 1ms --json | jq .rtt_ms.p99\n\n\
        ping computes the checksum for the carrier as it is sent, so the last SID would refuse its requests. It needs \
        CAP_NET_RAW, and no daemon. Ctrl-C ends it with the summary.\n\n\
        Exit status 1 when no probe has arrived.")]
    Ping(Box<probe::PingArguments>),
    /// Capture the packets that srv6d receives and sends, on all ports at once, as pcapng
    #[command(after_help = "Examples:\n  \
        srv6d capture | tshark -n -r -                    every port, live\n  \
        srv6d capture Ethernet0 | tcpdump -n -r -\n  \
        srv6d capture eth1 eth2 --direction out -c 100 --write /tmp/out.pcapng\n  \
        srv6d capture --filter 'sid fcbb:0:1004::/48 and not icmp6' | wireshark -k -i -\n  \
        srv6d capture --write /tmp/ring.pcapng --file-size 100 --files 5\n  \
        srv6d capture Ethernet0 --kernel | tcpdump -n -r - 'ip6 proto 41'\n\n\
        Each packet has its port, its direction, and a comment with what became of it: `sent by eth2`, `dropped: no_route`.\n\
        A word of the filter looks at all headers of a packet, outer and inner.\n\n\
        What AF_XDP takes never reaches the kernel's own taps: `tcpdump -i PORT` shows what is left to the kernel, this \
        shows the rest, and --kernel both. Meanwhile workers have what XDP programs forward otherwise \
        (offload = \"xdp\"). Of a packet longer than a buffer the first 3.8 kB are shown. \
        A capture slows its port down; what it cannot keep up with is left out.")]
    Capture(capture::CaptureArguments),
    /// Report what prevents or slows AF_XDP on this machine, each with its fix
    #[command(after_help = "Examples:\n  \
        srv6d doctor\n  \
        srv6d doctor eth1 eth2 --config leaf00.toml\n\n\
        Exit status 1 when something is in the way. Changes nothing.")]
    Doctor {
        /// Interfaces to examine [default: those of the configuration, else every Ethernet interface]
        #[arg(value_name = "INTERFACE")]
        interfaces: Vec<String>,
        /// Configuration whose cores, polling and memory are checked [default: none, one worker that sleeps when idle]
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Run this node as a SONiC switch, by the files of a switch
    #[command(after_help = "Words of the operator's and of lab scripts, with SONiC's own text:\n  \
        srv6d sonic show srv6|interfaces|ip|ipv6|vrf|version|runningconfiguration ...\n  \
        srv6d sonic config|sonic-clear|counterpoll|crm|portstat|srv6stat ...\n  \
        srv6d sonic vtysh|sonic-cfggen|sonic-db-cli|supervisorctl|supervisord|tcpdump ...")]
    Sonic(sonic::SonicArguments),
    /// Run a whole SRv6 fabric on this machine: namespaces, links, a srv6d in every node
    #[command(after_help = "Examples:\n  \
        srv6d lab demo\n  \
        srv6d lab up\n  \
        srv6d lab status\n  \
        srv6d lab exec host00 -- ping -c 3 fcbb:0:800:2::2\n  \
        srv6d lab exec spine01 -- srv6d show sids\n  \
        srv6d lab impair leaf00-spine01 --rate 10Mbit --delay 5ms\n  \
        srv6d lab down")]
    Lab(lab::LabArguments),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
        srv6d completion bash > /usr/share/bash-completion/completions/srv6d\n  \
        srv6d completion zsh > \"${fpath[1]}/_srv6d\"\n  \
        source <(srv6d completion bash)      this shell only")]
    Completion {
        /// Shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages, one for each command
    #[command(after_help = "Examples:\n  \
        srv6d man /usr/local/share/man/man1  then: man srv6d, man srv6d-show, man srv6d.toml\n  \
        srv6d man . && man ./srv6d.1         to read them here\n\n\
        `make install` puts them, completion scripts and the systemd unit where they belong.")]
    Man {
        /// Directory to write them into; it is created if it does not exist
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Remove the interface that a killed daemon left behind, and with it its routes
    #[command(hide = true)]
    Cleanup {
        /// Configuration file, for the name of the interface
        #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
        config: PathBuf,
    },
    /// A command of other tools; says what srv6d has instead
    #[command(hide = true)]
    Trace {
        /// Any arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<String>,
    },
    /// Child process of `run`: removes the daemon's interface when the daemon is killed
    #[command(hide = true)]
    Guard,
}

/// Parses the arguments and carries out the command.
pub fn main() -> ExitCode {
    if let Some(done) = sonic::by_name(std::env::args_os()) {
        return done.map_or_else(Failure::report, |()| ExitCode::SUCCESS);
    }
    let Cli { socket, command } = Cli::try_parse().unwrap_or_else(|why| without_hidden(why).exit());
    let socket = socket.or_else(socket_of_environment);
    let done = match command {
        Command::Run { config, dry_run, plugin_environment, privileges } => {
            run(config, dry_run, plugin_environment, privileges.unconfined, socket)
        }
        Command::Sync { json } => ask::ask(&socket_or_default(socket), &Request::Sync, json),
        Command::Wait { peers: _, timeout } => wait::for_peers(&socket_or_default(socket), timeout),
        Command::PathServer(arguments) => path_server::path_server(&arguments),
        Command::Place(arguments) => place::place(&arguments),
        Command::Sonic(arguments) => sonic::sonic(&arguments, socket),
        Command::Check { file, offline: true, json, .. } => check::offline(&file, json),
        Command::Check { file, diff, json, .. } => check::check(&file, diff.then(|| socket_or_default(socket)), json),
        Command::Trace { .. } => Err(Failure::invalid(
            "error: srv6d has no `trace`\n\
             fix: `srv6d explain` shows the way of one packet, `srv6d capture PORT` shows packets, `srv6d show drops` the \
             last ones that were dropped, and `srv6d show counters` where each of them ended"
                .to_owned(),
        )),
        Command::Reload { dry_run, json } => ask::ask(&socket_or_default(socket), &Request::Reload { dry_run }, json),
        Command::Rollback { generation, dry_run, json } => {
            ask::ask(&socket_or_default(socket), &Request::Rollback { generation, dry_run }, json)
        }
        Command::Job(arguments) => job::job(arguments, &socket_or_default(socket)),
        Command::Show(arguments) => show::show(&arguments, &socket_or_default(socket)),
        Command::Explain(arguments) => explain::explain(&arguments, &socket_or_default(socket)),
        Command::Traceroute(arguments) => probe::traceroute(&arguments, &socket_or_default(socket)),
        Command::Ping(arguments) => probe::ping(&arguments, &socket_or_default(socket)),
        Command::Capture(arguments) => capture::capture(&arguments, &socket_or_default(socket)),
        Command::Doctor { interfaces, config, json } => {
            doctor::doctor(&interfaces, config.as_deref(), socket.as_deref(), json)
        }
        Command::Lab(arguments) => return lab::run(arguments),
        Command::Completion { shell } => completion(shell),
        Command::Man { directory } => manual::write(Cli::command(), &directory),
        Command::Cleanup { config } => cleanup(&config),
        Command::Guard => return kernel::guard::main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Takes the hidden commands out of what a usage error suggests.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let top = Cli::command();
    let all = top.get_subcommands().flat_map(|command| std::iter::once(command).chain(command.get_subcommands()));
    let hidden: Vec<&str> = all.filter(|command| command.is_hide_set()).map(clap::Command::get_name).collect();
    let is_shown = |name: &String| !hidden.contains(&name.as_str());
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let shown: Vec<String> = names.into_iter().filter(is_shown).collect();
        if shown.is_empty() {
            // The suggestion says how to pass the word to a hidden command.
            error.remove(ContextKind::Suggested);
        } else {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
        }
    }
    error
}

fn run(config: PathBuf, dry_run: bool, plugin: bool, unconfined: bool, socket: Option<PathBuf>) -> Result<(), Failure> {
    let asked = socket_or_default(socket.clone());
    if dry_run {
        let (filename, text) = if plugin {
            ("environment".to_owned(), plugin::configuration(&asked)?)
        } else {
            (config.display().to_string(), srv6d_command::read(&config)?)
        };
        return dry_run::dry_run(filename, text, &asked);
    }
    let config = if plugin { plugin::write(&asked)? } else { config };
    Prepared::new(&config, unconfined, socket.as_deref(), Arc::new(SwitchExtension::default()))
        .and_then(|daemon| daemon.run(socket))
        .map_err(Failure::from)
}

/// Reads `SRV6D_SOCKET`. Clap could read it too, but would then print `--socket` in the usage of every mistyped command.
fn socket_of_environment() -> Option<PathBuf> {
    std::env::var_os("SRV6D_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn socket_or_default(socket: Option<PathBuf>) -> PathBuf {
    socket.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET))
}

fn completion(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "srv6d", &mut script);
    output::print_on(&String::from_utf8_lossy(&script)).map(drop)
}

/// Removes the daemon's interface. If the configuration is invalid, the default name is used, so that the interface is
/// removed nevertheless.
fn cleanup(file: &std::path::Path) -> Result<(), Failure> {
    let text = srv6d_text::read_text(file).unwrap_or_default();
    let (config, _) = config::parse_with::<Sonic>(&text, &file.display().to_string()).unwrap_or_default();
    let interface = config.host.interface.as_ref().map_or(DEFAULT_HOST_INTERFACE, |name| name.get_ref());
    daemon::cleanup(interface)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
