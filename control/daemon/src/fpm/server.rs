//! The listening socket, one connection, and the table of the routes announced on it.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use srv6d_fpm::{Decoded, Dialect, Event, FrameReader, Ignored, Message, Resolved, Rib, Vrf, decode, messages};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tracing::{error, info, warn};

use super::answers::Answers;
use super::{InForce, Settings, Snapshot, Status};
use crate::kernel::STEERING_TABLE;

/// Messages are handled together after a pause of this length.
const SETTLE: Duration = Duration::from_millis(2);
/// The longest time for which messages are collected if there is no such pause.
const STREAM: Duration = Duration::from_millis(20);
/// Planning takes at most 1 / `PLAN_SHARE` of the time, however fast routes change.
const PLAN_SHARE: u32 = 3;
/// Time until listening on a refused address is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);
/// Number of bytes read at a time, and number of reads before other tasks get their turn.
const READ: usize = 64 * 1024;
const READS: usize = 16;

/// Number of kinds of ignored messages that are counted separately; further kinds are counted together.
const KINDS: usize = 32;
/// Number of unusable next-hop objects that are shown with their reasons.
const SHOWN: usize = 8;

/// Serves until the other end of `settings` is dropped.
pub fn run_on_this_thread(
    settings: watch::Receiver<Settings>,
    publish: watch::Sender<Arc<Snapshot>>,
    report: watch::Sender<Status>,
    planned: mpsc::UnboundedReceiver<InForce>,
) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(settings, publish, report, planned)),
        Err(why) => error!("fpm: cannot start: {why}"),
    }
}

async fn run(
    settings: watch::Receiver<Settings>,
    publish: watch::Sender<Arc<Snapshot>>,
    report: watch::Sender<Status>,
    planned: mpsc::UnboundedReceiver<InForce>,
) {
    let mut server = Server {
        settings,
        publish,
        report,
        planned,
        rib: Rib::default(),
        connection: None,
        answers: Answers::default(),
        status: Status::default(),
        changes: Changes::default(),
        sid_routes: 0,
    };
    while server.settings.has_changed().is_ok() {
        let address = server.settings.borrow_and_update().listen;
        match TcpListener::bind(address).await {
            Ok(listener) => {
                info!("fpm: waiting for zebra on {address}");
                server.refused(None);
                server.serve(&listener).await;
            }
            Err(why) => {
                server.refused(Some(format!("cannot listen on {address}: {why}")));
                tokio::select! {
                    () = sleep(LISTEN_AGAIN) => {}
                    _ = server.settings.changed() => {}
                }
            }
        }
    }
}

/// The connection to zebra.
struct Connection {
    stream: TcpStream,
    frames: FrameReader,
}

/// State of the announced changes that are not planned yet.
#[derive(Default)]
struct Changes {
    /// The times of the first and the last change since the last snapshot.
    first: Option<Instant>,
    last: Option<Instant>,
    /// When the snapshot that is now being planned was published.
    planning: Option<Instant>,
    /// No snapshot is published before this time, so that the control loop can do other work.
    rest: Option<Instant>,
    /// The routes that the last plan left out.
    in_force: InForce,
}

impl Changes {
    fn note(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Returns when the changes are to be published.
    fn due(&self) -> Option<Instant> {
        let (first, last) = (self.first?, self.last?);
        let due = (last + SETTLE).min(first + STREAM);
        self.planning.is_none().then(|| self.rest.map_or(due, |rest| rest.max(due)))
    }
}

struct Server {
    settings: watch::Receiver<Settings>,
    publish: watch::Sender<Arc<Snapshot>>,
    report: watch::Sender<Status>,
    planned: mpsc::UnboundedReceiver<InForce>,
    rib: Rib,
    connection: Option<Connection>,
    answers: Answers,
    status: Status,
    changes: Changes,
    /// Number of SIDs that came as routes.
    sid_routes: usize,
}

impl Server {
    fn refused(&mut self, why: Option<String>) {
        if let Some(why) = why.as_ref().filter(|_| self.status.not_listening != why) {
            warn!("fpm: {why}; it is tried again");
        }
        self.status.not_listening = why;
        self.report();
    }

