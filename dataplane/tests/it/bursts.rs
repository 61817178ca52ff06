//! Untagged packets are written and sent in bursts, also beside a tagged port, whose packets are counted one by one.

use std::sync::Arc;

use srv6d_dataplane::io::Io;
use srv6d_dataplane::memory::{Memory, MemoryFrame};
use srv6d_dataplane::{BURST, DeviceCounters, Snapshot, Step, Wiring, WorkerCounters};
use srv6d_srv6::desired::{Hop, Mac, Port, PortId, Route, RouteAction, TableId};
use srv6d_srv6::{Frames, Slots, Tables, Tally};
use srv6d_wire::{Extent, Packet};

use super::step::{in_frame, node, v6};

const VID: u16 = 100;

/// Ports in memory that count how often they are handed packets to be sent.
struct Counting {
    io: Memory,
    handed: usize,
}

impl Frames for Counting {
    type Frame = MemoryFrame;

    fn packet<'f>(&self, frame: &'f mut MemoryFrame) -> Packet<'f> {
        self.io.packet(frame)
    }

    fn place(&self, frame: &mut MemoryFrame, at: Extent, keep_tail: bool) {
        self.io.place(frame, at, keep_tail);
    }
}

impl Io for Counting {
    fn sockets(&self) -> usize {
        self.io.sockets()
    }

    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<MemoryFrame>) {
        self.io.receive(socket, max, out);
    }

    fn packet_and_further<'f>(&'f self, frame: &'f mut MemoryFrame) -> (Packet<'f>, impl Fn(usize) -> u64 + 'f) {
        self.io.packet_and_further(frame)
    }

    fn packet_len(&self, frame: &MemoryFrame) -> usize {
        self.io.packet_len(frame)
    }

    fn send(&mut self, socket: usize, frames: &mut impl Iterator<Item = MemoryFrame>) -> Result<(), MemoryFrame> {
        self.handed += 1;
        self.io.send(socket, frames)
    }

    fn recycle(&mut self, frame: MemoryFrame) {
        self.io.recycle(frame);
    }

    fn flush(&mut self, socket: usize) {
        self.io.flush(socket);
    }
}

/// Returns the snapshot of a node whose port 3 is a VLAN of port 1's device, and the slot of its counters.
fn snapshot() -> (Snapshot, usize) {
    let mut desired = node();
    let mac = desired.ports[1].mac;
    desired.ports.push(Port { vlan: Some(VID), ..Port::fabric("p1.100", 1, mac, 1500) });
    let via = "2001:db8:3::2".parse().unwrap();
    desired.neighbors.insert((PortId(3), via), Mac([2, 0, 0, 0, 3, 2]));
    let tagged = RouteAction::Via(vec![Hop { port: PortId(3), via: Some(via), weight: 1 }]);
    desired.routes.push(Route { table: TableId::MAIN, prefix: "5000::/16".parse().unwrap(), action: tagged });
    let mut slots = Slots::default();
    let tables = Tables::build(&desired, &mut slots).unwrap();
    let slot = slots.vlans.slot("p1.100".to_owned()) as usize;
    let direct = Snapshot::direct(tables, Arc::new(Tally::new(&slots)), 3);
    let socket_of = vec![Some(0), Some(1), Some(2), Some(1)];
    let vlans = vec![Vec::new(), vec![(VID, slot)], Vec::new()];
    let wiring = Wiring { socket_of, vlans, ..direct.wiring };
    (Snapshot { wiring, ..direct }, slot)
}

fn frames(destination: &str) -> impl Iterator<Item = Vec<u8>> {
    (0..BURST).map(move |number| in_frame(&v6(&format!("2000::{number:x}"), destination, 17, 64, &[7; 64])))
}

/// Returns a frame to `3000::1`, which leaves by port 1, addressed to this port, with at most one tag.
fn to_port(port: u8, tag: Option<u8>, number: usize) -> Vec<u8> {
    let mut frame = in_frame(&v6(&format!("2000::{number:x}"), "3000::1", 17, 64, &[7; 64]));
    frame[..6].copy_from_slice(&[2, 0, 0, 0, port, 1]);
    if let Some(tag) = tag {
        frame.splice(12..12, [0x81, 0, 0, tag]);
    }
    frame
}

