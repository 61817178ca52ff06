//! The far end of a port, byte by byte: an AF_XDP socket that receives every frame before the kernel processes it.
//!
//! A packet socket is not sufficient, because the kernel removes the VLAN tag from a frame before the socket receives
//! it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::net::Ipv6Addr;

use srv6d_netns as netns;
use srv6d_xsk::{Mode, Program, ProgramSettings, Rings, Socket, Umem, UmemRings};

use super::rig::{Rig, must, wait_for};

pub struct Wire {
    umem: Umem,
    socket: Socket,
    _program: Program,
}

impl Wire {
    /// Takes over the device `wire` of a host. The calling thread stays in the host's namespace.
    pub fn open(rig: &Rig, host: &str, vlans: &[u16]) -> Self {
        Self::open_in(&rig.ns(host), vlans)
    }

    /// Like [`Self::open`], in a namespace of any name.
    pub fn open_in(namespace: &str, vlans: &[u16]) -> Self {
        netns::move_thread(namespace).unwrap();
        let settings =
            ProgramSettings { claim_all: true, untagged: true, vlans: vlans.to_vec(), ..ProgramSettings::default() };
        let mut umem = Umem::with_rings(1024, UmemRings { fill: 256, completion: 256 }).unwrap();
        let mut program = Program::attach("wire", Mode::Native, &settings).unwrap();
        let mut socket = Socket::open(&umem, "wire", 0, Mode::Native, Rings { rx: 256, tx: 256 }).unwrap();
        socket.rx_burst(&mut umem, 0, &mut Vec::new()); // gives the kernel its chunks
        program.set_socket(0, &socket).unwrap();
        Self { umem, socket, _program: program }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let frame = self.umem.frame_of(bytes).unwrap();
        assert!(self.socket.tx(frame).is_ok());
        self.socket.flush(&mut self.umem);
    }

    /// Waits for the next frame.
    pub fn receive(&mut self) -> Vec<u8> {
        wait_for("frame on the wire", || self.poll())
    }

    pub fn poll(&mut self) -> Option<Vec<u8>> {
        let mut frames = Vec::new();
        self.socket.rx_burst(&mut self.umem, 1, &mut frames);
        let frame = frames.pop()?;
        let bytes = self.umem.segments(&frame).flatten().copied().collect();
        self.socket.recycle(&mut self.umem, frame);
        Some(bytes)
    }
}

/// Returns the MAC address of a device.
pub fn mac(rig: &Rig, node: &str, device: &str) -> [u8; 6] {
    let shown = must(&format!("ip netns exec {} cat /sys/class/net/{device}/address", rig.ns(node)));
    let bytes: Vec<u8> = shown.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Returns an Ethernet frame that contains `inside`, with at most one VLAN tag.
pub fn ethernet(to: [u8; 6], from: [u8; 6], vid: Option<u16>, ethertype: u16, inside: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    if let Some(vid) = vid {
        frame.extend(0x8100_u16.to_be_bytes());
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(inside);
    frame
}

/// Returns an IPv6 packet.
pub fn ipv6(source: &str, destination: &str, next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next_header, hop_limit]);
    packet.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(destination.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(payload);
    packet
}
