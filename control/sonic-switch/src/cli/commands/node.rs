//! The switch that a command is about: its two files and its daemon.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use srv6d_sonic::{Severity, Switch};
use srv6d_sonic_cli::config_db::ConfigDb;
use srv6d_text::read_text;

use crate::{Places, Sonic};
use srv6d_api::client::{self, AskError};
use srv6d_api::state::{GenerationView, NeighborStatus, PathStatus, PortStatus, RouteStatus, SidStatus};
use srv6d_api::{Request, Response, Topic};
use srv6d_command::Failure;
use srv6d_config as config;
use srv6d_daemon::kernel;

/// How long to wait for the daemon. Scripts configure a container that has just been started.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// A switch on this machine.
pub struct Node {
    pub places: Places,
    /// Path of the socket as the user named it. `None`: the switch's own path.
    socket: Option<PathBuf>,
}

/// Paths of the running configuration.
struct Files {
    config_db: PathBuf,
    frr: PathBuf,
}

/// The running configuration, which a command may change.
pub struct Running {
    pub config_db: ConfigDb,
    pub frr: String,
    /// The switch that both files describe before the change.
    pub switch: Switch,
}

fn failed(what: &str, file: &Path, why: &io::Error) -> Failure {
    Failure::failed(format!("Error: cannot {what} {}: {why}", file.display()))
}

impl Node {
    pub fn below(root: &Path, socket: Option<PathBuf>) -> Self {
        Self { places: Places::below(root), socket }
    }

