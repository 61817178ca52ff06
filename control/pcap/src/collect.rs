//! Packets of several streams, written as one.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};

use crate::{Filter, Packet, Ring, Sorter, Stream, read};

/// Largest number of packets that wait between the streams and the writer.
const QUEUE: usize = 4096;
/// How long a packet waits for those of other streams with an earlier time.
const WAIT: Duration = Duration::from_millis(300);
/// Longest wait for a packet before what is written is flushed.
const REST: Duration = Duration::from_millis(50);
/// Bytes of a megabyte.
const MEGABYTE: u64 = 1_000_000;

/// Options about which packets are written, and where to.
#[derive(Clone, Debug, Default, Args)]
pub struct Wanted {
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// Write only packets that fit: host, net, sid, src, dst, port, udp, tcp, icmp, icmp6, proto, vlan, and, or, not, ()
    #[arg(short, long, value_name = "EXPRESSION", value_parser = Filter::parse)]
    pub filter: Option<Filter>,
    /// End after this number of packets
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Begin another file after so many megabytes; their names end in 00001, 00002, ...
    #[arg(long, value_name = "MB", requires = "write", value_parser = clap::value_parser!(u64).range(1..))]
    pub file_size: Option<u64>,
    /// Number of files that are kept, the last ones
    #[arg(long, value_name = "NUMBER", requires = "file_size", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
}

/// Where packets are written.
pub enum Output {
    /// One stream.
    Stream(Stream<Box<dyn Write + Send>>),
    /// Files.
    Ring(Ring),
}

impl Output {
    /// Writes to this writer.
    ///
    /// # Errors
    /// It accepts no data.
    pub fn to(writer: impl Write + Send + 'static) -> io::Result<Self> {
        Stream::new(Box::new(writer) as Box<dyn Write + Send>).map(Self::Stream)
    }

    /// Opens what the options name. `None`: standard output is a terminal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(wanted: &Wanted) -> io::Result<Option<Self>> {
        match (&wanted.write, wanted.file_size) {
            (Some(file), Some(size)) => {
                let most = usize::try_from(wanted.files).unwrap_or(usize::MAX);
                Ring::new(file, size.saturating_mul(MEGABYTE), most).map(|ring| Some(Self::Ring(ring)))
            }
            (Some(file), None) => Self::to(File::create(file)?).map(Some),
            (None, _) if io::stdout().is_terminal() => Ok(None),
            (None, _) => Self::to(io::stdout()).map(Some),
        }
    }

    /// Describes an interface before there are packets of it, so that whoever looks live sees its name.
    ///
    /// # Errors
    /// The output accepts no more data.
    pub fn interface(&mut self, name: &str) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.interface(name).map(drop),
            Self::Ring(_) => Ok(()),
        }
    }

    fn packet(&mut self, packet: &Packet) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.packet(packet).map(drop),
            Self::Ring(ring) => ring.packet(packet),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Ring(ring) => ring.flush(),
        }
    }
}

/// Streams that are read, each by a thread of its own.
#[derive(Debug)]
pub struct Collector {
    sender: SyncSender<Packet>,
    packets: Receiver<Packet>,
    threads: Vec<JoinHandle<()>>,
}

impl Default for Collector {
    fn default() -> Self {
        let (sender, packets) = sync_channel(QUEUE);
        Self { sender, packets, threads: Vec::new() }
    }
}

impl Collector {
    /// Reads a stream. The names of its interfaces get `prefix` in front. The capture ends when all these streams have ended.
    pub fn stream(&mut self, from: impl BufRead + Send + 'static, prefix: &str) {
        let (sender, prefix) = (self.sender.clone(), prefix.to_owned());
        self.threads.push(std::thread::spawn(move || feed(from, "", &prefix, &sender)));
    }

    /// Reads a pcap stream of an interface beside the others. Its end does not matter.
    pub fn beside(&self, from: impl BufRead + Send + 'static, interface: &str) {
        let (sender, interface) = (self.sender.clone(), interface.to_owned());
        // The thread is not joined: it ends together with its stream or with this process.
        std::thread::spawn(move || feed(from, &interface, "", &sender));
    }