    /// Serves connections until the settings change.
    async fn serve(&mut self, listener: &TcpListener) {
        let settings = self.settings.borrow().clone();
        self.rib.set_limits(settings.limits);
        loop {
            let stale = [self.rib.sweep_due(settings.stale_time), self.rib.age_due(settings.restart_time)];
            let due = stale.into_iter().chain([self.changes.due()]).flatten().min();
            tokio::select! {
                _ = self.settings.changed() => return self.end("the configuration of [fpm] has changed"),
                accepted = listener.accept() => self.accept(accepted, &settings).await,
                ready = ready(self.connection.as_ref(), self.answers.pending()) => self.exchange(ready),
                Some(in_force) = self.planned.recv() => self.in_force(in_force),
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => self.act(&settings),
            }
            self.report();
        }
    }

    /// Accepts a connection. A newer connection replaces an older one: zebra was restarted, and the end of its old
    /// connection has not been noticed.
    async fn accept(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>, settings: &Settings) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                warn!("fpm: {why}");
                return sleep(Duration::from_millis(100)).await;
            }
        };
        if let Err(why) =
            stream.local_addr().map_err(|why| why.to_string()).and_then(|ours| settings.admission.check(ours, peer))
        {
            return self.turn_away(why);
        }
        self.end("a newer connection has replaced it");
        // A delayed answer delays zebra's announcement of the route.
        let _ = stream.set_nodelay(true);
        info!("fpm: {peer} is connected");
        self.connection = Some(Connection { stream, frames: FrameReader::default() });
        self.rib.connected(Instant::now());
        self.status.peer = Some(peer);
        self.status.since = Some(SystemTime::now());
        self.status.counts.connections += 1;
        self.status.dialect = settings.dialect;
    }

    /// Refuses a peer. The existing connection stays.
    fn turn_away(&mut self, why: String) {
        if self.status.counts.turned_away == 0 {
            warn!("fpm: turned away: {why}; the number of further ones is in `srv6d show source`");
        }
        self.status.counts.turned_away += 1;
        self.status.counts.last_turned_away = Some(why);
    }

    fn end(&mut self, why: &str) {
        if self.connection.take().is_none() {
            return;
        }
        self.rib.disconnected(Instant::now());
        self.answers.forget();
        info!("fpm: the connection has ended, {why}; {} routes stay until they are announced again", self.rib.len());
        self.status.peer = None;
        self.status.since = Some(SystemTime::now());
        self.status.last_error = Some(why.to_owned());
    }

    fn exchange(&mut self, ready: io::Result<()>) {
        let exchanged = ready.and_then(|()| self.send()).map_err(|why| why.to_string());
        if let Err(why) = exchanged.and_then(|()| self.receive()) {
            self.end(&why);
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        while self.answers.pending() {
            let bytes = self.answers.bytes(&self.rib);
            match connection.stream.try_write(bytes) {
                Ok(sent) => self.answers.sent(sent),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) => return Err(why),
            }
        }
        self.status.counts.answers = self.answers.written;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut buffer = vec![0; READ];
        for _ in 0..READS {
            let Some(connection) = &mut self.connection else { return Ok(()) };
            match connection.stream.try_read(&mut buffer) {
                Ok(0) => return Err("zebra has closed it".to_owned()),
                Ok(read) => connection.frames.push(buffer.get(..read).unwrap_or_default()),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) => return Err(why.to_string()),
            }
            self.frames()?;
        }
        Ok(())
    }

    fn frames(&mut self) -> Result<(), String> {
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        let read = loop {
            match connection.frames.next_frame() {
                Ok(None) => break Ok(()),
                Ok(Some(payload)) => {
                    if let Some(why) = messages(payload).find_map(|message| message.map(|m| self.message(m)).err()) {
                        break Err(why);
                    }
                }
                Err(why) => break Err(why),
            }
        };
        self.connection = Some(connection);
        read.map_err(|why| {
            warn!("fpm: {why}");
            why.to_string()
        })
    }

    fn message(&mut self, message: Message<'_>) {
        self.status.counts.messages += 1;
        match decode(message) {
            Ok(decoded) => self.said(decoded),
            Err(why) => {
                if self.status.counts.malformed == 0 {
                    warn!("fpm: cannot read a message of type {}: {why}", message.kind);
                }
                self.status.counts.malformed += 1;
                self.status.counts.last_malformed = Some(format!("type {}: {why}", message.kind));
            }
        }
    }

    fn said(&mut self, Decoded { event, dialect, unknown_attributes }: Decoded) {
        let now = Instant::now();
        self.status.counts.unknown_attributes += u64::from(unknown_attributes);
        if self.settings.borrow().dialect.is_none() && self.status.dialect != Some(Dialect::Sonic) {
            self.status.dialect = dialect.or(self.status.dialect);
        }
        if self.is_own(&event) {
            return;
        }
        match &event {
            Event::Ignored(kind) => {
                self.count(*kind);
                return;
            }
            Event::RouteGone(key) => self.answers.withdrawn(key),
            _ => {}
        }
        self.changes.note(now);
        let announced = if let Event::Route(key, _) = &event { Some(*key) } else { None };
        self.rib.apply(event, now);
        if let Some(key) = announced.filter(|key| self.rib.has_route(key)) {
            self.answers.announced(key, self.publish.borrow().serial + 1);
        }
    }

    fn count(&mut self, kind: Ignored) {
        let ignored = &mut self.status.counts.ignored;
        let name = kind.to_string();
        let name = if ignored.len() < KINDS || ignored.contains_key(&name) { name } else { "other types".to_owned() };
        *ignored.entry(name).or_default() += 1;
    }

    /// Whether the event is about a route of srv6d's own table, which zebra finds in the kernel.
    fn is_own(&self, event: &Event) -> bool {
        let (Event::Route(key, _) | Event::RouteGone(key)) = event else { return false };
        key.vrf == Vrf::Number(STEERING_TABLE) && self.status.dialect != Some(Dialect::Sonic)
    }

    /// Does what is due: first the removal of stale routes, then the snapshot.
    fn act(&mut self, settings: &Settings) {
        let now = Instant::now();
        if self.rib.sweep_due(settings.stale_time).is_some_and(|due| due <= now) {
            let swept = self.rib.sweep();
            info!("fpm: {swept} routes are removed: they were not announced again");
            self.status.counts.swept += swept as u64;
            self.changes.note(now);
        }
        let aged = self.rib.age_out(now, settings.restart_time);
        if aged > 0 {
            info!(
                "fpm: {aged} routes are removed: no peer was connected for {}",
                humantime::format_duration(settings.restart_time)
            );
            self.status.counts.swept += aged as u64;
            self.changes.note(now);
        }
        if self.changes.due().is_some_and(|due| due <= now) {
            self.publish(now);
        }
    }

    fn publish(&mut self, now: Instant) {
        (self.changes.first, self.changes.last) = (None, None);
        self.status.counts.waiting = self.rib.waiting();
        let unusable = self.rib.unusable_next_hops(SHOWN).into_iter();
        self.status.counts.unusable_next_hops = unusable.map(|(id, why)| format!("{id}: {why}")).collect();
        let known = self.publish.borrow().clone();
        let snapshot = Snapshot {
            serial: known.serial,
            dialect: self.status.dialect,
            routes: self.rib.routes().collect(),
            sids: self.rib.sids().map(|(prefix, sid)| (prefix, sid.clone())).collect(),
        };
        self.sid_routes = snapshot.routes.iter().filter(|route| matches!(route.what, Resolved::Sid(_))).count();
        if snapshot == *known {
            // The contents are the same as before, so the same routes are in force.
            let in_force = InForce { serial: known.serial + 1, ..self.changes.in_force.clone() };
            return self.answers.planned(&in_force, &self.rib);
        }
        self.changes.planning = Some(now);
        self.publish.send_replace(Arc::new(Snapshot { serial: known.serial + 1, ..snapshot }));
    }

    fn in_force(&mut self, in_force: InForce) {
        if let Some(begin) = self.changes.planning.take_if(|_| in_force.serial == self.publish.borrow().serial) {
            self.changes.rest = Some(Instant::now() + begin.elapsed() * (PLAN_SHARE - 1));
        }
        self.answers.planned(&in_force, &self.rib);
        self.changes.in_force = in_force;
    }

    fn report(&mut self) {
        self.status.counts.sids = self.rib.sid_count() + self.sid_routes;
        self.status.counts.routes = self.rib.len().saturating_sub(self.status.counts.sids);
        self.status.counts.next_hops = self.rib.next_hops();
        self.status.counts.stale = self.rib.stale();
        let refused = self.rib.refused();
        if self.status.counts.refused == 0
            && let Some(why) = &refused.last
        {
            warn!("fpm: refused: {why}; the number of further ones is in `srv6d show source`");
        }
        self.status.counts.refused = refused.count;
        self.status.counts.last_refused.clone_from(&refused.last);
        self.report.send_replace(self.status.clone());
    }
}

/// Waits until bytes can be read, or until there is room for the bytes to be sent.
async fn ready(connection: Option<&Connection>, to_send: bool) -> io::Result<()> {
    let Some(connection) = connection else { return pending().await };
    let interest = if to_send { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    connection.stream.ready(interest).await.map(drop)
}
