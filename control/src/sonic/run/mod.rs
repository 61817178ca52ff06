//! `srv6d sonic run`: the process of a container that is a switch.
//!
//! ```text
//! /var/sonic, /etc/sonic, /etc/frr, ... ─copied─► /run/srv6d/sonic/{config_db.json, frr.conf} ─► the daemon
//!              a file that appears later ──► the same, and a reload
//! ```
//!
//! The daemon runs at once, with what is there; a thread beside it looks after files, waits for interfaces, and says
//! when the switch is ready.

mod found;
mod start;
mod watch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use srv6d_controller::replace_file;
use tracing::{info, warn};

use super::Places;
use crate::api::{Request, client, server};
use crate::confine::keep_of_this_thread;
use crate::daemon::{self, Prepared, RunError};
use found::Found;

pub use watch::{NotReady, readiness};

/// What is told to a container of a switch.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where its files are.
    pub places: Places,
    /// The daemon's socket; `None`: `/run/srv6d/srv6d.sock` below the root.
    pub socket: Option<PathBuf>,
    /// Interfaces to wait for: `CLAB_INTFS`. 0: those that are there.
    pub interfaces: usize,
    /// How long they are waited for.
    pub patience: Duration,
    /// Refuse what SONiC's own models and daemons refuse.
    pub strict: bool,
    /// Keep the privileges that it was started with.
    pub unconfined: bool,
}

impl RunOptions {
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.places.socket())
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The switch runs already, the run directory cannot be written, or as [`Prepared::new`] and [`Prepared::run`].
pub fn run(options: &RunOptions) -> Result<(), RunError> {
    daemon::log_to_stderr();
    let places = &options.places;
    let what = "write below /run/srv6d (run as root, or name another directory with --root)";
    let written = |why| RunError::System { what, why };
    // Before anything is written: the files are those of the switch that runs.
    server::remove_stale(&options.socket())?;
    // Of a process that was killed.
    remove(&places.ready()).and_then(|()| remove(&places.status())).map_err(written)?;
    let used = start::prepare(options).map_err(written)?;
    let prepared = Prepared::new(&places.daemon_config(), options.unconfined)?;
    let stop = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (options, stop) = (options.clone(), Arc::clone(&stop));
        std::thread::Builder::new().name("srv6d-files".to_owned()).spawn(move || {
            if !options.unconfined {
                // It looks at interfaces, and changes none.
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
    let _ = remove(&places.ready()); // a next start does it as well
    ended
}

/// The texts of the two files as they are stored now: what a switch would start with. `None`: there is none.
///
/// # Errors
/// One that is there cannot be read.
pub fn stored_files(places: &Places) -> Result<(Option<String>, Option<String>), String> {
    let text = |found: Found| if found.is_empty() { Ok(None) } else { found.text().map(Some) };
    Ok((text(Found::config_db(places))?, text(Found::frr(places))?))
}

/// Removes a file that may be gone already.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all: somebody may be reading it.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    replace_file(file, text.as_bytes())
}

/// The files that are the running configuration, and those that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Used {
    config_db: Found,
    frr: Found,
    /// The same as of a refusal: not tried again before something changes.
    refused: Option<(Found, Found)>,
}

impl Used {
    /// Tells which files they are.
    fn tell(&self, places: &Places) {
        let (config_db, frr) = self.refused.clone().unwrap_or_default();
        for (what, found, refused) in
            [("CONFIG_DB", &self.config_db, config_db), ("FRR's configuration", &self.frr, frr)]
        {
            if !found.is_empty() {
                info!("{what}: {}", found.shown(places));
            } else if refused.is_empty() {
                info!("{what}: no file yet; one that appears is taken");
            } else {
                let refused = refused.shown(places);
                warn!(
                    "{what}: {refused} is refused, as said above; `srv6d sonic check` says all that is wrong with it"
                );
            }
        }
    }
}

/// Whether the daemon of these places runs.
fn answers(socket: &Path) -> bool {
    client::ask(socket, &Request::Show { topic: crate::api::Topic::Generation }).is_ok()
}
