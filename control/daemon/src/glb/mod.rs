//! `[glb]`: heartbeats, by which this node and its neighbours tell each other how busy their ports are.
//!
//! ```text
//! workers' counters ─► Sampler ─► Sender ─► a socket for each port with a neighbour
//! a socket for each port ─► Peers ─► Judge ─► FarPorts ─► workers, without a lock
//! Samplers, Peers ─► Publishers ─► Links ─► control loop: weights by capacity
//! ```
//!
//! A thread of its own does all of this in ticks, so neither the control loop nor a worker waits for it, and nobody can make
//! it read more than a bounded number of datagrams in a tick. It keeps no privilege.

mod beats;
mod port;
mod socket;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use srv6d_api::state::GlbView;
use srv6d_dataplane::{Dataplane, PortTraffic};
use srv6d_heartbeat::Key;
use srv6d_plan::{Environment, Plan};
use srv6d_srv6::desired::{Desired, Emulation, Links, Metric, PortId};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::confine::keep_of_this_thread;
use beats::Beats;
use socket::Socket;

/// Longest secret of a key, in bytes.
const LONGEST_SECRET: usize = 1024;

/// The task of the thread.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    glb: srv6d_plan::Glb,
    rate_weight: u8,
    profiles: Vec<BTreeSet<u32>>,
    ports: Vec<WantedPort>,
    /// Links to look at for weights. `None`: no weights follow from capacities.
    weighing: Option<Weighing>,
}

/// One port with its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedPort {
    name: String,
    /// Kernel index of the device. `None`: it does not exist.
    ifindex: Option<u32>,
    /// Node at the other end, and the number by which workers find its state.
    neighbor: Option<(u32, u8)>,
    up: bool,
    /// Bits per second, if they are known.
    rate: Option<u64>,
    /// Bytes in the queue that count as a full one. 0: the queue is not known.
    full_queue: u64,
    is_emulated: bool,
}

/// The links that weights by capacity depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weighing {
    /// Nodes behind neighbours.
    nodes: BTreeSet<Ipv4Addr>,
    /// Whether loads count, too. This includes the loads of this node's own ports.
    loads: bool,
}

/// The heartbeats of this node, if `[glb]` is configured.
#[derive(Debug, Default)]
pub struct Glb {
    running: Option<Running>,
    links: watch::Sender<Arc<Links>>,
}

#[derive(Debug)]
struct Running {
    told: Option<Wanted>,
    beats: Arc<Mutex<Beats>>,
    thread: Option<JoinHandle<()>>,
    /// Why the key cannot be used. In that case nothing is sent or believed.
    key_trouble: Option<String>,
}

impl Glb {
    /// Starts, changes or ends the heartbeats according to the state in force. It does nothing if that has not changed.
    pub fn follow(&mut self, plan: &Plan, environment: &Environment, dataplane: &Dataplane) {
        let Some(glb) = &plan.glb else {
            self.running = None;
            tell(&self.links, Links::default());
            return;
        };
        let wanted = wanted(glb, dataplane.desired(), environment);
        let links = &self.links;
        let running = self.running.get_or_insert_with(|| Running::start(dataplane, links.clone()));
        if running.told.as_ref() == Some(&wanted) && !running.beats().lacks_sockets() {
            return;
        }
        if running.told.as_ref().is_none_or(|told| told.glb.key != wanted.glb.key) {
            running.read_key(&wanted);
        }
        let traffic = |port: &WantedPort| dataplane.traffic(&port.name, port.is_emulated);
        running.configure(wanted, traffic);
    }

    /// Returns the channel that tells about links that weights follow from.
    pub fn links(&self) -> watch::Receiver<Arc<Links>> {
        self.links.subscribe()
    }

    /// Reads the key again, because its file may have changed.
    pub fn read_key(&mut self) {
        if let Some(running) = &mut self.running
            && let Some(told) = running.told.clone()
        {
            running.read_key(&told);
            let listening = running.key_trouble.is_none();
            running.beats().rekey(&told, listening);
        }
    }

    /// Returns the state of the heartbeats. `None`: `[glb]` is not configured.
    pub fn view(&self) -> Option<GlbView> {
        let running = self.running.as_ref()?;
        let mut view = running.beats().view();
        view.trouble.clone_from(&running.key_trouble);
        if running.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            view.trouble = Some("its thread has ended: no heartbeat is sent or received; restart srv6d".to_owned());
        }
        Some(view)
    }
}

