//! Says which commit a release is built from, makes the manual page of the configuration, and passes two options to the
//! linker, which make the program smaller.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    manual_page()?;
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    // A development build does not say it, so that a commit does not build the program anew.
    let commit = if is("PROFILE", "release") { commit() } else { None };
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=SRV6D_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
    // rustc links with its own lld on this target only. Other linkers may not know the options.
    let has_lld = is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !has_lld || !is("PROFILE", "release") {
        return Ok(());
    }
    // Equal functions, of which generic code has many, are kept once.
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    if glibc().is_some_and(|version| version >= (2, 36)) {
        // A relocation takes a few bits instead of 24 bytes. The loader of older libraries cannot read that.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    Ok(())
}

/// Writes srv6d.toml(5), which says what the reference of the configuration says.
fn manual_page() -> Result<(), Box<dyn std::error::Error>> {
    const REFERENCE: &str = "../docs/configuration.md";
    println!("cargo::rerun-if-changed={REFERENCE}");
    let reference = fs::read_to_string(REFERENCE)?;
    let head = srv6d_manual::Head {
        name: "srv6d.toml",
        section: 5,
        about: "configuration of srv6d",
        version: concat!("srv6d ", env!("CARGO_PKG_VERSION")),
    };
    let page = Path::new(&env::var("OUT_DIR")?).join("srv6d.toml.5");
    Ok(fs::write(page, srv6d_manual::page(head, &reference))?)
}

/// Returns the short name of the commit that is checked out. Sources without a repository have none.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // This file gets a line with each commit and checkout. One that is missing would count as changed each time.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns the version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
