//! Paths of the files in a switch's container.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Locks the running configuration until the returned file is closed, so that only one process changes it at a time.
/// `config_db` is the path of the configuration. A link in the place of the lock file is not followed.
///
/// # Errors
/// The lock file beside it cannot be made or locked.
pub fn lock(config_db: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(config_db.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Paths below a root directory, which is `/` except in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    root: PathBuf,
}

impl Places {
    /// Makes all paths lie below `root`.
    pub fn below(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        // This fails only for an empty path, or if the working directory has been deleted.
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()) }
    }

    /// Returns where a path of the container is.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Returns the name that a path has inside the container.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest))
            .display()
            .to_string()
    }

    /// Returns the directory of all files that are made at run time.
    pub fn run(&self) -> PathBuf {
        self.path("/run/srv6d")
    }

    /// Returns the path of the running configuration's CONFIG_DB.
    pub fn running_config_db(&self) -> PathBuf {
        self.run().join("sonic/config_db.json")
    }

    /// Returns the path of the running configuration's frr.conf.
    pub fn running_frr(&self) -> PathBuf {
        self.run().join("sonic/frr.conf")
    }

    /// Returns the path of the CONFIG_DB that `config save` has last stored.
    pub fn saved_config_db(&self) -> PathBuf {
        self.run().join("sonic/saved/config_db.json")
    }

    /// Returns the path of the frr.conf that `config save` has last stored.
    pub fn saved_frr(&self) -> PathBuf {
        self.run().join("sonic/saved/frr.conf")
    }

    /// Returns the path of the daemon's configuration, which names the files of the running configuration.
    pub fn daemon_config(&self) -> PathBuf {
        self.run().join("srv6d.toml")
    }

    /// Returns the path of the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.run().join("srv6d.sock")
    }

    /// Returns the path of the file that exists while the SIDs are in the dataplane. It says how many there are.
    pub fn ready(&self) -> PathBuf {
        self.run().join("ready")
    }

    /// Returns the path of the file that says what the switch is waiting for until it is ready.
    pub fn status(&self) -> PathBuf {
        self.run().join("status")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::fs;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("srv6d-lock-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (config_db, victim) = (directory.join("config_db.json"), directory.join("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, directory.join("config_db.lock")).unwrap();
        lock(&config_db).unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(directory.join("config_db.lock")).unwrap();
        drop(lock(&config_db).unwrap());
        lock(&config_db).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }
}
