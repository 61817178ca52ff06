//! Where a container of a switch has its files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Who changes the running configuration takes turns with the others, until the file is closed. `config_db`: its path.
///
/// # Errors
/// The file beside it cannot be made or locked.
pub fn lock(config_db: &Path) -> io::Result<File> {
    let file = File::create(config_db.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Paths below a root directory: `/`, or another one in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    root: PathBuf,
}

impl Places {
    /// Everything below `root`.
    pub fn below(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        // Fails only for an empty path, or where the working directory is gone.
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()) }
    }

    /// A path of the container.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// A path as it is called inside of the container.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest))
            .display()
            .to_string()
    }

    /// Directory of everything that is made at run time.
    pub fn run(&self) -> PathBuf {
        self.path("/run/srv6d")
    }

    /// The running configuration: CONFIG_DB.
    pub fn running_config_db(&self) -> PathBuf {
        self.run().join("sonic/config_db.json")
    }

    /// The running configuration: FRR's.
    pub fn running_frr(&self) -> PathBuf {
        self.run().join("sonic/frr.conf")
    }

    /// What `config save` has stored last of the first.
    pub fn saved_config_db(&self) -> PathBuf {
        self.run().join("sonic/saved/config_db.json")
    }

    /// What `config save` has stored last of the second.
    pub fn saved_frr(&self) -> PathBuf {
        self.run().join("sonic/saved/frr.conf")
    }

    /// The daemon's configuration, which names those two.
    pub fn daemon_config(&self) -> PathBuf {
        self.run().join("srv6d.toml")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.run().join("srv6d.sock")
    }

    /// Exists while the SIDs are in the dataplane; says how many.
    pub fn ready(&self) -> PathBuf {
        self.run().join("ready")
    }

    /// What is waited for until then.
    pub fn status(&self) -> PathBuf {
        self.run().join("status")
    }
}
