//! Frames with their VLAN tags: the kernel takes a tag off before a packet socket shows the frame, an XDP program sees
//! what is on the wire.

use srv6d_xsk::{Mode, Program, ProgramSettings, Rings, Socket, Umem};

/// Enough for the default rings.
const FRAMES: u32 = 4096;
const BURST: usize = 64;

/// An AF_XDP socket that gets the frames of some VLANs of a device. All others are left to the kernel.
pub struct Tagged {
    umem: Umem,
    socket: Socket,
    /// Claims for as long as it lives.
    _program: Program,
}

impl Tagged {
    /// Opens the only queue of a device.
    ///
    /// # Errors
    /// AF_XDP does not work here.
    pub fn open(device: &str, vids: Vec<u16>) -> Result<Self, String> {
        let settings = ProgramSettings { vlans: vids, claim_all: true, ..ProgramSettings::default() };
        let open = || {
            let mut umem = Umem::new(FRAMES)?;
            let mut program = Program::attach(device, Mode::Auto, &settings)?;
            let mut socket = Socket::open(&umem, device, 0, Mode::Auto, Rings::default())?;
            // The first burst hands the kernel its chunks.
            socket.rx_burst(&mut umem, 0, &mut Vec::new());
            program.set_socket(0, &socket)?;
            Ok(Self { umem, socket, _program: program })
        };
        open().map_err(|why: srv6d_xsk::XskError| format!("tagged frames of {device}: {why}"))
    }

    /// What has come in.
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