    /// Writes the packets until all streams have ended, enough packets are written, or `is_stopped`.
    ///
    /// # Errors
    /// The output accepts no more data.
    pub fn write(self, wanted: &Wanted, mut output: Output, is_stopped: impl Fn() -> bool) -> io::Result<()> {
        let Self { sender, packets, threads } = self;
        drop(sender);
        let mut writer = Writer { sorter: Sorter::new(WAIT), wanted, written: 0, output: &mut output };
        loop {
            let have_ended = threads.iter().all(JoinHandle::is_finished);
            let is_last = match packets.recv_timeout(REST) {
                Ok(packet) => {
                    writer.sorter.push(packet);
                    false
                }
                Err(RecvTimeoutError::Timeout) => have_ended,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            packets.try_iter().take(QUEUE).for_each(|packet| writer.sorter.push(packet));
            let is_last = is_last || is_stopped();
            let goes_on = writer.write(is_last)?;
            writer.output.flush()?;
            if is_last || goes_on.is_break() {
                return Ok(());
            }
        }
    }
}

/// Reads a stream into a queue.
fn feed(from: impl BufRead, interface: &str, prefix: &str, to: &SyncSender<Packet>) {
    let read = read(from, interface, |mut packet| {
        packet.interface.insert_str(0, prefix);
        match to.send(packet) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    // A stream that is cut or damaged has what was read until then.
    drop(read);
}

struct Writer<'w> {
    sorter: Sorter,
    wanted: &'w Wanted,
    written: u64,
    output: &'w mut Output,
}

impl Writer<'_> {
    /// Writes the packets that have waited long enough, or all of them. It breaks when enough are written.
    fn write(&mut self, all: bool) -> io::Result<ControlFlow<()>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        while let Some(packet) = if all { self.sorter.take() } else { self.sorter.pop(now) } {
            if !self.wanted.filter.as_ref().is_none_or(|filter| filter.fits(&packet.bytes)) {
                continue;
            }
            self.output.packet(&packet)?;
            self.written += 1;
            if self.wanted.count.is_some_and(|count| self.written >= count) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A buffer that stays when the output is gone.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stream(times: &[u64]) -> io::Cursor<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut stream = Stream::new(&mut bytes).unwrap();
        for time in times {
            let vlan = u8::try_from(*time).unwrap();
            let bytes = [&[2; 12][..], &[0x81, 0, 0, vlan, 0, 0]].concat();
            let packet = Packet {
                interface: "eth1".to_owned(),
                time: Duration::from_secs(*time),
                length: bytes.len(),
                bytes,
                ..Packet::default()
            };
            stream.packet(&packet).unwrap();
        }
        stream.flush().unwrap();
        drop(stream);
        io::Cursor::new(bytes)
    }

    fn collected(wanted: &Wanted) -> Vec<(String, u64)> {
        let mut collector = Collector::default();
        collector.stream(stream(&[1, 3, 5]), "leaf00:");
        collector.stream(stream(&[2, 4, 6]), "spine00:");
        let kept = Kept::default();
        collector.write(wanted, Output::to(kept.clone()).unwrap(), || false).unwrap();
        let mut found = Vec::new();
        let written = kept.0.lock().unwrap().clone();
        let whole = read(&written[..], "", |packet| {
            found.push((packet.interface, packet.time.as_secs()));
            ControlFlow::Continue(())
        });
        whole.unwrap();
        found
    }

    #[test]
    fn streams_become_one_with_the_names_of_their_nodes() {
        let mut found = collected(&Wanted::default());
        found.sort_by_key(|(_, time)| *time);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["leaf00:eth1", "spine00:eth1"].repeat(3));
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_enough_is_enough() {
        let filter = Some(Filter::parse("vlan 2 or vlan 4").unwrap());
        let mut found = collected(&Wanted { filter: filter.clone(), ..Wanted::default() });
        found.sort_by_key(|(_, time)| *time);
        assert_eq!(found.iter().map(|(_, time)| *time).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(collected(&Wanted { filter, count: Some(1), ..Wanted::default() }).len(), 1);
    }
}
