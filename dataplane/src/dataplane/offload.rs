//! Plain shifts and encapsulations in the XDP program, in front of the workers, on the ports that ask for it.
//!
//! The program gets an extract of the very tables that the workers have, with every generation and whenever a port
//! comes or goes. Whatever goes wrong here is no error of the dataplane: packets then go to the workers, as on a port
//! that never asked, and the port says why.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use srv6d_srv6::Released;
use srv6d_srv6::model::PortId;
use srv6d_srv6::offload::{self, Offload, OffloadedHop, OffloadedPath, OffloadedPort, OffloadedTable, OffloadedWay};
use srv6d_xsk::probe::{self, TakesRedirect};
use srv6d_xsk::xdp_offload::{
    Forwarding, HOPS, Hop, InPort, PATHS, PacketCount, Path, Sources, Table, Way, XdpOffload,
};
use srv6d_xsk::{Mode, XskError};

use super::{Dataplane, Device, PacketMemory, device_name};

/// Packets up to here come in one buffer, whatever the driver. A port that takes no others from an XDP program would drop
/// longer ones in silence, and the program cannot tell: the verifier allows no difference of packet pointers to those
/// without `CAP_PERFMON`.
const ONE_BUFFER: u32 = 1500;

const _: () = assert!(offload::TABLES <= srv6d_xsk::xdp_offload::TABLES, "there is room for all tables");

/// How a port that asks for `offload = "xdp"` stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortOffload {
    /// The XDP program forwards what is plain and comes in here.
    pub on: bool,
    /// Why it does not, or which of them it does not. Empty: there is nothing to say.
    pub reason: String,
}

/// The program, once a port has asked for it.
#[derive(Debug, Default)]
pub(super) enum Program {
    #[default]
    NotAsked,
    Loaded(Box<XdpOffload>),
    /// The kernel has refused it: why. It is not asked again.
    Refused(String),
}

/// What the program was last given, and where it is.
#[derive(Debug, Default)]
pub(super) struct InFront {
    program: Program,
    /// Devices that have a number in the program.
    known: BTreeSet<String>,
    /// Devices that the program is on.
    on: BTreeSet<String>,
    given: Option<Box<Forwarding>>,
    redirect: BTreeMap<String, Option<TakesRedirect>>,
    /// Somebody captures packets, which only workers show.
    rests: bool,
}

impl InFront {
    fn loaded(&self) -> Option<&XdpOffload> {
        match &self.program {
            Program::Loaded(program) => Some(program),
            Program::NotAsked | Program::Refused(_) => None,
        }
    }

    pub(super) fn received(&self, number: usize) -> PacketCount {
        self.count(number, XdpOffload::received)
    }

    pub(super) fn sent(&self, number: usize) -> PacketCount {
        self.count(number, XdpOffload::sent)
    }

    fn count(&self, number: usize, of: fn(&XdpOffload, u16) -> PacketCount) -> PacketCount {
        let number = u16::try_from(number).ok();
        self.loaded().zip(number).map(|(program, number)| of(program, number)).unwrap_or_default()
    }

    pub(super) fn sid(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.sid(slot)).unwrap_or_default()
    }

    pub(super) fn path(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.path(slot)).unwrap_or_default()
    }

    pub(super) fn hop(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.hop(slot)).unwrap_or_default()
    }

    /// Returns when no program is in the middle of a packet that it began with tables before those it was given last.
    /// False: that cannot be told.
    pub(super) fn settle(&mut self) -> bool {
        let Program::Loaded(program) = &mut self.program else { return true };
        program.settle().inspect_err(|why| tracing::warn!("{why}")).is_ok()
    }

    /// These counters are zero from now on.
    pub(super) fn clear(&mut self, released: &Released) {
        if let Program::Loaded(program) = &mut self.program
            && let Err(why) = program.clear(&released.sids, &released.paths, &released.adjacencies)
        {
            tracing::warn!("{why}");
        }
    }

    /// The device is gone, and the program with it.
    pub(super) fn forget(&mut self, device: &str, number: Option<usize>) {
        self.on.remove(device);
        self.redirect.remove(device);
        let number = number.and_then(|number| u16::try_from(number).ok());
        if let (true, Program::Loaded(program), Some(number)) = (self.known.remove(device), &mut self.program, number) {
            program.remove_port(number);
        }
    }
}

