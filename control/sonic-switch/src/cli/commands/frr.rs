//! FRR beside srv6d. Where FRR runs, commands that concern it are passed to it.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::node::Node;
use srv6d_command::Failure;

/// Paths of vtysh in Debian and SONiC. A vtysh elsewhere is a link to this program.
const VTYSH: [&str; 2] = ["/usr/bin/vtysh", "/usr/lib/frr/vtysh"];
/// Paths of zebra's socket, which exists while zebra runs.
const ZEBRA: [&str; 2] = ["/run/frr/zebra.vty", "/var/run/frr/zebra.vty"];

/// Returns the path of the real vtysh while zebra runs.
pub fn vtysh(node: &Node) -> Option<PathBuf> {
    if !ZEBRA.iter().any(|socket| node.places.path(socket).exists()) {
        return None;
    }
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let real = |path: PathBuf| std::fs::canonicalize(path).ok().filter(|path| Some(path) != own.as_ref());
    VTYSH.iter().find_map(|path| real(node.places.path(path)))
}

/// Returns whether a daemon of FRR runs: somebody listens on its socket. The socket of a daemon that was killed stays behind.
pub fn runs(node: &Node, daemon: &str) -> bool {
    let listens = |run: &str| UnixStream::connect(node.places.path(&format!("{run}/{daemon}.vty"))).is_ok();
    ["/run/frr", "/var/run/frr"].iter().any(|run| listens(run))
}

/// Returns the daemons for which a configuration has blocks and which do not run: their sockets are missing.
pub fn missing_daemons(node: &Node, configuration: &str) -> Vec<&'static str> {
    const BLOCKS: [(&str, &str); 4] =
        [("router bgp", "bgpd"), ("router isis", "isisd"), ("router ospf6", "ospf6d"), ("router ospf", "ospfd")];
    let runs = |daemon: &str| runs(node, daemon);
    let opens = |block: &str| {
        configuration
            .lines()
            .any(|line| line.strip_prefix(block).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
    };
    BLOCKS.into_iter().filter(|(block, daemon)| opens(block) && !runs(daemon)).map(|(_, daemon)| daemon).collect()
}

/// Replaces this process by the real vtysh. It returns only if that fails.
pub fn become_vtysh(vtysh: &PathBuf, arguments: &[String]) -> Failure {
    let why = Command::new(vtysh).args(arguments).exec();
    Failure::failed(format!("Error: cannot run {}: {why}", vtysh.display()))
}

/// Returns FRR's output of one command.
pub fn ask(vtysh: &PathBuf, command: &str) -> Result<String, Failure> {
    let output = Command::new(vtysh).args(["-c", command]).output();
    let output = output.map_err(|why| Failure::failed(format!("Error: cannot run {}: {why}", vtysh.display())))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