    pub fn asked_socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.places.socket())
    }

    /// Returns the files of `srv6d sonic run` if they exist, otherwise those that the daemon's own configuration names.
    fn files(&self) -> Result<Files, Failure> {
        let own = Files { config_db: self.places.running_config_db(), frr: self.places.running_frr() };
        if own.config_db.exists() {
            return Ok(own);
        }
        let named = self.generation().ok().and_then(|daemon| {
            let file = PathBuf::from(daemon.config);
            let (_, sonic) = config::parse_with::<Sonic>(&read_text(&file).ok()?, &daemon.node).ok()?;
            let sonic = sonic?;
            let directory = file.parent().unwrap_or(Path::new(""));
            let path = |name: &Option<toml::Spanned<PathBuf>>| name.as_ref().map(|name| directory.join(name.get_ref()));
            Some(Files { config_db: path(&sonic.config_db)?, frr: path(&sonic.frr).unwrap_or(own.frr) })
        });
        named.ok_or_else(|| {
            let missing = self.places.running_config_db();
            Failure::failed(format!(
                "Error: no switch runs here: there is no {}\nstart it with `srv6d sonic run`",
                missing.display()
            ))
        })
    }

    /// Reads the running configuration.
    pub fn running(&self) -> Result<Running, Failure> {
        read(&self.files()?)
    }

    /// Reads the switch that the running configuration describes.
    pub fn switch(&self) -> Result<Switch, Failure> {
        Ok(self.running()?.switch)
    }

    /// Changes the running configuration and makes the daemon take it over. If the daemon refuses the change, it is
    /// undone.
    pub fn change<T>(&self, change: impl FnOnce(&mut Running) -> Result<T, Failure>) -> Result<T, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let files = loop {
            match self.files() {
                Err(_) if Instant::now() < deadline => sleep(PAUSE),
                found => break found?,
            }
        };
        let _turn = crate::lock(&files.config_db).map_err(|why| failed("lock", &files.config_db, &why))?;
        let mut running = read(&files)?;
        let before = (running.config_db.clone(), running.frr.clone());
        let done = change(&mut running)?;
        if before == (running.config_db.clone(), running.frr.clone()) {
            return Ok(done);
        }
        let texts = [&files.config_db, &files.frr].map(|file| (file, read_text(file).unwrap_or_default()));
        let put = |config_db: &str, frr: &str| write(&files.config_db, config_db).and_then(|()| write(&files.frr, frr));
        let taken = put(&running.config_db.to_text(), &running.frr).and_then(|()| self.reload(deadline));
        if taken.is_err() {
            for (file, text) in texts {
                write(file, &text)?;
            }
        }
        taken.map(|()| done)
    }

    fn reload(&self, deadline: Instant) -> Result<(), Failure> {
        loop {
            match client::ask(&self.socket(), &Request::Reload { dry_run: false }) {
                Err(AskError::NotRunning { .. }) if Instant::now() < deadline => sleep(PAUSE),
                Err(why) => return Err(why.into()),
                Ok(Response::Refused(refusal)) => {
                    let why = refusal.errors.join("\n");
                    return Err(Failure::invalid(format!("Error: nothing was changed: the switch refuses it\n{why}")));
                }
                Ok(_) => return Ok(()),
            }
        }
    }

    fn ask(&self, topic: Topic) -> Result<Response, Failure> {
        match client::ask(&self.socket(), &Request::Show { topic })? {
            Response::Refused(refusal) => Err(Failure::failed(format!("Error: {}", refusal.errors.join("\n")))),
            answer => Ok(answer),
        }
    }

    pub fn sids(&self) -> Result<Vec<SidStatus>, Failure> {
        match self.ask(Topic::Sids)? {
            Response::Sids(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    pub fn neighbors(&self) -> Result<Vec<NeighborStatus>, Failure> {
        match self.ask(Topic::Neighbors)? {
            Response::Neighbors(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    pub fn ports(&self) -> Result<Vec<PortStatus>, Failure> {
        match self.ask(Topic::Ports)? {
            Response::Ports(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    pub fn routes(&self) -> Result<Vec<RouteStatus>, Failure> {
        match self.ask(Topic::Routes)? {
            Response::Routes(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    pub fn paths(&self) -> Result<Vec<PathStatus>, Failure> {
        match self.ask(Topic::Paths)? {
            Response::Paths(rows) => Ok(rows),
            _ => Err(unexpected()),
        }
    }

    pub fn generation(&self) -> Result<GenerationView, Failure> {
        match self.ask(Topic::Generation)? {
            Response::Generation(view) => Ok(*view),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> Failure {
    Failure::failed("Error: the daemon answered something else than it was asked")
}

fn read(files: &Files) -> Result<Running, Failure> {
    let text = read_text(&files.config_db).map_err(|why| failed("read", &files.config_db, &why))?;
    let frr = match read_text(&files.frr) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|why| failed("read", &files.frr, &why))?,
    };
    let wrong = |why: String| Failure::failed(format!("Error: {}: {why}", files.config_db.display()));
    let config_db = ConfigDb::parse(&text).map_err(|why| wrong(why.to_string()))?;
    let switch = switch(&text, &frr).map_err(wrong)?;
    Ok(Running { config_db, frr, switch })
}

/// Returns the switch that two texts describe on this machine.
pub fn switch(config_db: &str, frr: &str) -> Result<Switch, String> {
    let interfaces = kernel::interfaces();
    srv6d_sonic::read(Some(config_db), Some(frr), Some(&interfaces), false)
        .map(|reading| reading.switch)
        .map_err(|findings| findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Writes a file completely or not at all, because another process may be reading it. A file that is bind-mounted into
/// a container cannot be replaced by another one (rename(2): EBUSY), so that one is written in place.
pub fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
    let written = directory.and_then(|()| match srv6d_text::replace_file(file, text.as_bytes()) {
        Err(why) if why.kind() == io::ErrorKind::ResourceBusy => fs::write(file, text),
        written => written,
    });
    written.map_err(|why| match why.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Failure::failed(format!(
            "Error: cannot write {}: it is read-only; bind it into the container without `:ro`",
            file.display()
        )),
        _ => failed("write", file, &why),
    })
}

/// Returns the lines of an frr.conf that are meant for srv6d and cannot be read, in order.
pub fn unread_lines(frr: &str) -> Vec<String> {
    let findings = match srv6d_sonic::read(None, Some(frr), None, false) {
        Ok(reading) => reading.findings,
        Err(findings) => findings,
    };
    let bad = |finding: &&srv6d_sonic::Finding| matches!(finding.severity, Severity::Ignored | Severity::Error);
    findings.iter().filter(bad).map(ToString::to_string).collect()
}

/// Whether two texts of frr.conf describe the same switch.
pub fn same_switch(one: &str, other: &str) -> bool {
    let read = |frr| srv6d_sonic::read(None, Some(frr), None, false).map(|reading| reading.switch);
    read(one) == read(other)
}
