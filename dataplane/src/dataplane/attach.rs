//! Attaching and detaching ports, and the packet memory of their sockets.
//!
//! A UMEM is in zero-copy mode for all its ports or for none, and its first socket decides. The first socket of a
//! worker's UMEM is on srv6d's own veth, which has no zero-copy. So each worker has two:
//!
//! ```text
//! copy:       own veth (first, lives as long as the process) | veths, NICs without zero-copy
//! zero-copy:  NICs with zero-copy. Made for the first of them, and gone with it
//! ```
//!
//! When the first port of the zero-copy memory goes, the others have to go with it, because its sockets hold the
//! memory's own descriptor. They are attached again on a new memory.

use srv6d_xsk::{
    BusyPollWatch, Capacity, ClaimProgram, LossWatch, Mode, Program, ProgramSettings, Socket, Umem, XskError,
    device_features, probe,
};

use super::{AttachedPort, Dataplane, DataplaneError, Device, descriptors};
use crate::counters::MAX_SOCKETS;
use crate::worker::{Command, PacketMemory};

/// The result of opening the sockets of a port.
struct Chosen {
    memory: PacketMemory,
    mode: Mode,
    /// Reasons why a faster mode was not possible. Empty texts are not shown.
    reasons: Vec<String>,
    multi_buffer: bool,
    busy_polls: Vec<BusyPollWatch>,
    losses: Vec<LossWatch>,
}

impl Chosen {
    fn reason(&self) -> String {
        let reasons: Vec<&str> = self.reasons.iter().map(String::as_str).filter(|reason| !reason.is_empty()).collect();
        if reasons.is_empty() { "native mode was asked for".to_owned() } else { reasons.join("; ") }
    }
}

/// The kind of a device. It is known before the device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OwnVeth,
    Port,
    /// A port that uses the zero-copy memory without being in zero-copy mode.
    #[cfg(feature = "faults")]
    Apart,
}

impl Dataplane {
    /// Attaches srv6d's own veth. All packets that the kernel sends into it are claimed. It must be attached before
    /// every other port, because its socket is the first one of a worker's UMEM, on which the UMEM depends.
    /// `kernel_end` is the name of the other end.
    ///
    /// # Errors
    /// Returns the same errors as [`attach`](Self::attach).
    pub fn attach_own_veth(&mut self, device: &str, kernel_end: &str) -> Result<AttachedPort, DataplaneError> {
        kernel_end.clone_into(&mut self.kernel_end);
        self.attach_device(device, Mode::Native, Kind::OwnVeth)
    }

    /// Loads the XDP program on a device and opens a socket for every worker.
    ///
    /// # Errors
    /// Returns an error if another XDP program is there, the device has too few queues, or the kernel refuses.
    pub fn attach(&mut self, device: &str, mode: Mode) -> Result<AttachedPort, DataplaneError> {
        self.attach_device(device, mode, Kind::Port)
    }

    /// Attaches a port to the zero-copy memory without zero-copy mode. Few machines have zero-copy NICs, and the
    /// traffic between the two memories should be tested on every machine.
    ///
    /// # Errors
    /// Returns the same errors as [`attach`](Self::attach).
    #[cfg(feature = "faults")]
    pub fn attach_apart(&mut self, device: &str) -> Result<AttachedPort, DataplaneError> {
        self.attach_device(device, Mode::Native, Kind::Apart)
    }