impl Dataplane {
    /// Looks whether ports still send what is redirected into them, and takes back what they do not. The peer of a veth
    /// can change that at any time, and nothing tells: ask every second or so. Whether somebody captures packets, too.
    pub fn refresh_offload(&mut self) {
        let differs = |(name, was): (&String, &Option<TakesRedirect>)| probe::takes_redirect(name) != *was;
        if self.taps.is_open() != self.in_front.rests || self.in_front.redirect.iter().any(differs) {
            self.sync_offload();
        }
    }

    /// From here on as on a kernel that refuses the program, so that what follows from that can be tested.
    pub fn refuse_offload(&mut self) {
        self.in_front.program = Program::Refused("refused by a test".to_owned());
    }

    /// The program is on a port, or will be once nobody captures packets any more.
    pub fn offloads(&self) -> bool {
        self.in_front.rests || !self.in_front.on.is_empty()
    }

    /// Gives the program the tables in force.
    pub(super) fn sync_offload(&mut self) {
        self.in_front.rests = self.taps.is_open();
        let asked: BTreeSet<String> = self.asked_for_offload();
        if asked.is_empty() && self.in_front.on.is_empty() {
            self.devices.values_mut().for_each(|device| device.port.offload = None);
            self.in_front.redirect.clear();
            return;
        }
        if matches!(self.in_front.program, Program::NotAsked) {
            self.in_front.program = match XdpOffload::load() {
                Ok(program) => Program::Loaded(Box::new(program)),
                Err(why) => {
                    tracing::warn!("{why}: all packets go to the workers");
                    Program::Refused(why.to_string())
                }
            };
        }
        let refused = self.give(&asked).err();
        if let Some(why) = &refused {
            tracing::warn!("{why}: all packets go to the workers");
            self.take_off_all();
        }
        self.say(&asked, refused.as_ref());
    }

    /// Devices whose ports ask for it.
    fn asked_for_offload(&self) -> BTreeSet<String> {
        let ports =
            self.tables.desired().offload.iter().filter_map(|id| self.tables.desired().ports.get(usize::from(id.0)));
        ports.map(|port| device_name(port).to_owned()).filter(|name| self.devices.contains_key(name)).collect()
    }

    fn give(&mut self, asked: &BTreeSet<String>) -> Result<(), XskError> {
        let snapshot = self.tables.current();
        let mut in_front = std::mem::take(&mut self.in_front);
        let given = self.give_to(&mut in_front, asked, snapshot.tables.offload());
        self.in_front = in_front;
        given
    }

    fn give_to(&mut self, in_front: &mut InFront, asked: &BTreeSet<String>, offload: &Offload) -> Result<(), XskError> {
        let Program::Loaded(program) = &mut in_front.program else { return Ok(()) };
        for name in self.devices.keys() {
            let number = self.numbers.get(name).and_then(|&number| u16::try_from(number).ok());
            if let Some(number) = number.filter(|_| !in_front.known.contains(name)) {
                program.add_port(number, name)?;
                in_front.known.insert(name.clone());
            }
        }
        in_front.redirect = self.devices.keys().map(|name| (name.clone(), probe::takes_redirect(name))).collect();
        let forwarding = self.forwarding(offload, asked, &in_front.redirect, in_front.rests);
        if in_front.given.as_deref() != Some(&forwarding) {
            in_front.given = None;
            program.publish(&forwarding)?;
        }
        for (name, device) in &mut self.devices {
            let Some(number) = self.numbers.get(name).and_then(|&number| u16::try_from(number).ok()) else { continue };
            match (forwarding.ports.contains_key(&number), in_front.on.contains(name)) {
                (true, false) => {
                    program.put_on(number, &mut device.program)?;
                    in_front.on.insert(name.clone());
                }
                (false, true) => {
                    program.take_off(&mut device.program)?;
                    in_front.on.remove(name);
                }
                _ => {}
            }
        }
        in_front.given = Some(Box::new(forwarding));
        Ok(())
    }

