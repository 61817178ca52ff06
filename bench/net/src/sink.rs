//! The last port: counts what arrives, exactly, and drops it.

use std::net::Ipv6Addr;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray};

use crate::BenchError;
use crate::netns::Namespace;
use crate::objects::{self, SAMPLES, failed};

/// How frames end. It changes the ranking of what forwards, so it is one for all rows of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SinkKind {
    /// A native XDP program: what was redirected costs it least, and the kernel copies every packet from an AF_XDP
    /// socket, or one that has grown, into a page for it.
    #[default]
    Xdp,
    /// A program behind the kernel's receive path (tc), as a host receives: no page is needed, and what was redirected
    /// becomes an skb first.
    Tc,
    /// The first one, slowed on purpose: for tests of the bench itself.
    #[value(skip)]
    Slow,
}

impl SinkKind {
    /// For a report.
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
    // Holds the program on the device.
    _ebpf: Ebpf,
}

/// What arrived so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The first frame that arrived since it was last asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its length.
    pub bytes: usize,
    /// Its Ethernet destination.
    pub mac: [u8; 6],
    /// Destination in its first IPv6 header.
    pub destination: Ipv6Addr,
    /// Hop limit in its first IPv6 header.
    pub hop_limit: u8,
}

impl Sink {
    /// Puts the counting program on a device of the namespace.
    pub fn new(space: &Namespace, device: &str, kind: SinkKind) -> Result<Self, BenchError> {
        let mut ebpf = objects::load(SAMPLES)?;
        match kind {
            SinkKind::Xdp => space.inside(|| objects::attach(&mut ebpf, "count", device))?,
            SinkKind::Slow => space.inside(|| objects::attach(&mut ebpf, "count_slowly", device))?,
            SinkKind::Tc => {
                // What gives a veth NAPI without a native program: a redirected frame needs it, and so does a thread.
                space.shell(&format!("ethtool -K {device} gro on"))?;
                space.inside(|| objects::attach_behind(&mut ebpf, "count_skb", device))?;
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

    /// What arrived since the sink was made.
    pub fn received(&self) -> Result<Received, BenchError> {
        let [frames, bytes] = objects::sum(&self.receivers)?;
        Ok(Received { frames, bytes })
    }

    /// The first frame since the last call.
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

    /// From now on every `every`-th stamped frame is a sample of the latency; 0: none.
    pub fn sample(&mut self, every: u64) -> Result<(), BenchError> {
        for (index, value) in [(1, 0), (2, 0), (0, every)] {
            self.sampling.set(index, value, 0).map_err(|why| failed("set the sampling", &why))?;
        }
        Ok(())
    }

    /// The samples taken.
    pub fn samples(&self) -> Result<Vec<Duration>, BenchError> {
        let taken = self.sampling.get(&2, 0).map_err(|why| failed("read the sampling", &why))?;
        let taken = taken.min(u64::from(SAMPLES)) as u32;
        let read = |index| self.samples.get(&index, 0).map(Duration::from_nanos);
        (0..taken).map(read).collect::<Result<_, _>>().map_err(|why| failed("read a sample", &why))
    }
}