impl Running {
    fn start(dataplane: &Dataplane, links: watch::Sender<Arc<Links>>) -> Self {
        let beats = Arc::new(Mutex::new(Beats::new(Arc::clone(dataplane.far_ports()), links)));
        let of_thread = Arc::clone(&beats);
        let started = std::thread::Builder::new().name("srv6d-glb".to_owned()).spawn(move || run(&of_thread));
        if let Err(why) = &started {
            error!("glb: cannot start its thread: {why}; allow srv6d more threads, and restart it");
        }
        Self { told: None, beats, thread: started.ok(), key_trouble: None }
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_key(&mut self, wanted: &Wanted) {
        let read = wanted.glb.key.as_ref().map(|(id, file)| key(*id, file)).transpose();
        let (key, trouble) = match read {
            Ok(key) => (key, None),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = trouble.as_ref().filter(|why| self.key_trouble.as_ref() != Some(why)) {
            error!("glb: {why}; no heartbeat is sent or believed until `srv6d reload`");
        }
        self.key_trouble = trouble;
        self.beats().set_key(key);
    }

    fn configure(&mut self, wanted: Wanted, traffic: impl Fn(&WantedPort) -> Option<PortTraffic>) {
        let is_usable = self.key_trouble.is_none();
        self.beats().configure(&wanted, is_usable, traffic);
        self.told = Some(wanted);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.beats().end();
    }
}

/// Reads the secret of a key.
fn key(id: u32, file: &Path) -> Result<Key, String> {
    let shown = file.display();
    let text = srv6d_text::read_text(file).map_err(|why| format!("the key {shown} cannot be read: {why}"))?;
    match text.trim() {
        "" => Err(format!("the key {shown} is empty")),
        secret if secret.len() > LONGEST_SECRET => {
            Err(format!("the key {shown} is longer than {LONGEST_SECRET} bytes"))
        }
        secret => Ok(Key::new(id, secret)),
    }
}

/// Runs tick after tick until the heartbeats end.
fn run(beats: &Mutex<Beats>) {
    keep_of_this_thread(&[]);
    let start = Instant::now();
    let mut next = start;
    loop {
        let tick = {
            let mut beats = beats.lock().unwrap_or_else(PoisonError::into_inner);
            if beats.is_over() {
                return;
            }
            beats.tick(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            beats.tick_time()
        };
        // Ticks that were missed are left out.
        next = (next + tick).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)));
    }
}

fn wanted(glb: &srv6d_plan::Glb, desired: &Desired, environment: &Environment) -> Wanted {
    let settings = &desired.balance.settings;
    let numbers: BTreeMap<PortId, u8> = settings.numbered_neighbors().map(|(number, port)| (port, number)).collect();
    let indexes: BTreeMap<&str, u32> =
        environment.devices.iter().map(|device| (device.name.as_str(), device.ifindex)).collect();
    let port = |(id, node): &(PortId, Option<srv6d_config::NodeId>)| {
        let model = desired.ports.get(usize::from(id.0))?;
        let emulation = desired.emulated.get(id);
        let full_queue = emulation.map_or(0, Emulation::full_queue);
        Some(WantedPort {
            name: model.name.clone(),
            ifindex: indexes.get(model.name.as_str()).copied(),
            neighbor: node.and_then(|node| Some((node.0.to_bits(), *numbers.get(id)?))),
            up: model.up,
            rate: desired.rate_of(*id),
            full_queue,
            is_emulated: emulation.is_some(),
        })
    };
    Wanted {
        glb: glb.clone(),
        rate_weight: settings.rate_weight,
        profiles: settings.profiles.iter().map(|nodes| nodes.iter().map(|node| node.to_bits()).collect()).collect(),
        ports: glb.ports.iter().filter_map(port).collect(),
        weighing: weighing(desired),
    }
}

fn weighing(desired: &Desired) -> Option<Weighing> {
    let balance = &desired.balance;
    let loads = balance.weighted.iter().any(|policy| policy.metric == Metric::Available);
    let nodes = balance.via_nodes.values().flatten().copied().collect();
    (!balance.weighted.is_empty()).then_some(Weighing { nodes, loads })
}

/// Tells the control loop about links, unless it knows them already.
fn tell(told: &watch::Sender<Arc<Links>>, links: Links) {
    told.send_if_modified(|known| {
        let is_news = **known != links;
        if is_news {
            *known = Arc::new(links);
        }
        is_news
    });
}

/// Opens the socket of a port, or returns why that is not possible. `known` is the reason that was logged before.
fn open(port: &WantedPort, glb: &srv6d_plan::Glb, known: Option<&str>) -> Result<Socket, String> {
    let Some(ifindex) = port.ifindex else { return Err("it waits for its network device".to_owned()) };
    let opened = Socket::open(&port.name, ifindex, (glb.group, glb.udp_port), glb.role.receives());
    opened.map_err(|why| {
        let why = format!("no heartbeats on {}: {why}", port.name);
        if known != Some(why.as_str()) {
            warn!("glb: {why}");
        }
        why
    })
}
