//! Plain packets in the XDP program, in front of the workers, on the ports that ask for it.
//!
//! The program gets an extract of the very tables that the workers have, with every generation and whenever a port
//! comes or goes. Whatever goes wrong here is no error of the dataplane: packets then go to the workers, as on a port
//! that never asked, and the port says why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use srv6d_fib::{
    COUNTED_HOPS, COUNTED_PATHS, DEVICES, DeviceRow, Forwarding, GROUPS, GroupRow, HOPS, MEMBERS, PATHS, PATTERNS,
    SIDS, STEERS,
};
use srv6d_srv6::Released;
use srv6d_srv6::desired::PortId;
use srv6d_srv6::offload::{self, Offload};
use srv6d_xsk::device_features::leaves_checksums_unfinished;
use srv6d_xsk::probe::{self, TakesRedirect};
use srv6d_xsk::xdp_offload::{Hook, PacketCount, ProgramWiring, Sizes, XdpOffload};
use srv6d_xsk::{Mode, XskError};

use super::arrivals::BY_TC;
use super::hand_over::HandOver;
use super::tap::ProgramTap;
use super::{Dataplane, Device, PacketMemory, device_name, local};
use crate::capture::Taps;

/// Length up to which packets arrive in one buffer with every driver. A port that takes only packets in one buffer from
/// an XDP program would drop longer ones silently. The program cannot know the length of the first buffer: without
/// `CAP_PERFMON` the verifier does not allow it to subtract packet pointers.
const ONE_BUFFER: u32 = 1500;

/// State of a port with `offload = "xdp"` or `"auto"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortOffload {
    /// Whether the XDP program forwards plain packets that arrive on this port.
    pub on: bool,
    /// Whether srv6d has chosen this itself (`auto`).
    pub auto: bool,
    /// Why the program forwards none of these packets, or which of them it leaves to the workers. Empty: there is
    /// nothing to say. With `auto`, the text begins with the reason for srv6d's choice.
    pub reason: String,
}

impl PortOffload {
    /// Puts the reason for srv6d's choice in front of the text.
    fn chosen(self) -> Self {
        let Self { on, reason, .. } = self;
        let reason = match (on, reason.as_str()) {
            (true, "") => CHOSEN.to_owned(),
            (true, _) => format!("{CHOSEN}; {reason}"),
            (false, BY_TC) => reason,
            (false, _) => format!("the worker, as {reason}"),
        };
        Self { on, auto: true, reason }
    }
}

/// The reason why `auto` has chosen the XDP program.
const CHOSEN: &str = "the XDP program, as a worker's socket would copy each packet";

/// The state of the program. It is loaded once a port has asked for it.
#[derive(Debug, Default)]
pub(super) enum Program {
    #[default]
    NotAsked,
    Loaded(Box<XdpOffload>),
    /// The kernel has refused the program for this reason. It is not asked again.
    Refused(String),
}

/// The XDP program in front of the workers: what it was given last, and the devices that it is on.
#[derive(Debug, Default)]
pub(super) struct InFront {
    program: Program,
    /// Devices that have a number in the program.
    known: BTreeSet<String>,
    /// Devices that the program is on.
    on: BTreeSet<String>,
    given: Option<Box<(Forwarding, ProgramWiring)>>,
    /// Hand-over from the workers to the program that is under way.
    pub(super) hand_over: HandOver,
    redirect: BTreeMap<String, Option<TakesRedirect>>,
    /// Numbers of the devices that somebody captures.
    captured: BTreeSet<usize>,
    /// Copies what the program forwards from or to these.
    tap: Option<ProgramTap>,
    /// Whether tc programs are attached as on a kernel without tcx.
    without_tcx: bool,
    /// The reason why the tc program is not at the egress of the own veth. It is tried again after it was not asked for
    /// in the meantime.
    local_refused: Option<String>,
    /// Devices from which packets are delivered to this node.
    delivers: BTreeSet<String>,
    /// Numbers of the own veths that packets have been delivered through.
    own_veths: BTreeSet<u16>,
    /// Devices that the tc program does not send through, because they leave checksums unfinished and srv6d has chosen the program.
    pub(super) unfinished: BTreeSet<String>,
    /// The reasons why the worker decapsulates what arrives through a device, by name of the device. Only devices that
    /// the tc engine is to serve are listed.
    pub(super) not_delivered: BTreeMap<String, String>,
}