    fn forwarding(
        &self,
        offload: &Offload,
        asked: &BTreeSet<String>,
        redirect: &BTreeMap<String, Option<TakesRedirect>>,
        rests: bool,
    ) -> Forwarding {
        let device = |index: u16| {
            let name = self.tables.desired().ports.get(usize::from(index)).map(device_name)?;
            let number = u16::try_from(*self.numbers.get(name)?).ok()?;
            Some((name, self.devices.get(name)?, number))
        };
        let from = |index: u16| {
            let (name, device, number) = device(index)?;
            (asked.contains(name) && !rests && why_not(device).is_none()).then_some(number)
        };
        let to = |index: u16| {
            let (name, _, number) = device(index)?;
            Some((number, redirect.get(name).copied().flatten()?))
        };
        forwarding(offload, from, to)
    }

    fn take_off_all(&mut self) {
        self.in_front.given = None;
        let on = std::mem::take(&mut self.in_front.on);
        let Program::Loaded(program) = &mut self.in_front.program else { return };
        for (name, device) in self.devices.iter_mut().filter(|(name, _)| on.contains(*name)) {
            if let Err(why) = program.take_off(&mut device.program) {
                tracing::error!("{name}: {why}");
                self.in_front.on.insert(name.clone());
            }
        }
        if let Err(why) = program.wait_for_packets() {
            tracing::error!("{why}");
        }
    }

    /// Says of each port how it stands.
    fn say(&mut self, asked: &BTreeSet<String>, failed: Option<&XskError>) {
        let snapshot = self.tables.current();
        let offload = snapshot.tables.offload();
        let led_to: BTreeSet<u16> = offload.hops.values().map(|hop| hop.device).collect();
        let names =
            led_to.iter().filter_map(|&index| self.tables.desired().ports.get(usize::from(index)).map(device_name));
        let mut not_taken: Vec<String> = names.filter_map(|name| Some(not_taken(name, self.redirect(name)?))).collect();
        if offload.too_many {
            not_taken.push(format!("workers encapsulate: more than {} prefixes lie in steered ones", offload::MOST));
        }
        not_taken.extend(without_counters(offload));
        let of_port: BTreeMap<&str, &str> = (offload.refused.iter())
            .filter_map(|(id, &why)| Some((self.tables.desired().ports.get(usize::from(id.0)).map(device_name)?, why)))
            .collect();
        for (name, device) in &mut self.devices {
            let on = self.in_front.on.contains(name);
            let reason = match (&self.in_front.program, failed) {
                _ if on => not_taken.join("; "),
                (Program::Refused(why), _) => why.clone(),
                (_, Some(why)) => why.to_string(),
                _ if self.in_front.rests => "a capture is open, and shows what workers have".to_owned(),
                _ => why_not(device)
                    .or_else(|| of_port.get(name.as_str()).map(|&why| why.to_owned()))
                    .unwrap_or_default(),
            };
            device.port.offload = asked.contains(name).then_some(PortOffload { on, reason });
        }
    }

    /// What a port does with what is redirected into it, if that is not everything.
    fn redirect(&self, name: &str) -> Option<TakesRedirect> {
        let takes = self.in_front.redirect.get(name).copied()?.unwrap_or_default();
        (!takes.frames || !takes.multi_buffer).then_some(takes)
    }
}

