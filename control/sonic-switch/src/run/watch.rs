//! The thread beside the daemon: it watches for files, waits for interfaces, and finds out whether the switch is ready.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use srv6d_text::read_text;
use tracing::{error, info, warn};

use super::{RunOptions, SourceFiles, Used, answers, start, write};
use crate::{Places, SwitchConfig};
use srv6d_api::{Request, Response, Topic, client};
use srv6d_config::{OneHop, Sid, SidBehavior, Spanned};
use srv6d_daemon::kernel;

/// Time between two looks: while something is waited for, and afterwards.
const SOON: Duration = Duration::from_millis(200);
const LATER: Duration = Duration::from_secs(1);

pub(super) fn watch(options: &RunOptions, mut used: Used, stop: &AtomicBool) {
    let mut waiting = Waiting { since: Instant::now(), told: String::new(), over: false };
    let mut ready = false;
    while !stop.load(Ordering::Relaxed) {
        reap();
        if answers_once(options) {
            take_new_files(options, &mut used);
            if !ready {
                ready = say_if_ready(options, &used, &mut waiting);
            }
        }
        rest(if ready { LATER } else { SOON }, stop);
    }
}

/// Sleeps for `time` in short steps, so that the process can end soon after `stop` is set.
fn rest(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(SOON);
    }
}

fn answers_once(options: &RunOptions) -> bool {
    options.socket().exists() && answers(&options.socket())
}

/// Reaps ended processes. The first process of a container becomes the parent of the processes that its shells leave
/// behind.
fn reap() {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    if std::process::id() == 1 {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
    }
}

/// Takes a new file that has precedence over the one in use, or the first one at all, as `config load` would. A file
/// that only changes is not taken: a switch reads its files when it is told to.
fn take_new_files(options: &RunOptions, used: &mut Used) {
    let places = &options.places;
    let now = (SourceFiles::config_db(places), SourceFiles::frr(places));
    // A refused file is tried again once it has changed.
    let news = match &used.refused {
        Some(refused) => *refused != now,
        None => {
            !now.0.same_paths(&used.config_db) && !now.0.is_empty() || !now.1.same_paths(&used.frr) && !now.1.is_empty()
        }
    };
    if !news {
        return;
    }
    // These files are the switch's own configuration: they were stored where none was, and perhaps the running
    // configuration has changed since. They are not new.
    if is_own(&now.0, &used.config_db, &places.saved_config_db()) && is_own(&now.1, &used.frr, &places.saved_frr()) {
        (used.config_db, used.frr, used.refused) = (now.0, now.1, None);
        return;
    }
    match take(options, used, &now) {
        Ok(()) => {
            (used.config_db, used.frr, used.refused) = (now.0, now.1, None);
            used.tell(places);
        }
        Err(why) => {
            error!("the new files are refused, the switch stays as it is:\n{why}");
            used.refused = Some(now);
        }
    }
}

/// Whether these are the same files as before, or those that `config save` has made of the running configuration.
fn is_own(now: &SourceFiles, used: &SourceFiles, saved: &Path) -> bool {
    now.same_paths(used) || now.text().is_ok_and(|text| read_text(saved).is_ok_and(|saved| saved == text))
}

/// Takes only the file that is new. The other one may have been changed by hand, and stays.
fn take(options: &RunOptions, used: &Used, now: &(SourceFiles, SourceFiles)) -> Result<(), String> {
    let places = &options.places;
    let _turn = crate::lock(&places.running_config_db()).map_err(|why| why.to_string())?;
    let before = [places.running_config_db(), places.running_frr()].map(|file| (read_text(&file), file));
    let (db, frr) = (&now.0, &now.1);
    let is_new = |now: &SourceFiles, used: &SourceFiles| !now.same_paths(used);
    let db = Some(db).filter(|now| is_new(now, &used.config_db));
    let frr = Some(frr).filter(|now| is_new(now, &used.frr));
    let put = start::put(options, db, frr).map_err(|why| why.to_string()).and_then(|checked| checked);
    let taken = put.and_then(|()| reload(&options.socket()));
    if taken.is_err() {
        for (text, file) in before {
            if let Err(why) = text.and_then(|text| write(&file, &text)) {
                warn!("cannot restore {}: {why}", file.display());
            }
        }
    }
    taken
}