#[test]
fn what_a_tc_program_has_claimed_on_a_port_is_forwarded_as_received_there() {
    let (snapshot, _) = snapshot();
    let wiring = Wiring { own_veth: Some(2), ..snapshot.wiring };
    let snapshot = Snapshot { wiring, ..snapshot };
    let counters = Arc::new(WorkerCounters::default());
    let mut step = Step::new(0, Arc::clone(&counters), |_, _| {});
    // Applications send the first and the fifth one, port 0 has received those between them, and nobody has a port 8.
    let received = [(2, None), (0, Some(1)), (0, Some(1)), (0, Some(1)), (2, None), (0, Some(9))];
    let frames = received.iter().enumerate().map(|(number, &(port, tag))| to_port(port, tag, number));
    let mut io = Memory::new(3);
    io.port(2).unwrap().rx.extend(frames.map(|frame| MemoryFrame::new(&frame)));
    assert_eq!(step.round(&mut io, &snapshot, 1), received.len());
    let sent: Vec<(usize, Vec<u8>)> = io.take_sent().into_iter().map(|(to, frame)| (to, frame.bytes())).collect();
    assert_eq!(sent.len(), 5);
    for (number, (socket, frame)) in sent.iter().enumerate() {
        let last_of_source = u8::try_from(number).unwrap();
        assert_eq!((*socket, &frame[12..14], frame[37]), (1, [0x86, 0xdd].as_slice(), last_of_source), "in order");
    }
    // Counted where they arrived: three at port 0, two and the one without a port at the veth.
    let received_by = |socket| {
        let mut device = DeviceCounters::default();
        counters.add_socket_to(socket, &mut device);
        device.rx_packets
    };
    assert_eq!([0, 1, 2].map(received_by), [3, 0, 3]);
}

#[test]
fn a_tagged_port_does_not_take_the_others_their_bursts() {
    let (snapshot, slot) = snapshot();
    let mut step = Step::new(0, Arc::new(WorkerCounters::default()), |_, _| {});
    let mut forward = |socket: usize, frames: Vec<Vec<u8>>| {
        let mut io = Counting { io: Memory::new(3), handed: 0 };
        io.io.port(socket).unwrap().rx.extend(frames.iter().map(|frame| MemoryFrame::new(frame)));
        step.round(&mut io, &snapshot, 1);
        let sent: Vec<(usize, Vec<u8>)> =
            io.io.take_sent().into_iter().map(|(socket, frame)| (socket, frame.bytes())).collect();
        (io.handed, sent)
    };
    let tally = Arc::clone(&snapshot.tallies[0]);
    let tagged = |frame: &Vec<u8>| frame.get(12..16) == Some(&[0x81, 0, 0, 100]);

    let (handed, sent) = forward(0, frames("3000::1").collect());
    assert_eq!((handed, sent.len()), (1, BURST), "all of it is one burst");
    assert!(sent.iter().all(|(socket, frame)| *socket == 1 && !tagged(frame)));
    assert_eq!(tally.vlans_tx[slot].read(), (0, 0));

    let (_, sent) = forward(0, frames("5000::1").collect());
    assert!(sent.len() == BURST && sent.iter().all(|(socket, frame)| *socket == 1 && tagged(frame)));
    let bytes: usize = sent.iter().map(|(_, frame)| frame.len()).sum();
    assert_eq!(tally.vlans_tx[slot].read(), (BURST as u64, bytes as u64));

    // The frames that left with a tag come in again by the tagged port p1, addressed to its MAC address.
    let mac = [2, 0, 0, 0, 1, 1];
    let back = |(_, mut frame): (usize, Vec<u8>)| {
        frame[..6].copy_from_slice(&mac);
        frame
    };
    forward(1, sent.into_iter().map(back).collect());
    assert_eq!(tally.vlans_rx[slot].read(), (BURST as u64, bytes as u64));
}
