//! Compiles the BPF programs of generator, sink and in-kernel DUTs with clang into `OUT_DIR/traffic.o`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=bpf/traffic.c");
    println!("cargo:rerun-if-changed=bpf/bpf.h");
    println!("cargo:rerun-if-env-changed=CLANG");
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srv6d-bench-net: {message}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let done = Command::new(&clang)
        // v3 is needed for atomic operations that return the old value.
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps <asm/types.h> in the multiarch directory.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .args(["-c", "bpf/traffic.c", "-o"])
        .arg(out.join("traffic.o"))
        .output()
        .map_err(|why| {
            format!(
                "cannot run `{clang}` to compile bpf/traffic.c: {why}. \
                 Fix: apt-get install clang, or set CLANG to a clang that has the bpf target."
            )
        })?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "`{clang}` could not compile bpf/traffic.c. If a <linux/...> or <asm/...> header is missing: \
         apt-get install linux-libc-dev. It said:\n{}",
        String::from_utf8_lossy(&done.stderr)
    ))
}
