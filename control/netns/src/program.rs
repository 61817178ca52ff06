//! Programs of the system.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::Error;

/// What to do if a program is missing.
pub(crate) const FIX: &str = "fix: install it: `sudo apt-get install iproute2 iputils-ping ethtool`";

/// Returns the command for a program of the system.
pub fn tool(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).stdin(Stdio::null());
    command
}

/// Lets a Ctrl-C in the terminal reach only this process, which then ends the command itself or lets it finish.
pub fn in_own_group(mut command: Command) -> Command {
    command.process_group(0);
    command
}

/// Returns the command for `ip` that changes something, and that a Ctrl-C does not end half way.
pub(crate) fn ip() -> Command {
    in_own_group(tool("ip"))
}

/// Returns true if the program is installed.
pub fn has(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|directory| directory.join(program).is_file())
}

/// Returns the search path with the `sbin` directories, which `su` without a login shell leaves out.
fn search_path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Runs a command to its end and returns its output.
///
/// # Errors
/// It cannot be run. [`Error::Refused`]: it failed; the text has its error output.
pub fn run(command: &mut Command) -> Result<String, Error> {
    let shown = [command.get_program()].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy);
    let shown = shown.collect::<Vec<_>>().join(" ");
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| Error::Failed(format!("cannot run {program}: {why}\n{FIX}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(format!("`{shown}` failed ({}): {}", output.status, complaint.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test may panic")]
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_known_before_it_is_wanted() {
        assert!(has("sh") && !has("srv6d-no-such-program"));
    }

    #[test]
    fn a_missing_program_and_one_that_fails_are_told_apart() {
        let missing = run(&mut tool("srv6d-no-such-program")).unwrap_err();
        assert!(matches!(&missing, Error::Failed(why) if why.contains("fix: ")), "{missing}");
        let failed = run(tool("sh").args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert!(matches!(&failed, Error::Refused(why) if why.contains("no")), "{failed}");
    }
}