    fn attach_device(&mut self, device: &str, mode: Mode, kind: Kind) -> Result<AttachedPort, DataplaneError> {
        let queues = device_features::queues(device)?;
        let workers = self.workers.len();
        if (queues as usize) < workers {
            return Err(DataplaneError::TooFewQueues { device: device.to_owned(), queues, workers });
        }
        descriptors::check(device, workers)?;
        let next = self.numbers.len();
        let number = *self.numbers.entry(device.to_owned()).or_insert(next);
        if number >= MAX_SOCKETS {
            return Err(DataplaneError::TooManyDevices(device.to_owned()));
        }
        let claim_all = kind == Kind::OwnVeth;
        let settings = ProgramSettings { claim_all, untagged: claim_all, ..ProgramSettings::default() };
        let loaded = self.claim_program()?;
        let place = u32::try_from(number).unwrap_or(u32::MAX);
        let mut program = Program::attach_loaded(&loaded, place, device, mode, &settings)?;
        let mut chosen = match kind {
            #[cfg(feature = "faults")]
            Kind::Apart => self.open_in_zero_copy_memory(device, number, mode, &mut program)?,
            Kind::OwnVeth | Kind::Port => self.open_sockets(device, number, mode, &mut program)?,
        };
        if kind != Kind::OwnVeth {
            chosen.reasons.extend(unseen_tags(device, &program));
            keep_napi(device, &program);
        }
        if queues as usize > workers {
            let others = format!("queues {workers} to {}", queues - 1);
            chosen.reasons.push(format!(
                "{others} have no worker: the kernel forwards what comes in there, and on an edge or host port what may be for \
                 SIDs is dropped (`ethtool -L {device} combined {workers}` gives all to workers)"
            ));
        }
        let port = AttachedPort {
            device: device.to_owned(),
            mode: chosen.mode.to_string(),
            reason: chosen.reason(),
            queues: queues.min(u32::try_from(workers).unwrap_or(u32::MAX)),
            multi_buffer: chosen.multi_buffer,
            offload: None,
        };
        self.losses.entry(device.to_owned()).or_default().add(chosen.losses.into_iter());
        let attached = Device {
            program,
            memory: chosen.memory,
            claim_all,
            port: port.clone(),
            busy_polls: chosen.busy_polls,
            vlans: Vec::new(),
            asked_mode: mode,
            arrivals: None,
        };
        self.devices.insert(device.to_owned(), attached);
        self.arrivals_refused = None;
        self.publish_snapshot(None)?;
        self.claim()?;
        self.sync_offload();
        Ok(port)
    }

    /// Returns the program of all ports, and loads it with the first of them.
    fn claim_program(&mut self) -> Result<ClaimProgram, XskError> {
        if let Some(loaded) = &self.claim_program {
            return Ok(loaded.clone());
        }
        let capacity = [MAX_SOCKETS, self.workers.len()].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let [ports, queues] = capacity;
        let loaded = ClaimProgram::load(Capacity { ports, queues })?;
        Ok(self.claim_program.insert(loaded).clone())
    }

    /// Opens a socket for every worker, in zero-copy mode if that is wanted and possible.
    fn open_sockets(
        &mut self,
        device: &str,
        number: usize,
        mode: Mode,
        program: &mut Program,
    ) -> Result<Chosen, XskError> {
        let why_not = match rules_zero_copy_out(device, mode, program) {
            Some(why_not) => why_not,
            None => match self.open_in_zero_copy_memory(device, number, Mode::ZeroCopy, program) {
                Ok(chosen) => return Ok(chosen),
                Err(why) if mode == Mode::ZeroCopy => return Err(why),
                Err(why) => format!("not zero-copy: {why}"),
            },
        };
        let copy = if mode == Mode::Auto { program.chosen().0 } else { mode };
        let mut chosen =
            self.open_in(PacketMemory::Copy, device, number, copy, program).inspect_err(|_| self.close(number))?;
        chosen.reasons.insert(0, why_not);
        Ok(chosen)
    }

    /// Opens the sockets in the zero-copy memory, which is created with the first of them.
    fn open_in_zero_copy_memory(
        &mut self,
        device: &str,
        number: usize,
        mode: Mode,
        program: &mut Program,
    ) -> Result<Chosen, XskError> {
        let is_first = self.zero_copy_first.is_none();
        if is_first {
            self.make_zero_copy_memory()?;
        }
        let opened = self.open_in(PacketMemory::ZeroCopy, device, number, mode, program);
        match &opened {
            Ok(_) if is_first => self.zero_copy_first = Some(device.to_owned()),
            Ok(_) => {}
            Err(_) => {
                self.close(number);
                if is_first {
                    self.drop_zero_copy_memory();
                }
            }
        }
        opened
    }

    fn open_in(
        &self,
        memory: PacketMemory,
        device: &str,
        number: usize,
        mode: Mode,
        program: &mut Program,
    ) -> Result<Chosen, XskError> {
        let (reasons, busy_polls, losses) = (Vec::new(), Vec::new(), Vec::new());
        let mut chosen = Chosen { memory, mode, reasons, multi_buffer: false, busy_polls, losses };
        let budget = self.settings.busy_budget;
        for (queue, worker) in (0..).zip(&self.workers) {
            let Some(umem) = worker.memory(memory) else { continue };
            let mut socket = Socket::open_on(umem, device, queue, mode, self.rings)?;
            program.set_socket(queue, &socket)?;
            chosen.losses.push(socket.losses());
            chosen.busy_polls.extend((budget > 0).then(|| socket.prefer_busy_poll(budget)));
            let (mode, reason) = socket.chosen();
            (chosen.mode, chosen.reasons, chosen.multi_buffer) = (mode, vec![reason.to_owned()], socket.multi_buffer());
            worker.tell(Command::Open(number, memory, Box::new(socket)));
        }
        Ok(chosen)
    }