fn reload(socket: &Path) -> Result<(), String> {
    match client::ask(socket, &Request::Reload { dry_run: false }) {
        Ok(Response::Refused(refusal)) => Err(refusal.errors.join("\n")),
        Ok(Response::Reloaded(reloaded)) => {
            for finding in reloaded.warnings.iter().chain(&reloaded.pending) {
                warn!("{finding}");
            }
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

/// State of the wait for interfaces and SIDs, and the last text that was reported.
struct Waiting {
    since: Instant,
    told: String,
    over: bool,
}

impl Waiting {
    fn tell(&mut self, places: &Places, what: String) {
        if self.told != what {
            info!("not ready: {what}");
            let _ = write(&places.status(), &format!("{what}\n")); // the file only informs; an error is ignored
            self.told = what;
        }
    }
}

/// Writes the file that says that the switch is ready, once the switch forwards by its SIDs.
fn say_if_ready(options: &RunOptions, used: &Used, waiting: &mut Waiting) -> bool {
    let places = &options.places;
    let (what, ready) = match state(options, used, waiting) {
        Err(missing) => {
            waiting.tell(places, missing);
            return false;
        }
        Ok(what) => (what, places.ready()),
    };
    if let Err(why) = write(&ready, &format!("{what}\n")) {
        waiting.tell(places, format!("cannot write {}: {why}", ready.display()));
        return false;
    }
    let _ = write(&places.status(), "ready\n"); // the file only informs; an error is ignored
    info!("switch ready: {what}");
    true
}

fn state(options: &RunOptions, used: &Used, waiting: &mut Waiting) -> Result<String, String> {
    if used.config_db.is_empty() && used.frr.is_empty() {
        return Err("no config_db.json and no frr.conf is there yet".to_owned());
    }
    if used.refused.is_some() {
        return Err("a file is refused, see the log".to_owned());
    }
    let file = options.places.daemon_config();
    let text = read_text(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let interfaces = kernel::interfaces();
    let config = crate::configuration(&text, &file.display().to_string(), Some(&interfaces))
        .map_err(|errors| errors.to_string())?;
    let present = crate::count_ports(&interfaces);
    wait_for_interfaces(options, present, waiting)?;
    let expected = sids(&config);
    let known = match client::ask(&options.socket(), &Request::Show { topic: Topic::Sids }) {
        Ok(Response::Sids(rows)) => rows.into_iter().map(|row| row.sid).collect(),
        Ok(_) => BTreeSet::new(),
        Err(why) => return Err(why.to_string()),
    };
    if let Some(missing) = expected.difference(&known).next() {
        return Err(format!("SID {missing} is not in the dataplane"));
    }
    Ok(format!("{} SIDs, {present} ports", known.len()))
}

fn wait_for_interfaces(options: &RunOptions, present: usize, waiting: &mut Waiting) -> Result<(), String> {
    let wanted = options.interfaces;
    if present >= wanted || waiting.over {
        return Ok(());
    }
    if waiting.since.elapsed() < options.patience {
        return Err(format!("{present} of {wanted} interfaces (CLAB_INTFS) are there"));
    }
    waiting.over = true;
    warn!(
        "{present} of {wanted} interfaces (CLAB_INTFS) have appeared within {} s: going on with those; the others are \
         taken when they appear",
        options.patience.as_secs()
    );
    Ok(())
}

/// Returns the SIDs that need neither a neighbour that has not been seen yet nor a port that does not exist.
fn sids(read: &SwitchConfig) -> BTreeSet<String> {
    let Some(switch) = read.files.as_ref().map(|files| &files.switch) else { return BTreeSet::new() };
    let is_there = |hop: &OneHop| {
        let port = hop.port.as_ref().and_then(|port| switch.port(port.get_ref()));
        hop.via.is_some() && port.is_some_and(|port| port.present)
    };
    let resolved = |sid: &&Sid| *sid.behavior.get_ref() != SidBehavior::UA || is_there(&sid.hop);
    let sids = read.config.sids.iter().map(Spanned::get_ref).filter(resolved);
    sids.map(|sid| sid.sid.get_ref().trunc().to_string()).collect()
}

/// The reason why a switch is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// There is no process.
    #[error("srv6d is not running: nothing answers on {0}")]
    NotRunning(String),
    /// The process is running and waits for something.
    #[error("not ready: {0}")]
    Waits(String),
}

/// Returns what a ready switch has, as the text that `srv6d sonic ready` prints.
///
/// # Errors
/// The switch is not ready.
pub fn readiness(places: &Places, socket: &Path) -> Result<String, NotReady> {
    if !answers(socket) {
        return Err(NotReady::NotRunning(socket.display().to_string()));
    }
    let line = |file: &Path| read_text(file).map(|text| text.trim().to_owned());
    line(&places.ready())
        .map_err(|_| NotReady::Waits(line(&places.status()).unwrap_or_else(|_| "it has just begun".to_owned())))
}
