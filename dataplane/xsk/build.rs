//! Compiles the XDP programs with clang into `OUT_DIR`, with the rows of the tables as a header.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    match compile_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srv6d-xsk: {message}");
            ExitCode::FAILURE
        }
    }
}

fn compile_all() -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let header = out.join("fib.h");
    fs::write(&header, srv6d_fib::c_header()).map_err(|why| format!("{}: {why}", header.display()))?;
    ["claim", "tags", "offload"].into_iter().try_for_each(|name| compile(name, &out))
}

fn compile(name: &str, out: &Path) -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let (source, object) = (format!("bpf/{name}.c"), out.join(format!("{name}.o")));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let done = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps <asm/types.h> in the multiarch directory.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .arg("-I")
        .arg(out)
        .args(["-c", &source, "-o"])
        .arg(&object)
        .output()
        .map_err(|why| {
            format!(
                "cannot run `{clang}` to compile the XDP program {source}: {why}. \
                 Fix: apt-get install clang, or set CLANG to a clang that has the bpf target."
            )
        })?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "`{clang}` could not compile {source}. If a <linux/...> or <asm/...> header is missing: \
         apt-get install linux-libc-dev. It said:\n{}",
        String::from_utf8_lossy(&done.stderr)
    ))
}
