//! `srv6d sonic install-words DIR`: makes links to this binary under the names of the commands that scripts call.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::Command;
use srv6d_command::{Failure, output};

/// Arguments of `srv6d sonic install-words`.
#[derive(Debug, Args)]
pub struct InstallArguments {
    /// Directory of the search path for commands
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// What the links point to [default: this program]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    target: Option<PathBuf>,
}

/// Makes a link for each command. A file of that name that is no link is kept and causes an error, because it belongs
/// to another program.
pub fn install(arguments: &InstallArguments) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let failed = |what: &Path, why: io::Error| {
        let fix = "run as root, or name a directory that you may write to";
        Failure::failed(format!("error: cannot make {}: {why}\nfix: {fix}", what.display()))
    };
    fs::create_dir_all(directory).map_err(|why| failed(directory, why))?;
    let target = match &arguments.target {
        Some(target) => target.clone(),
        None => std::env::current_exe().map_err(|why| failed(Path::new("this program"), why))?,
    };
    for (name, _) in Command::ALL {
        let link = directory.join(name);
        match fs::symlink_metadata(&link) {
            Ok(metadata) if metadata.is_symlink() => fs::remove_file(&link).map_err(|why| failed(&link, why))?,
            Ok(_) => {
                let what = format!("error: {} exists and is no link: choose another directory", link.display());
                return Err(Failure::failed(what));
            }
            Err(_) => {}
        }
        symlink(&target, &link).map_err(|why| failed(&link, why))?;
    }
    output::print(&format!("{} links to {} in {}\n", Command::ALL.len(), target.display(), directory.display()))
}