impl InFront {
    fn loaded(&self) -> Option<&XdpOffload> {
        match &self.program {
            Program::Loaded(program) => Some(program),
            Program::NotAsked | Program::Refused(_) => None,
        }
    }

    pub(super) fn is_on(&self, device: &str) -> bool {
        self.on.contains(device)
    }

    /// Takes the program off a device, whose XDP program is about to rest.
    pub(super) fn take_off(&mut self, device: &str, program: &mut srv6d_xsk::Program) -> Result<(), XskError> {
        match &mut self.program {
            Program::Loaded(front) if self.on.remove(device) => front.take_off(program),
            _ => Ok(()),
        }
    }

    /// Whether the tc program rests: nothing shows what it sends.
    fn local_rests(&self) -> bool {
        !self.captured.is_empty()
    }

    /// Returns whether the programs deliver to this node what arrives through a device.
    pub(super) fn delivers(&self, device: &str, comes_by_tc: bool) -> bool {
        (self.is_on(device) || comes_by_tc && self.given.is_some()) && self.delivers.contains(device)
    }

    /// Returns whether the kernel has refused the program.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.program, Program::Refused(_))
    }

    /// Returns how many packets were delivered. Nothing else leaves through an own veth without a worker.
    pub(super) fn delivered(&self) -> u64 {
        self.own_veths.iter().map(|&number| self.sent(number.into()).packets).sum()
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

    pub(super) fn vlan_received(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.vlan_received(slot)).unwrap_or_default()
    }

    pub(super) fn vlan_sent(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.vlan_sent(slot)).unwrap_or_default()
    }

    pub(super) fn path(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.path(slot)).unwrap_or_default()
    }

    pub(super) fn hop(&self, slot: usize) -> PacketCount {
        let slot = u32::try_from(slot).ok();
        self.loaded().zip(slot).map(|(program, slot)| program.hop(slot)).unwrap_or_default()
    }

    /// Waits until no run of the program uses tables older than the last ones. Returns false if that cannot be known.
    pub(super) fn settle(&mut self) -> bool {
        let Program::Loaded(program) = &mut self.program else { return true };
        program.settle().inspect_err(|why| tracing::warn!("{why}")).is_ok()
    }

    /// Sets the counters of released entries to zero.
    pub(super) fn clear(&mut self, released: &Released) {
        if let Program::Loaded(program) = &mut self.program
            && let Err(why) = program.clear(&released.sids, &released.paths, &released.adjacencies)
        {
            tracing::warn!("{why}");
        }
    }

    /// Forgets a device that is gone, and its program.
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
    /// Checks whether ports still send what is redirected into them, and whether somebody captures packets, and updates
    /// the offload if something has changed. The peer of a veth can change the former at any time without an event, so
    /// this should be called about once a second.
    pub fn refresh_offload(&mut self) {
        let differs = |(name, was): (&String, &Option<TakesRedirect>)| probe::takes_redirect(name) != *was;
        let is_taken_over = self.look_after_hand_over();
        let is_other = self.taps.captured() != self.in_front.captured || self.in_front.redirect.iter().any(differs);
        if is_taken_over || is_other || self.unfinished() != self.in_front.unfinished {
            self.sync_offload();
        }
    }

    /// Returns the devices that leave checksums unfinished, if srv6d has chosen the tc program. Whoever has asked for the program
    /// knows what is at their other ends.
    fn unfinished(&self) -> BTreeSet<String> {
        let desired = self.tables.desired();
        let is_chosen = desired.host.is_some_and(|host| desired.auto_offload.contains(&host.port));
        let names = self.devices.iter().filter(|(_, device)| is_chosen && !device.claim_all).map(|(name, _)| name);
        names.filter(|name| leaves_checksums_unfinished(name)).cloned().collect()
    }

    /// Returns true if nothing of what the program has taken over is the workers' any more.
    fn look_after_hand_over(&mut self) -> bool {
        let (in_front, numbers) = (&mut self.in_front, &self.numbers);
        let on = self.devices.iter().filter(|(name, device)| in_front.on.contains(*name) && !device.claim_all);
        let queues = on.flat_map(|(name, device)| {
            let number = numbers.get(name).and_then(|&number| u16::try_from(number).ok()).unwrap_or(u16::MAX);
            device.program.hand_overs().map(move |(queue, hand_over)| (number, queue, hand_over))
        });
        in_front.hand_over.look_after(queues, Instant::now())
    }

    /// Makes the offload behave from now on as with a kernel that refuses the program, for tests.
    #[cfg(feature = "faults")]
    pub fn refuse_offload(&mut self) {
        self.in_front.program = Program::Refused("refused by a test".to_owned());
    }

    /// Makes the offload behave from now on as on a kernel without tcx, for tests.
    #[cfg(feature = "faults")]
    pub fn forgo_tcx(&mut self) {
        self.in_front.without_tcx = true;
    }

    /// Returns whether the program is on a port, or will be once nobody captures packets any more.
    pub fn offloads(&self) -> bool {
        self.in_front.local_rests() || !self.in_front.on.is_empty()
    }

    /// Gives the program the tables in force.
    pub(super) fn sync_offload(&mut self) {
        self.sync_arrivals();
        self.in_front.captured = self.taps.captured();
        let asked: BTreeSet<String> = self.asked_for_offload();
        self.in_front.not_delivered.clear();
        if asked.is_empty() && self.in_front.on.is_empty() {
            self.devices.values_mut().for_each(|device| device.port.offload = None);
            self.in_front.redirect.clear();
            return;
        }
        let refused = self.make_room().and_then(|()| self.give(&asked)).err();
        if let Some(why) = &refused {
            tracing::warn!("{why}: all packets go to the workers");
            self.take_off_all();
        }
        self.say(&asked, refused.as_ref());
    }

    /// Loads the program if it is not, with maps that have room for the tables in force. A program whose maps are too small is
    /// taken off all ports and loaded anew.
    fn make_room(&mut self) -> Result<(), XskError> {
        let snapshot = self.tables.current();
        let vlans = self.tables.slots().vlans.iter().map(|(_, slot)| slot + 1).max().unwrap_or(0);
        let sizes = Sizes::of(&snapshot.tables.offload().forwarding, self.numbers.len(), vlans);
        match &self.in_front.program {
            Program::NotAsked => {
                self.in_front.program = match XdpOffload::load(&sizes) {
                    Ok(mut program) => {
                        if self.in_front.without_tcx {
                            program.forgo_tcx();
                        }
                        Program::Loaded(Box::new(program))
                    }
                    Err(why) => {
                        tracing::warn!("{why}: all packets go to the workers");
                        Program::Refused(why.to_string())
                    }
                };
            }
            Program::Loaded(program) if !program.has_room_for(&sizes) => self.take_off_all(),
            _ => {}
        }
        match &mut self.in_front.program {
            Program::Loaded(program) if !program.has_room_for(&sizes) => {
                // The new maps have no ring.
                self.in_front.tap = None;
                program.grow(&sizes)
            }
            _ => Ok(()),
        }
    }

    /// Returns the devices whose ports ask for offload.
    pub(super) fn asked_for_offload(&self) -> BTreeSet<String> {
        self.devices_of(&self.tables.desired().offload)
    }

    fn devices_of(&self, ports: &BTreeSet<PortId>) -> BTreeSet<String> {
        let ports = ports.iter().filter_map(|id| self.tables.desired().ports.get(usize::from(id.0)));
        ports.map(|port| device_name(port).to_owned()).filter(|name| self.devices.contains_key(name)).collect()
    }

    fn give(&mut self, asked: &BTreeSet<String>) -> Result<(), XskError> {
        let snapshot = self.tables.current();
        let mut in_front = std::mem::take(&mut self.in_front);
        let given = self.give_to(&mut in_front, asked, (snapshot.revision, snapshot.tables.offload()));
        self.in_front = in_front;
        given
    }

    fn give_to(
        &mut self,
        in_front: &mut InFront,
        asked: &BTreeSet<String>,
        (revision, offload): (u64, &Offload),
    ) -> Result<(), XskError> {
        let Program::Loaded(program) = &mut in_front.program else { return Ok(()) };
        for name in self.devices.keys() {
            let number = self.numbers.get(name).and_then(|&number| u16::try_from(number).ok());
            if let Some(number) = number.filter(|_| !in_front.known.contains(name)) {
                program.add_port(number, name)?;
                in_front.known.insert(name.clone());
            }
        }
        in_front.unfinished = self.unfinished();
        for (&number, name) in self.devices.keys().filter_map(|name| Some((self.numbers.get(name)?, name))) {
            let Ok(number) = u16::try_from(number) else { continue };
            program.let_local_send(number, !in_front.unfinished.contains(name))?;
        }
        in_front.redirect = self.devices.keys().map(|name| (name.clone(), probe::takes_redirect(name))).collect();
        let mut wiring = self.wiring(offload, asked, &in_front.redirect, !in_front.captured.is_empty());
        wiring.captured = in_front.captured.iter().filter_map(|&number| u16::try_from(number).ok()).collect();
        if in_front.tap.is_none() && !wiring.captured.is_empty() {
            in_front.tap = Some(open_tap(program, &self.taps)?);
        }
        in_front.not_delivered = self.wire_delivery(program, &offload.forwarding, &mut wiring);
        in_front.own_veths.extend(wiring.kernel.as_ref().map(|kernel| kernel.number));
        let before = in_front.given.as_deref();
        if in_front.hand_over.follow(before, (&offload.forwarding, &mut wiring), revision, Instant::now()) {
            self.workers.iter().for_each(|worker| worker.waker.wake());
        }
        let is_given = |given: &(Forwarding, ProgramWiring)| given.0 == offload.forwarding && given.1 == wiring;
        if !in_front.given.as_deref().is_some_and(is_given) {
            in_front.given = None;
            if let Some(claims) = &self.claim_program {
                program.take_over_from(claims)?;
            }
            program.publish(&offload.forwarding, &wiring)?;
        }
        if wiring.captured.is_empty() && in_front.tap.take().is_some() {
            program.close_tap();
        }
        let mut from: BTreeSet<u16> = wiring.from.values().copied().collect();
        let by_tc = self.devices.iter().filter(|(_, device)| device.arrivals.is_some());
        for number in by_tc.filter_map(|(name, _)| u16::try_from(*self.numbers.get(name)?).ok()) {
            from.remove(&number);
        }
        let chosen = self.devices_of(&self.tables.desired().auto_offload);
        let delivering = self.delivering(&wiring);
        program.keep_on_ingress(&delivering.keys().copied().collect());
        for (name, device) in &mut self.devices {
            let Some(number) = self.numbers.get(name).and_then(|&number| u16::try_from(number).ok()) else { continue };
            match (from.contains(&number), in_front.on.contains(name)) {
                (true, false) if device.claim_all => {
                    let is_chosen = chosen.contains(name);
                    let tried = (program.as_mut(), &mut in_front.local_refused, is_chosen);
                    if local::put_on(tried, number, &self.kernel_end) {
                        in_front.on.insert(name.clone());
                    }
                }
                (false, true) if device.claim_all => {
                    program.take_off_local();
                    in_front.on.remove(name);
                }
                (false, false) if device.claim_all => in_front.local_refused = None,
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
        in_front.delivers = delivering.into_values().collect();
        in_front.given = Some(Box::new((offload.forwarding.clone(), wiring)));
        Ok(())
    }

    fn wiring(
        &self,
        offload: &Offload,
        asked: &BTreeSet<String>,
        redirect: &BTreeMap<String, Option<TakesRedirect>>,
        local_rests: bool,
    ) -> ProgramWiring {
        let device = |index: u16| {
            let name = self.tables.desired().ports.get(usize::from(index)).map(device_name)?;
            let number = u16::try_from(*self.numbers.get(name)?).ok()?;
            Some((name, self.devices.get(name)?, number))
        };
        let from = |index: u16| {
            let (name, device, number) = device(index)?;
            let is_asked = asked.contains(name) || self.tables.desired().has_tc_engine();
            let rests = device.claim_all && local_rests;
            (is_asked && !rests && why_not(device).is_none()).then_some(number)
        };
        let to = |index: u16| {
            let (name, _, number) = device(index).filter(|(name, ..)| self.why_workers_send(name).is_none())?;
            Some((number, redirect.get(name).copied().flatten().unwrap_or_default()))
        };
        let mut wiring = offload_wiring(&offload.forwarding, from, to);
        let slot = |(&index, _): (&u16, &u16)| {
            let port = self.tables.desired().ports.get(usize::from(index))?;
            let slot = self.tables.slots().vlans.find(&port.name)?;
            Some((index, u16::try_from(slot).ok().filter(|&slot| u32::from(slot) < DEVICES)?))
        };
        wiring.vlan_slots = offload.forwarding.vlans.iter().filter_map(slot).collect();
        wiring
    }

    fn take_off_all(&mut self) {
        self.in_front.given = None;
        let on = std::mem::take(&mut self.in_front.on);
        let Program::Loaded(program) = &mut self.in_front.program else { return };
        for (name, device) in self.devices.iter_mut().filter(|(name, _)| on.contains(*name)) {
            if device.claim_all {
                program.take_off_local();
                continue;
            }
            if let Err(why) = program.take_off(&mut device.program) {
                tracing::error!("{name}: {why}");
                self.in_front.on.insert(name.clone());
            }
        }
        if let Err(why) = program.wait_for_packets() {
            tracing::error!("{why}");
        }
    }

    /// Records the state of offload in each port.
    fn say(&mut self, asked: &BTreeSet<String>, failed: Option<&XskError>) {
        let snapshot = self.tables.current();
        let offload = snapshot.tables.offload();
        let led_to: BTreeSet<u16> = offload.forwarding.hops.values().map(|hop| hop.port).collect();
        let names: BTreeSet<&str> = led_to
            .iter()
            .filter_map(|&index| self.tables.desired().ports.get(usize::from(index)).map(device_name))
            .collect();
        let mut not_taken: Vec<String> = names.into_iter().filter_map(|name| self.not_taken(name)).collect();
        if offload.too_many {
            not_taken.push(format!("workers encapsulate: more than {} prefixes lie in steered ones", offload::MOST));
        }
        not_taken.extend(not_whole(offload));
        not_taken.extend(without_room(&offload.forwarding));
        let of_port: BTreeMap<&str, &str> = (offload.refused.iter())
            .filter_map(|(id, &why)| Some((self.tables.desired().ports.get(usize::from(id.0)).map(device_name)?, why)))
            .collect();
        let chosen = self.devices_of(&self.tables.desired().auto_offload);
        for (name, device) in &mut self.devices {
            let on = self.in_front.on.contains(name);
            let reason = match (&self.in_front.program, failed) {
                // Each path says whether it is among them.
                (Program::Loaded(program), _) if on && device.claim_all => place_of(program.hook(), &self.kernel_end),
                _ if on => {
                    let hurried = self.numbers.get(name).and_then(|&number| self.in_front.hand_over.hurried(number));
                    not_taken.iter().cloned().chain(hurried).collect::<Vec<_>>().join("; ")
                }
                (Program::Refused(why), _) => why.clone(),
                (_, Some(why)) => why.to_string(),
                _ if device.claim_all && self.in_front.local_rests() => {
                    "a capture is open, and shows what workers have".to_owned()
                }
                _ if device.claim_all => self.in_front.local_refused.clone().unwrap_or_default(),
                _ if device.arrivals.is_some() => BY_TC.to_owned(),
                _ => why_not(device)
                    .or_else(|| of_port.get(name.as_str()).map(|&why| why.to_owned()))
                    .unwrap_or_default(),
            };
            let stands = PortOffload { on, auto: false, reason };
            let stands = match (chosen.contains(name), device.claim_all) {
                (false, _) => stands,
                (true, true) => PortOffload { auto: true, ..stands },
                (true, false) => stands.chosen(),
            };
            device.port.offload = asked.contains(name).then_some(stands);
        }
    }

    /// Returns a text that says which packets that leave through a port are left to the worker, and why.
    fn not_taken(&self, name: &str) -> Option<String> {
        if let Some(why) = self.why_workers_send(name) {
            return Some(format!("what leaves through {name} goes through the worker: {why}"));
        }
        Some(not_taken(name, self.redirect(name)?))
    }

    /// Returns what a port does with packets that are redirected into it, if it does not send them all.
    fn redirect(&self, name: &str) -> Option<TakesRedirect> {
        let takes = self.in_front.redirect.get(name).copied()?.unwrap_or_default();
        (!takes.frames || !takes.multi_buffer).then_some(takes)
    }
}

/// Returns where the tc program is, for people.
fn place_of(hook: Hook, kernel_end: &str) -> String {
    match hook {
        Hook::Tcx => format!("tc program at the egress of {kernel_end} (tcx), behind all others"),
        Hook::Clsact => {
            format!("tc program at the egress of {kernel_end}, as the last filter of clsact: the kernel has no tcx")
        }
    }
}

/// Begins to copy what the program forwards for captures.
fn open_tap(program: &mut XdpOffload, taps: &Arc<Taps>) -> Result<ProgramTap, XskError> {
    let tap = program.open_tap()?;
    ProgramTap::start(tap, Arc::clone(taps)).map_err(|why| XskError::Map {
        ifname: "offload".to_owned(),
        what: "start a thread for captures".to_owned(),
        why: why.to_string(),
    })
}

/// Returns the reason why the program leaves plain packets to the workers, if the tables are too large to be given to
/// it as a whole.
fn not_whole(offload: &Offload) -> Option<String> {
    let all = offload.forwarding.ports.values().all(|port| offload.whole.contains(&port.table));
    (!all).then(|| {
        format!("workers forward what is not steered: the tables have more than {} prefixes", offload::MOST_WHOLE)
    })
}

/// Returns a text about the entries that have no room in the program's maps or counters, because their index is too high.
fn without_room(rows: &Forwarding) -> Option<String> {
    let paths: BTreeSet<u32> = rows
        .paths
        .iter()
        .filter(|&(&index, row)| index >= PATHS || row.slot >= COUNTED_PATHS)
        .map(|(_, row)| row.slot)
        .collect();
    let hops = rows.hops.iter().filter(|&(&index, row)| index >= HOPS || row.slot >= COUNTED_HOPS).count();
    let sids = rows.sids.iter().filter(|&(&index, row)| index >= SIDS || row.slot >= SIDS).count();
    let steers = rows.steers.iter().filter(|&(&index, row)| index >= STEERS || !is_spread_in_maps(row)).count();
    let groups = rows.groups.iter().filter(|&(&index, row)| index >= GROUPS || !is_spread_in_maps(row)).count();
    let above = |numbers: usize, what: &str, most: u32| {
        (numbers > 0).then(|| format!("{numbers} {what}, as the program has room for {most}"))
    };
    let of_workers: Vec<String> = [
        above(sids, "SIDs", SIDS),
        above(steers, "steered prefixes", STEERS),
        above(paths.len(), "paths", COUNTED_PATHS),
        above(groups, "groups of next hops", GROUPS),
        above(hops, "next hops", COUNTED_HOPS),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!of_workers.is_empty()).then(|| format!("workers forward by {}", of_workers.join(" and ")))
}

/// Returns whether the program's maps have room for the members of a group and for their pattern.
fn is_spread_in_maps(group: &GroupRow) -> bool {
    group.count <= 1 || group.pattern < PATTERNS && group.at.saturating_add(group.count) <= MEMBERS
}

/// Returns the devices of the ports in these rows. `from` returns the number of a port whose packets the program may
/// forward. `to` returns the number of a port that packets may be sent through, and what that port takes.
pub fn offload_wiring(
    rows: &Forwarding,
    from: impl Fn(u16) -> Option<u16>,
    to: impl Fn(u16) -> Option<(u16, TakesRedirect)>,
) -> ProgramWiring {
    let leads_to: BTreeSet<u16> = rows.hops.values().map(|hop| hop.port).collect();
    let device = |port: u16| {
        let (number, takes) = to(port)?;
        let mtu = match takes {
            TakesRedirect { frames: false, .. } => 0,
            TakesRedirect { multi_buffer: false, .. } => ONE_BUFFER,
            TakesRedirect { .. } => u32::MAX,
        };
        Some((port, DeviceRow { number: number.into(), mtu, ..DeviceRow::default() }))
    };
    ProgramWiring {
        from: rows.ports.keys().filter_map(|&port| Some((port, from(port)?))).collect(),
        to: leads_to.into_iter().filter_map(device).collect(),
        ..ProgramWiring::default()
    }
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

/// Returns why a device's packets are better left to its worker.
pub(super) fn why_not(device: &Device) -> Option<String> {
    if device.claim_all || device.arrivals.is_some() {
        return None; // there is a tc program, at the other end of the own veth or at the ingress
    }
    let (mode, _) = device.program.chosen();
    if mode != Mode::Native {
        return Some(format!("the XDP program runs in {mode} mode"));
    }
    (device.memory == PacketMemory::ZeroCopy)
        .then(|| "the worker has its packets without a copy (zero-copy)".to_owned())
}

#[cfg(test)]
mod tests {
    use srv6d_fib::{HopRow, PathRow, SidRow};

    use super::*;

    type Change = fn(&mut Forwarding);

    #[test]
    fn what_has_no_room_in_the_maps_is_told_with_the_limit() {
        let several = |at: u32, pattern: u32| GroupRow { count: 2, pattern, at };
        let path = |slot: u32| PathRow { slot, ..PathRow::default() };
        let fits = Forwarding {
            sids: [(SIDS - 1, SidRow { slot: SIDS - 1, ..SidRow::default() })].into(),
            steers: [(STEERS - 1, several(MEMBERS - 2, PATTERNS - 1))].into(),
            paths: [(PATHS - 1, path(COUNTED_PATHS - 1))].into(),
            groups: [(GROUPS - 1, several(0, 0)), (3, GroupRow { count: 1, pattern: 0, at: u32::MAX })].into(),
            hops: [(HOPS - 1, HopRow { slot: COUNTED_HOPS - 1, ..HopRow::default() })].into(),
            ..Forwarding::default()
        };
        assert_eq!(without_room(&fits), None);
        let cases: [(Change, &str); 8] = [
            (
                |rows| {
                    rows.sids.insert(SIDS, SidRow::default());
                },
                "1 SIDs, as the program has room for 4096",
            ),
            (
                |rows| {
                    rows.steers.insert(STEERS, GroupRow::default());
                },
                "1 steered prefixes",
            ),
            (
                |rows| {
                    rows.steers.insert(0, GroupRow { count: 2, pattern: 0, at: MEMBERS - 1 });
                },
                "1 steered prefixes",
            ),
            (
                |rows| {
                    rows.paths.insert(PATHS, PathRow::default());
                },
                "1 paths, as the program has room for 4096",
            ),
            (
                |rows| {
                    rows.groups.insert(GROUPS, GroupRow::default());
                },
                "1 groups of next hops",
            ),
            (
                |rows| {
                    rows.groups.insert(1, GroupRow { count: 2, pattern: PATTERNS, at: 0 });
                },
                "1 groups of next hops",
            ),
            (
                |rows| {
                    rows.hops.insert(HOPS, HopRow::default());
                },
                "1 next hops",
            ),
            (
                |rows| {
                    rows.hops.insert(0, HopRow { slot: COUNTED_HOPS, ..HopRow::default() });
                },
                "1 next hops, as the program has room for 4096",
            ),
        ];
        for (change, expected) in cases {
            let mut rows = fits.clone();
            change(&mut rows);
            let told = without_room(&rows).unwrap_or_default();
            assert!(told.starts_with("workers forward by ") && told.contains(expected), "{expected}: {told}");
        }
    }
}