/// What has a number that is too high for the program's counters.
fn without_counters(offload: &Offload) -> Option<String> {
    let above = |numbers: usize, most: u32, what: &str| {
        (numbers > 0).then(|| format!("{numbers} {what}, as the program has counters for {most}"))
    };
    let paths = offload.paths.keys().filter(|&&slot| slot >= PATHS).count();
    let hops = offload.hops.keys().filter(|&&slot| slot >= HOPS).count();
    let of_workers: Vec<String> =
        [above(paths, PATHS, "paths"), above(hops, HOPS, "next hops")].into_iter().flatten().collect();
    (!of_workers.is_empty()).then(|| format!("workers send by {}", of_workers.join(" and ")))
}

/// The extract in the program's words: numbers instead of indexes of ports. `from` is the number of a port whose packets
/// the program may forward, `to` that of one they may be sent through, and what it takes.
pub fn forwarding(
    offload: &Offload,
    from: impl Fn(u16) -> Option<u16>,
    to: impl Fn(u16) -> Option<(u16, TakesRedirect)>,
) -> Forwarding {
    let in_port = |(id, port): (&PortId, &OffloadedPort)| {
        let &OffloadedPort { mac, longest, table, guards_sids } = port;
        Some((from(id.0)?, InPort { mac, longest, table, guards_sids }))
    };
    let hop = |(&slot, hop): (&u32, &OffloadedHop)| {
        let (port, takes) = to(hop.device).filter(|(_, takes)| takes.frames)?;
        let mtu = if takes.multi_buffer { hop.mtu } else { hop.mtu.min(ONE_BUFFER) };
        Some((slot, Hop { addresses: hop.addresses, mtu, port }))
    };
    Forwarding {
        ports: offload.ports.iter().filter_map(in_port).collect(),
        sid_space: offload.sid_space.clone(),
        domain: offload.domain.clone(),
        sources: offload
            .sources
            .iter()
            .filter_map(|(id, sources)| Some((from(id.0)?, self::sources(sources))))
            .collect(),
        tables: offload.tables.iter().map(|(&number, found)| (number, table(found))).collect(),
        paths: offload.paths.iter().map(|(&slot, found)| (slot, path(found))).collect(),
        hops: offload.hops.iter().filter_map(hop).collect(),
    }
}

fn sources([v6, v4]: &[BTreeSet<(u128, u8)>; 2]) -> Sources {
    Sources { v6: v6.clone(), v4: v4.clone() }
}

fn not_taken(name: &str, takes: TakesRedirect) -> String {
    if takes.frames {
        return format!(
            "packets of more than {ONE_BUFFER} bytes to {name} go through the worker: it takes no frames in several buffers"
        );
    }
    format!(
        "what leaves through {name} goes through the worker: it sends nothing that an XDP program redirects (a veth: \
         give its peer NAPI, `ethtool -K PEER gro on` or an XDP program of its own)"
    )
}

/// Why a device's packets are better left to its worker.
fn why_not(device: &Device) -> Option<String> {
    let (mode, _) = device.program.chosen();
    if mode != Mode::Native {
        return Some(format!("the XDP program runs in {mode} mode"));
    }
    (device.memory == PacketMemory::ZeroCopy)
        .then(|| "the worker has its packets without a copy (zero-copy)".to_owned())
}

fn table(found: &OffloadedTable) -> Table {
    let ways = |found: &BTreeMap<_, _>| found.iter().map(|(&prefix, found)| (prefix, way(found))).collect();
    Table { v6: ways(&found.v6), v4: ways(&found.v4) }
}

fn way(found: &OffloadedWay) -> Way {
    match found {
        OffloadedWay::Worker => Way::Worker,
        OffloadedWay::Shift { by, sid, via } => Way::Shift { by: *by, sid: *sid, via: via.clone() },
        OffloadedWay::Route(group) => Way::Route(group.clone()),
        OffloadedWay::Encapsulate { paths, with_qp } => Way::Encapsulate { paths: paths.clone(), with_qp: *with_qp },
    }
}

fn path(found: &OffloadedPath) -> Path {
    let OffloadedPath { addresses, hop_limit, class, mtu, via } = found.clone();
    Path { addresses, hop_limit, class, mtu, via }
}
