//! The sink behind the last port: counts arriving frames exactly and drops them.

use std::net::Ipv6Addr;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray};

use crate::BenchError;
use crate::netns::Namespace;
use crate::objects::{self, SAMPLES, failed};

/// Where and how frames end. It changes the order of the rows, so it is the same for all rows of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SinkKind {
    /// A native XDP program. Redirected frames cost it least; every packet from an AF_XDP socket, and every packet that
    /// has grown, is copied by the kernel into a page for the program.
    #[default]
    Xdp,
    /// A program behind the kernel's receive path (tc), as on a host. No page is needed, but a redirected frame has to
    /// become an skb first.
    Tc,
    /// Like [`SinkKind::Xdp`], but slow on purpose, for tests of the bench itself.
    #[value(skip)]
    Slow,
}

impl SinkKind {
    /// Returns an explanation for reports.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Xdp => "native XDP program that counts and drops, the same for all rows",
            Self::Slow => "native XDP program that counts and drops, slowed on purpose",
            Self::Tc => "program behind the kernel's receive path (tc) that counts and drops, the same for all rows",
        }
    }
}

/// A sink on one device.
pub struct Sink {
    receivers: PerCpuArray<MapData, [u64; 2]>,
    first: Array<MapData, [u64; 16]>,
    sampling: Array<MapData, u64>,
    samples: Array<MapData, u64>,
    // Keeps the program attached to the device.
    _ebpf: Ebpf,
}

/// Frames that have arrived so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
}

/// The first frame that arrived since the last request for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Length of the frame.
    pub bytes: usize,
    /// Ethernet destination.
    pub mac: [u8; 6],
    /// Destination address in the first IPv6 header.
    pub destination: Ipv6Addr,
    /// Hop limit in the first IPv6 header.
    pub hop_limit: u8,
}

impl Sink {
    /// Attaches the counting program to a device of the namespace.
    pub fn new(space: &Namespace, device: &str, kind: SinkKind) -> Result<Self, BenchError> {
        let mut ebpf = objects::load(SAMPLES)?;
        match kind {
            SinkKind::Xdp => srv6d_netns::enter(space, || objects::attach(&mut ebpf, "count", device))?,
            SinkKind::Slow => srv6d_netns::enter(space, || objects::attach(&mut ebpf, "count_slowly", device))?,
            SinkKind::Tc => {
                // This enables NAPI on a veth without a native program; redirected frames and receiving threads need
                // NAPI.
                space.shell(&format!("ethtool -K {device} gro on"))?;
                srv6d_netns::enter(space, || objects::attach_behind(&mut ebpf, "count_skb", device))?;
            }
        }
        Ok(Self {
            receivers: objects::map(&mut ebpf, "receivers")?,
            first: objects::map(&mut ebpf, "first_frame")?,
            sampling: objects::map(&mut ebpf, "sampling")?,
            samples: objects::map(&mut ebpf, "samples")?,
            _ebpf: ebpf,
        })
    }

    /// Returns what has arrived since the sink was created.
    pub fn received(&self) -> Result<Received, BenchError> {
        let [frames, bytes] = objects::sum(&self.receivers)?;
        Ok(Received { frames, bytes })
    }

    /// Returns the first frame that has arrived since the last call.
    pub fn first_frame(&mut self) -> Result<Option<Seen>, BenchError> {
        let [length, words @ ..] = self.first.get(&0, 0).map_err(|why| failed("read the first frame", &why))?;
        if length == 0 {
            return Ok(None);
        }
        self.first.set(0, [0; 16], 0).map_err(|why| failed("clear the first frame", &why))?;
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let part = |at: usize, len: usize| header.get(at..at + len).unwrap_or_default();
        Ok(Some(Seen {
            bytes: length as usize,
            mac: part(0, 6).try_into().unwrap_or_default(),
            destination: Ipv6Addr::from(<[u8; 16]>::try_from(part(38, 16)).unwrap_or_default()),
            hop_limit: part(21, 1).first().copied().unwrap_or_default(),
        }))
    }

    /// Starts sampling latency with every `every`-th frame that has a time stamp; 0: no samples.
    pub fn sample(&mut self, every: u64) -> Result<(), BenchError> {
        for (index, value) in [(1, 0), (2, 0), (0, every)] {
            self.sampling.set(index, value, 0).map_err(|why| failed("set the sampling", &why))?;
        }
        Ok(())
    }

    /// Returns the latency samples.
    pub fn samples(&self) -> Result<Vec<Duration>, BenchError> {
        let taken = self.sampling.get(&2, 0).map_err(|why| failed("read the sampling", &why))?;
        let taken = taken.min(u64::from(SAMPLES)) as u32;
        let read = |index| self.samples.get(&index, 0).map(Duration::from_nanos);
        (0..taken).map(read).collect::<Result<_, _>>().map_err(|why| failed("read a sample", &why))
    }
}
