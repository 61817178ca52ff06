//! TRex's client library in its own virtual environment, and runs of the profiles with it.
//!
//! The client contains a patched scapy under the GPL: it is a tool of this test, and nothing is linked with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The client that works with TRex v3.04 and later, which runs on Python 3.10 and 3.11 only; and a parser for the files
/// of its server.
const PACKAGES: [&str; 2] = ["lbr-trex-client==3.4.0", "PyYAML==6.0.2"];
const PYTHONS: [&str; 3] = ["python3.11", "python3.10", "python3"];

/// Reason why the client cannot be used on this machine.
pub struct Unavailable(pub String);

/// Returns the directory `trex-profiles/`.
pub fn profiles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trex-profiles")
}

/// TRex's client library, installed.
#[derive(Clone)]
pub struct Client {
    python: PathBuf,
}

impl Client {
    /// Finds the library, and installs it if it is missing.
    pub fn find() -> Result<Self, Unavailable> {
        virtual_environment(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("trex-client")).map(|python| Self { python })
    }

    /// Runs a program of `trex-profiles/tests`. If the program fails, the error is what it printed.
    pub fn run(&self, program: &str, arguments: &[&OsStr]) -> Result<(), String> {
        let mut command = Command::new(&self.python);
        let output = command.arg(profiles().join("tests").join(program)).args(arguments).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    }

    /// Validates every profile and writes its packets into a folder.
    pub fn export(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        self.run("validate.py", &["--export".as_ref(), folder.as_ref()])?;
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        Ok(files)
    }
}

/// Returns the configuration that `dut/many` prints.
pub fn many(prefixes: u32, back: bool) -> String {
    let mut command = Command::new("python3");
    command.arg(profiles().join("dut/many")).args(["--prefixes", &prefixes.to_string()]);
    if back {
        command.arg("--back");
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Returns the Python of the virtual environment with the client installed. The environment is made once and reused by
/// later runs.
fn virtual_environment(at: &Path) -> Result<PathBuf, Unavailable> {
    let python = at.join("bin/python");
    let usable = |python: &Path| {
        let imported = Command::new(python).args(["-c", "import yaml, lbr_trex_client, trex.stl.api"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    if usable(&python) {
        return Ok(python);
    }
    let base = PYTHONS.iter().find(|name| is_supported(name));
    let base = base.ok_or_else(|| Unavailable("Python 3.10 or 3.11 is missing".to_owned()))?;
    let made = run(Command::new(base).args(["-m", "venv", "--clear"]).arg(at))?;
    require(&made, "python3 -m venv (Debian: python3-venv)")?;
    let installed = run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    require(&installed, &format!("pip install {}", PACKAGES.join(" ")))?;
    Ok(python)
}

fn is_supported(python: &str) -> bool {
    let version = Command::new(python).args(["-c", "import sys; print(sys.version_info[1])"]).output();
    version.is_ok_and(|output| matches!(text(&output).trim(), "10" | "11"))
}

fn run(command: &mut Command) -> Result<Output, Unavailable> {
    command.output().map_err(|why| Unavailable(format!("{}: {why}", command.get_program().display())))
}

fn require(output: &Output, what: &str) -> Result<(), Unavailable> {
    if output.status.success() { Ok(()) } else { Err(Unavailable(format!("{what} failed: {}", text(output).trim()))) }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
