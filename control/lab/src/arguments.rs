//! The command line of `srv6d lab`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use srv6d_pcap::Wanted;

use super::error::LabError;
use super::experiment::ExperimentArguments;
use super::outage::Failure;
use super::state::RunDirectory;
use super::topology::{Chosen, Routing};
use super::{explain, generated, graph, impair, ring, top, topology_check, traffic};

/// Arguments of `srv6d lab`.
#[derive(Debug, Args)]
pub struct LabArguments {
    #[command(subcommand)]
    pub(super) command: LabCommand,
}

/// Commands of `srv6d lab`.
#[derive(Debug, Subcommand)]
pub(super) enum LabCommand {
    /// Bring a lab up: namespaces, links, a srv6d in every node
    Up {
        /// Topology file; default: the built-in AI fabric of three hosts, three leaves and three spines
        #[arg(long, short, value_name = "FILE")]
        topology: Option<PathBuf>,
        /// Name of the lab; default: the topology's
        #[arg(long, short)]
        name: Option<String>,
        #[command(flatten)]
        chosen: Chosen,
        /// After a failure or Ctrl-C, keep what exists, for inspection; `srv6d lab down` removes it
        #[arg(long)]
        keep: bool,
    },
    /// Show the nodes of a lab, and its emulated links
    Status {
        #[command(flatten)]
        lab: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a node
    Exec {
        #[command(flatten)]
        lab: Which,
        /// Node
        node: String,
        /// Command and its arguments, after `--`
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Take a lab down and clean up
    Down {
        #[command(flatten)]
        lab: Which,
    },
    /// Take a router out of a lab with `--routing bgp`, or let a node drop packets silently, and wait until the others go round
    /// it
    Fail {
        #[command(flatten)]
        lab: Which,
        /// Name of a leaf or spine
        node: String,
        /// How the node fails; `silent` needs no BGP, and hosts that probe their paths (`probes = true`)
        #[arg(long, default_value = "links")]
        how: Failure,
    },
    /// Bring a failed node back - links, routes, programs that do not run - and wait until it is used again
    Repair {
        #[command(flatten)]
        lab: Which,
        /// Name of a leaf, spine or host
        node: String,
    },
    /// End and start the programs of a node, killed ones too: srv6d, and FRR if it has one; wait until it is used again
    Restart {
        #[command(flatten)]
        lab: Which,
        /// Name of a leaf, spine or host, or `controller`
        node: String,
    },
    /// Give a link of a running lab a rate, a delay, losses, a queue or ECN marks; no packet is lost by the change
    ///
    /// `tc` and netem do nothing to what a srv6d forwards, because AF_XDP sends past every qdisc. A setting that is not
    /// given stays as it is.
    #[command(after_help = "Examples:\n  \
        srv6d lab impair leaf00-spine01 --rate 10Mbit --delay 5ms\n  \
        srv6d lab impair leaf00:eth2 --loss 1%        # only what leaf00 sends through eth2\n  \
        srv6d lab impair leaf00-spine01 --clear")]
    Impair {
        #[command(flatten)]
        lab: Which,
        /// A link, such as leaf00-spine01, in both directions; or NODE:PORT, what the node sends through the port
        #[arg(value_name = "LINK|NODE:PORT")]
        link: String,
        #[command(flatten)]
        settings: impair::Settings,
    },
    /// Capture what the srv6d of all nodes receive and send, as one pcapng file
    #[command(after_help = "Examples:\n  \
        srv6d lab capture --write fabric.pcapng\n  \
        srv6d lab capture | wireshark -k -i -\n  \
        srv6d lab capture --node leaf00 --node spine01 --filter 'sid fcbb:0:1006::/48' | tshark -r -\n\n\
        Interfaces are named NODE:PORT. A packet is there once for each port that receives or sends it.")]
    Capture {
        #[command(flatten)]
        lab: Which,
        /// Only this node; may be given several times [default: all nodes]
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<String>,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Show how busy the workers of all nodes are, again and again, the busiest first
    #[command(after_help = "Examples:\n  \
        srv6d lab top\n  \
        srv6d lab top --interval 10 --count 6 > busy.txt")]
    Top {
        #[command(flatten)]
        lab: Which,
        #[command(flatten)]
        pace: top::Pace,
    },
    /// Draw the way of one packet over all nodes, by the tables in force and without sending it; exit status 1 if it does
    /// not arrive
    #[command(after_help = "Examples:\n  \
        srv6d lab explain host00 fcbb:0:800:2::2\n  \
        srv6d lab explain host00 10.200.2.2 --sport 50001     # another flow\n  \
        srv6d lab explain host00 fcbb:0:800:2::2 --json | jq -r '.nodes[].node'")]
    Explain {
        #[command(flatten)]
        lab: Which,
        /// Node whose application sends the packet
        node: String,
        #[command(flatten)]
        packet: explain::Packet,
        /// Print JSON: what each node says, as `srv6d explain --json` has it
        #[arg(long)]
        json: bool,
    },
    /// Show what a fabric does, in less than a minute: pings, TCP, counters, a flow that changes its path
    Demo {
        /// Topology file; default: the built-in AI fabric
        #[arg(long, short, value_name = "FILE")]
        topology: Option<PathBuf>,
        /// Name of the lab during the demonstration
        #[arg(long, short, default_value = "demo")]
        name: String,
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Measure what a job gains: the same all-reduce, with paths chosen in several ways, over links that have a rate
    #[command(after_help = "Examples:\n  \
        srv6d lab job\n  \
        srv6d lab job --rounds 1 --svg job.svg\n\n\
        It takes some minutes. On a machine that is too busy, a result is marked as invalid.")]
    Job {
        /// Number of all-reduces with each way; a step of them is measured
        #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
        rounds: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Write a picture
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        svg: Option<PathBuf>,
    },
    /// Measure what changing a path costs under traffic: srv6d, and the kernel's routes
    Moves {
        /// Number of times that the path changes, for each way of changing it
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        times: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what many switches cost here: memory and idle CPU of each, and the time to bring them up
    Scale {
        /// Number of leaves and spines together
        #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=64))]
        switches: u32,
        /// Number of seconds to watch them without traffic
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
        idle: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare ways of choosing paths: the same traffic and faults on a fabric in virtual time
    #[command(after_help = "Examples:\n  \
        srv6d lab experiment --example > experiment.toml\n  \
        srv6d lab experiment --virtual experiment.toml\n  \
        srv6d lab experiment --virtual --seeds 3 --html experiment.html experiment.toml\n  \
        srv6d lab experiment --virtual --json experiment.toml | jq -r '[.case, .mode, .goodput] | @tsv'\n\n\
        It needs no root and touches nothing. The same file and seeds give the same result.")]
    Experiment(ExperimentArguments),
    /// Print the built-in topology, or one of another size, as a start for a file of your own
    #[command(after_help = "Examples:\n  \
        srv6d lab topology > fabric.toml\n  \
        srv6d lab topology --leaves 4 --spines 2 --hosts 2 > large.toml && sudo srv6d lab up --topology large.toml")]
    Topology {
        /// Print the topology that is built for this routing
        #[arg(long, default_value = "static")]
        routing: Routing,
        #[command(flatten)]
        size: generated::Size,
    },
    /// Print a topology as a graph: for Graphviz, or for Markdown
    #[command(after_help = "Examples:\n  \
        srv6d lab graph | dot -Tsvg > fabric.svg\n  \
        srv6d lab graph --format mermaid --topology fabric.toml")]
    Graph {
        /// Topology file; default: the built-in AI fabric
        #[arg(long, short, value_name = "FILE")]
        topology: Option<PathBuf>,
        /// The topology of this lab, which is up
        #[arg(long, short, conflicts_with = "topology")]
        name: Option<String>,
        #[command(flatten)]
        chosen: Chosen,
        /// Language of the graph
        #[arg(long, default_value = "dot")]
        format: graph::Format,
    },
    /// Senders and receivers of the demonstration
    #[command(hide = true, subcommand)]
    Traffic(Traffic),
}

/// Selects one of the labs that are up.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Name of the lab; not needed while only one is up
    #[arg(long, short)]
    name: Option<String>,
}

/// Senders and receivers.
#[derive(Debug, Subcommand)]
pub(super) enum Traffic {
    /// Receive one connection and hash it
    TcpReceive { listen: SocketAddr },
    /// Send bytes and hash them
    TcpSend { to: SocketAddr, bytes: u64, seed: u64 },
    /// Count a stream of datagrams
    UdpReceive { listen: SocketAddr },
    /// Send a stream of numbered datagrams
    UdpSend(traffic::UdpStream),
    /// Take part in an all-reduce over a ring of TCP connections, and check the sums
    Ring(ring::Rank),
}

impl Which {
    /// Returns the named lab, or the only one that is up.
    ///
    /// # Errors
    /// There is no such lab, or several are up and none is named.
    pub(super) fn running(&self) -> Result<String, LabError> {
        let labs = RunDirectory::labs();
        match (&self.name, labs.as_slice()) {
            (Some(name), _) => topology_check::lab_name(name).map(|()| name.clone()),
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(LabError::Failed("no lab is up\nfix: bring one up with `srv6d lab up`".to_owned())),
            (None, many) => Err(LabError::Invalid(format!(
                "several labs are up: {}\nfix: say which one with --name",
                many.join(", ")
            ))),
        }
    }
}
