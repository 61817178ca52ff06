//! Receives frames with their VLAN tags. The kernel removes a tag before a packet socket gets the frame; an XDP program
//! sees the frame as it is on the wire.

use srv6d_xsk::{Mode, Program, ProgramSettings, Rings, Socket, Umem};

/// Number of frame buffers; it suffices for the default rings.
const FRAMES: u32 = 4096;
const BURST: usize = 64;

/// An AF_XDP socket that receives the frames of some VLANs of a device. All other frames are left to the kernel.
pub struct Tagged {
    umem: Umem,
    socket: Socket,
    /// The XDP program, which claims frames as long as this value lives.
    _program: Program,
}

impl Tagged {
    /// Opens a socket on the only queue of a device.
    ///
    /// # Errors
    /// If AF_XDP does not work on this machine.
    pub fn open(device: &str, vids: Vec<u16>) -> Result<Self, String> {
        let settings = ProgramSettings { vlans: vids, claim_all: true, ..ProgramSettings::default() };
        let open = || {
            let mut umem = Umem::new(FRAMES)?;
            let mut program = Program::attach(device, Mode::Auto, &settings)?;
            let mut socket = Socket::open(&umem, device, 0, Mode::Auto, Rings::default())?;
            // The first burst gives the kernel its buffers.
            socket.rx_burst(&mut umem, 0, &mut Vec::new());
            program.set_socket(0, &socket)?;
            Ok(Self { umem, socket, _program: program })
        };
        open().map_err(|why: srv6d_xsk::XskError| format!("tagged frames of {device}: {why}"))
    }

    /// Returns the frames received since the last call.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.socket.rx_burst(&mut self.umem, BURST, &mut frames);
        let mut received = Vec::new();
        for frame in frames {
            received.push(self.umem.segments(&frame).flatten().copied().collect());
            self.umem.recycle(frame);
        }
        received
    }
}
