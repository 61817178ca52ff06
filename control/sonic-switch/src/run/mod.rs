//! `srv6d sonic run`: the main process of a container that is a switch.
//!
//! ```text
//! /var/sonic, /etc/sonic, /etc/frr, ... ─copied─► /run/srv6d/sonic/{config_db.json, frr.conf} ─► the daemon
//!              a file that appears later ──► the same, and a reload
//! ```
//!
//! The daemon starts at once with the files that exist. A thread beside it watches for files, waits for interfaces, and
//! reports when the switch is ready.

mod found;
mod start;
mod watch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use srv6d_text::replace_file;
use tracing::{info, warn};

use super::{Places, SwitchExtension};
use found::SourceFiles;
use srv6d_api::{Request, client, server};
use srv6d_daemon::confine::keep_of_this_thread;
use srv6d_daemon::{self as daemon, Prepared, RunError};

pub use watch::{NotReady, readiness};

/// Options of a switch's container.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Paths of its files.
    pub places: Places,
    /// Path of the daemon's socket. `None`: `/run/srv6d/srv6d.sock` below the root.
    pub socket: Option<PathBuf>,
    /// Number of interfaces to wait for: `CLAB_INTFS`. 0: only those that exist are used.
    pub interfaces: usize,
    /// Time to wait for the interfaces.
    pub patience: Duration,
    /// Whether to refuse what SONiC's own models and daemons refuse.
    pub strict: bool,
    /// Whether to keep the privileges with which it was started.
    pub unconfined: bool,
}

impl RunOptions {
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.places.socket())
    }
}

/// Runs the switch until SIGTERM or SIGINT.
///
/// # Errors
/// The switch is running already, the run directory cannot be written, or an error of [`Prepared::new`] or
/// [`Prepared::run`].
pub fn run(options: &RunOptions) -> Result<(), RunError> {
    daemon::log_to_stderr();
    let places = &options.places;
    let what = "write below /run/srv6d (run as root, or name another directory with --root)";
    let written = |why| RunError::System { what, why };
    // This comes before anything is written: the files may belong to a switch that is running.
    server::remove_stale(&options.socket())?;
    // These may be left from a process that was killed.
    remove(&places.ready()).and_then(|()| remove(&places.status())).map_err(written)?;
    let used = start::prepare(options).map_err(written)?;
    let prepared = Prepared::new(
        &places.daemon_config(),
        options.unconfined,
        Some(&options.socket()),
        Arc::new(SwitchExtension::default()),
    )?
    .with_client_inside();
    let stop = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (options, stop) = (options.clone(), Arc::clone(&stop));
        std::thread::Builder::new().name("srv6d-files".to_owned()).spawn(move || {
            if !options.unconfined {
                // The thread reads interfaces and changes none.
                keep_of_this_thread(&[]);
            }
            watch::watch(&options, used, &stop);
        })
    };
    if let Err(why) = &watcher {
        warn!("cannot watch for files, nor say when the switch is ready: {why}");
    }
    let ended = prepared.run(Some(options.socket()));
    stop.store(true, Ordering::Relaxed);
    if let Ok(watcher) = watcher {
        let _ = watcher.join(); // its panic has been printed
    }
    let _ = remove(&places.ready()); // the next start removes it as well
    ended
}

/// Returns the texts of the two files as they are stored now, with which a switch would start. `None`: the file does
/// not exist.
///
/// # Errors
/// A file that exists cannot be read.
pub fn stored_files(places: &Places) -> Result<(Option<String>, Option<String>), String> {
    let text = |found: SourceFiles| if found.is_empty() { Ok(None) } else { found.text().map(Some) };
    Ok((text(SourceFiles::config_db(places))?, text(SourceFiles::frr(places))?))
}

/// Removes a file. It is no error if it is gone already.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Writes a file completely or not at all, because another process may be reading it.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    replace_file(file, text.as_bytes())
}

/// The files that make up the running configuration, and those that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Used {
    config_db: SourceFiles,
    frr: SourceFiles,
    /// The files that were refused. They are not tried again before something changes.
    refused: Option<(SourceFiles, SourceFiles)>,
}

impl Used {
    /// Logs which files are in use.
    fn tell(&self, places: &Places) {
        let (config_db, frr) = self.refused.clone().unwrap_or_default();
        for (what, found, refused) in
            [("CONFIG_DB", &self.config_db, config_db), ("FRR's configuration", &self.frr, frr)]
        {
            if !found.is_empty() {
                info!("{what}: {}", found.shown(places));
            } else if refused.is_empty() {
                info!("{what}: no file yet; it is read as soon as there is one");
            } else {
                let refused = refused.shown(places);
                warn!(
                    "{what}: {refused} is refused, as said above; `srv6d sonic check` says all that is wrong with it"
                );
            }
        }
    }
}

/// Whether a daemon answers on this socket.
fn answers(socket: &Path) -> bool {
    client::ask(socket, &Request::Show { topic: srv6d_api::Topic::Generation }).is_ok()
}