    fn close(&self, number: usize) {
        self.workers.iter().for_each(|worker| worker.tell(Command::Close(number)));
    }

    fn make_zero_copy_memory(&mut self) -> Result<(), XskError> {
        let umems: Result<Vec<Umem>, XskError> = self.workers.iter().map(|_| self.umem()).collect();
        for (worker, umem) in self.workers.iter_mut().zip(umems?) {
            worker.zero_copy = Some(umem.handle());
            worker.tell(Command::ZeroCopy(Some(Box::new(umem))));
        }
        Ok(())
    }

    fn drop_zero_copy_memory(&mut self) {
        self.zero_copy_first = None;
        for worker in &mut self.workers {
            worker.zero_copy = None;
            worker.tell(Command::ZeroCopy(None));
        }
    }

    /// Detaches a device. Its XDP program is removed first, so that the kernel receives the packets from then on.
    /// Returns all detached devices: if the device was the first one of the zero-copy memory, all others in that memory
    /// are detached too, and the caller has to attach them again.
    pub fn detach(&mut self, device: &str) -> Vec<String> {
        let Some(memory) = self.devices.get(device).map(|device| device.memory) else { return Vec::new() };
        let with_memory = self.zero_copy_first.as_deref() == Some(device);
        let goes = |name: &str, other: &Device| name == device || with_memory && other.memory == memory;
        let gone: Vec<String> =
            self.devices.iter().filter(|&(name, other)| goes(name, other)).map(|(name, _)| name.clone()).collect();
        for name in &gone {
            self.devices.remove(name);
            let number = self.numbers.get(name).copied();
            self.in_front.forget(name, number);
            if let Some(number) = number {
                self.close(number);
            }
        }
        if with_memory {
            self.drop_zero_copy_memory();
        }
        if let Err(why) = self.publish_snapshot(None) {
            tracing::error!("{device}: {why}");
        }
        self.sync_offload();
        gone
    }
}

/// Makes a NIC leave VLAN tags in frames, if the driver allows that. Returns a note about a port whose tagged frames
/// may still look untagged.
fn unseen_tags(device: &str, program: &Program) -> Option<String> {
    if let Err(why) = device_features::set_tag_stripping_off(device) {
        tracing::debug!("{device}: {why}");
    }
    let why = program.cannot_read_tags().filter(|_| device_features::may_strip_tags(device))?;
    let what = format!(
        "VLAN tags may be unseen, and tagged frames be forwarded as untagged: turn `txvlan` off at the other end of a veth, \
         `rxvlan` off on a NIC (ethtool -K), or use Linux 6.8 and native XDP ({why})"
    );
    tracing::warn!("{device}: {what}");
    Some(what)
}

/// Turns generic receive offload of a veth on. A veth takes what an XDP program redirects into its other end only while it
/// has NAPI, by a native XDP program of its own or by this offload. So what comes from an XDP program at the other end is
/// not lost when this srv6d ends. The offload stays on; with the XDP program the kernel has turned it on anyway.
fn keep_napi(device: &str, program: &Program) {
    let is_veth = device_features::driver(device).is_ok_and(|driver| driver == "veth");
    if is_veth
        && program.chosen().0 == Mode::Native
        && let Err(why) = device_features::set_receive_offload(device, true)
    {
        tracing::warn!("{device}: {why}: what an XDP program at the other end sends is lost when this srv6d ends");
    }
}

/// Returns the reason why zero-copy is not tried. It is empty if zero-copy is not wanted, or the socket reports the
/// reason.
fn rules_zero_copy_out(device: &str, mode: Mode, program: &Program) -> Option<String> {
    let is_known_without = || probe::interface(device).is_ok_and(|interface| interface.zero_copy == Some(false));
    match mode {
        Mode::ZeroCopy => None,
        Mode::Auto if program.chosen().0 == Mode::Generic => Some(String::new()),
        Mode::Auto => is_known_without().then(|| "the driver has no zero-copy".to_owned()),
        Mode::Native | Mode::Generic => Some(String::new()),
    }
}
