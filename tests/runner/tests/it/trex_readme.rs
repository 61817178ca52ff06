//! Runs the commands that `trex-profiles/README.md` gives for the cables and for srv6d. A packet then goes from the
//! place of TRex's port 0 to that of its port 1.
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Hides `/run/netns`. So the namespaces can have the names of the README without a conflict with existing ones.
const APART: &str = "mkdir -p /run/netns && mount -t tmpfs none /run/netns";
/// Sends one uSID packet again and again, until srv6d is ready and the packet comes out shifted.
const PACKET: &str = r"
import socket, time
address = lambda text: socket.inet_pton(socket.AF_INET6, text)
header = lambda hops, to: b'\x60\0\0\0' + b'\0\x08\x11' + bytes([hops]) + address('fcbb:bb00:a::1') + address(to)
udp = bytes.fromhex('c000c00100080000')
sender, receiver = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd)) for _ in range(2))
sender.bind(('t0', 0x86dd)), receiver.bind(('t1', 0x86dd))
receiver.settimeout(0.2)
sent = b'\x02\0\0\0\xdd\0' + b'\x02\0\0\0\xaa\0' + b'\x86\xdd' + header(64, 'fcbb:bb00:1:2::') + udp
expected = b'\x02\0\0\0\xaa\x01' + b'\x02\0\0\0\xdd\x01' + b'\x86\xdd' + header(63, 'fcbb:bb00:2::') + udp
end = time.monotonic() + 60
while time.monotonic() < end:
    sender.send(sent)
    try:
        if receiver.recv(2000) == expected:
            break
    except TimeoutError:
        pass
else:
    raise SystemExit('no packet came out shifted')
";

fn profiles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trex-profiles")
}

/// Returns the command with which the containerlab topology checks whether srv6d forwards.
fn healthcheck() -> String {
    let topology = std::fs::read_to_string(profiles().join("clab/srv6d-trex.clab.yml")).unwrap();
    let command = topology.lines().skip_while(|line| line.trim() != "- CMD-SHELL").nth(1);
    command.unwrap().trim().strip_prefix("- ").unwrap().to_owned()
}

/// Copies the README's configuration of the device under test; on a machine without core 2, applies the change that the
/// README gives for that.
fn give_device(readme: &str, folder: &Path) {
    const UNPIN: &str = "sed -i '/^cores/d' $PROFILES/dut/srv6d.toml";
    assert!(readme.contains(UNPIN), "{readme}");
    std::fs::create_dir_all(folder.join("dut")).unwrap();
    let pinned = std::fs::read_to_string(profiles().join("dut/srv6d.toml")).unwrap();
    assert!(pinned.contains("\n[workers]\ncores = [2]\n"), "{pinned}");
    std::fs::write(folder.join("dut/srv6d.toml"), pinned).unwrap();
    if std::thread::available_parallelism().unwrap().get() < 3 {
        let unpinned = Command::new("sh").args(["-c", UNPIN]).env("PROFILES", folder).status().unwrap();
        assert!(unpinned.success());
    }
}

/// Also checks the health check of the topology: before the start, while srv6d runs, and after a cable has gone down.
#[test]
#[ignore = "needs root"]
fn the_cables_of_the_readme_carry_a_packet_through_srv6d_and_go_away() {
    let profiles = profiles();
    let readme = std::fs::read_to_string(profiles.join("README.md")).unwrap();
    let with = |words: &str| {
        readme
            .split("```bash\n")
            .skip(1)
            .find_map(|rest| rest.split("```").next().filter(|block| block.contains(words)))
    };
    let (cables, away) = (with("ip netns add trex").unwrap(), with("ip netns del").unwrap());
    let folder = std::env::temp_dir().join(format!("srv6d-trex-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    symlink(env!("CARGO_BIN_EXE_srv6d-under-test"), folder.join("srv6d")).unwrap();
    std::fs::write(folder.join("packet.py"), PACKET).unwrap();
    give_device(&readme, &folder);
    let packet = "ip netns exec trex python3 $FOLDER/packet.py";
    let nothing = "[ -z \"$(ip netns list)\" ]";
    let healthy = "sh -c \"$HEALTHY\"";
    let cut = format!("ip -n trex link set t1 down && timeout 30 sh -c 'while {healthy}; do sleep 0.1; done'");
    let script = format!(
        "{APART}\n{healthy} && exit 1\n{cables}\n\
         {packet} && srv6d show ports && {healthy} && {cut} && {{\n{away}\n}} && wait && {nothing}"
    );
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "bash", "-c", &script])
        .env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()))
        .env("PROFILES", &folder)
        .env("FOLDER", &folder)
        .env("HEALTHY", healthcheck())
        .env("SRV6D_SOCKET", folder.join("socket"))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}", said.join("\n"));
    assert!(said.iter().any(|said| said.contains("eth2")), "{}", said.join("\n"));
}

#[test]
fn every_block_of_the_readme_can_be_pasted() {
    let readme = std::fs::read_to_string(profiles().join("README.md")).unwrap();
    for block in readme.split("```").skip(1).step_by(2) {
        let (language, lines) = block.split_once('\n').unwrap();
        for prompt in ["# ", "$ ", "> ", "trex>"] {
            assert!(!lines.lines().any(|line| line.starts_with(prompt)), "a prompt:\n{lines}");
        }
        if language == "bash" {
            assert!(Command::new("bash").args(["-n", "-c", lines]).status().unwrap().success(), "{lines}");
        }
    }
}
