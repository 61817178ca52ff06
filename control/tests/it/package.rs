//! Tests of packaging: the Debian package goes into a clean root and leaves no trace; the container of the `DaemonSet` has the capabilities that
//! it needs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::lab::{SRV6D, text};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns every file and directory below a root, but for what dpkg keeps for itself.
fn everything_in(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.starts_with(root.join("var/lib/dpkg")) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_owned());
        }
    }
    found
}

fn dpkg(root: &Path, arguments: &[&str]) {
    let run = Command::new("dpkg")
        .arg("--root")
        .arg(root)
        // There is no shell in a root that is empty, and none of the packages that this one depends on.
        .args(["--force-script-chrootless", "--force-depends"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(run.status.success(), "dpkg {arguments:?}: {}{}", text(&run.stdout), text(&run.stderr));
}

#[test]
#[ignore = "needs root"]
fn the_package_goes_into_a_clean_root_and_leaves_no_trace() {
    if !["dpkg-deb", "dpkg-shlibdeps"].iter().all(|tool| srv6d_netns::has(tool)) {
        eprintln!("SKIPPED: dpkg-dev is not installed");
        return;
    }
    let scratch = Scratch(std::env::temp_dir().join(format!("srv6d-package-{}", std::process::id())));
    let (built, root) = (scratch.0.join("target"), scratch.0.join("root"));
    fs::create_dir_all(built.join("release")).unwrap();
    fs::copy(SRV6D, built.join("release/srv6d")).unwrap();
    let made = Command::new(format!("{REPOSITORY}/scripts/make-deb"))
        .arg(&scratch.0)
        .env("CARGO_TARGET_DIR", &built)
        .env("DEBFULLNAME", "A Tester")
        .env("DEBEMAIL", "tester@example.org")
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}{}", text(&made.stdout), text(&made.stderr));
    let package = text(&made.stdout).lines().last().unwrap().to_owned();

    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let before = everything_in(&root);
    dpkg(&root, &["--install", &package]);
    let installed = everything_in(&root);
    for file in [
        "usr/bin/srv6d",
        "lib/systemd/system/srv6d.service",
        "usr/share/man/man1/srv6d-run.1.gz",
        "usr/share/man/man5/srv6d.toml.5.gz",
        "usr/share/bash-completion/completions/srv6d",
        "usr/share/doc/srv6d/copyright",
        "usr/share/doc/srv6d/docs/configuration.md",
        "usr/share/srv6d/grafana.json",
    ] {
        assert!(installed.contains(Path::new(file)), "{file} is missing");
    }
    let unit = fs::read_to_string(root.join("lib/systemd/system/srv6d.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/srv6d run"), "{unit}");
    let version = Command::new(root.join("usr/bin/srv6d")).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    assert!(version.starts_with(concat!("srv6d ", env!("CARGO_PKG_VERSION"))), "{version}");
    // What an operator and the daemon leave behind goes, too.
    for file in ["etc/srv6d/srv6d.toml", "var/lib/private/srv6d/jalapeno.json"] {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    dpkg(&root, &["--purge", "srv6d"]);
    for parent in ["etc", "var/lib/private"] {
        fs::remove_dir(root.join(parent)).unwrap();
    }
    assert_eq!(everything_in(&root), before);
}

/// Returns what stands in brackets behind a key of a YAML file.
fn listed<'t>(yaml: &'t str, key: &str) -> &'t str {
    yaml.split_once(&format!("{key}: [")).unwrap().1.split_once(']').unwrap().0
}

#[test]
fn the_configuration_of_the_daemonset_is_right() {
    let yaml = fs::read_to_string(format!("{REPOSITORY}/packaging/kubernetes/daemonset.yaml")).unwrap();
    let (_, behind) = yaml.split_once("  srv6d.toml: |\n").unwrap();
    let lines = behind.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let scratch = Scratch(std::env::temp_dir().join(format!("srv6d-configmap-{}", std::process::id())));
    fs::create_dir_all(&scratch.0).unwrap();
    let file = scratch.0.join("srv6d.toml");
    fs::write(&file, lines.map(|line| line.trim_start().to_owned() + "\n").collect::<String>()).unwrap();
    let checked = Command::new(SRV6D).args(["check", "--offline"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

/// What a container of the `DaemonSet` has: its capabilities, and `/proc/sys` read-only. `COMMAND` is the container's.
const CONTAINER: &str = r#"
ip link set lo up && ip link add eth1 type veth peer name far && ip link set far up && ip link set eth1 up || exit
ip address add fcbb:0:800::2/64 dev eth1 nodad || exit
mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys || exit
setpriv --bounding-set -all,$CAPABILITIES --inh-caps -all,$CAPABILITIES sh -c "$COMMAND" &
for _ in $(seq 100); do srv6d show process --socket "$SOCKET" && break; sleep 0.2; done
kill $!; wait $!
"#;

#[test]
#[ignore = "needs root"]
fn the_daemonset_has_the_capabilities_that_it_needs_and_srv6d_keeps_four() {
    let yaml = fs::read_to_string(format!("{REPOSITORY}/packaging/kubernetes/daemonset.yaml")).unwrap();
    let capabilities: Vec<String> =
        listed(&yaml, "add").split(", ").map(|name| format!("+{}", name.to_lowercase())).collect();
    let scratch = Scratch(std::env::temp_dir().join(format!("srv6d-daemonset-{}", std::process::id())));
    fs::create_dir_all(&scratch.0).unwrap();
    let (file, socket) = (scratch.0.join("srv6d.toml"), scratch.0.join("srv6d.sock"));
    let api = format!("[api]\nsocket = {:?}\nmetrics = \"off\"\n", socket.display().to_string());
    fs::write(&file, api + "[[port]]\nname = \"eth1\"\n[[route]]\nprefix = \"fcbb::/32\"\nvia = \"fcbb:0:800::1\"\n")
        .unwrap();
    let command = listed(&yaml, "command").split('"').nth(1).unwrap();
    let command = command.replace("/etc/srv6d/srv6d.toml", file.to_str().unwrap());
    assert!(command.contains(file.to_str().unwrap()), "{command}");
    let path = Path::new(SRV6D).parent().unwrap().display().to_string() + ":" + &std::env::var("PATH").unwrap();
    let output = Command::new("timeout")
        .args([
            "60",
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            CONTAINER,
        ])
        .envs([("PATH", path), ("COMMAND", command), ("CAPABILITIES", capabilities.join(","))])
        .env("SOCKET", &socket)
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("setpriv: apply capabilities") {
        return println!("SKIPPED: this user may not have {}", capabilities.join(", "));
    }
    let kept = said.lines().find(|line| line.starts_with("capabilities"));
    assert_eq!(kept, Some("capabilities  CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON"), "{said}");
    assert!(said.contains("1 ports attached"), "{said}");
}
