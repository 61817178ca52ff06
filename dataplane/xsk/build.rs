//! Compiles the XDP programs with clang into `OUT_DIR`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    match ["claim", "tags", "offload"].into_iter().try_for_each(compile) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("srv6d-xsk: {message}");
            ExitCode::FAILURE
        }
    }
}

fn compile(name: &str) -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let (source, object) = (format!("bpf/{name}.c"), out.join(format!("{name}.o")));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let done = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debian keeps <asm/types.h> in the multiarch directory.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
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
