//! Test of the Debian package: it is built, installed into a clean root, and removed again without a trace.
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
