//! A ring of files: when one is full, the next one is begun, and the oldest one is removed.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::{Packet, Stream};

/// A ring of files. Their names are that of the first one with a number in front of the extension.
pub struct Ring {
    name: PathBuf,
    size: usize,
    most: usize,
    files: VecDeque<PathBuf>,
    begun: u64,
    stream: Stream<File>,
    written: usize,
}

impl Ring {
    /// Begins the first file. A file takes packets until it has `size` bytes, and at most `most` files are kept, at least one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(name: &Path, size: u64, most: usize) -> io::Result<Self> {
        let first = numbered(name, 1);
        let stream = Stream::new(File::create(&first)?)?;
        let (name, size) = (name.to_owned(), usize::try_from(size).unwrap_or(usize::MAX));
        Ok(Self { name, size, most: most.max(1), files: [first].into(), begun: 1, stream, written: 0 })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub fn packet(&mut self, packet: &Packet) -> io::Result<()> {
        if self.written >= self.size {
            self.turn()?;
        }
        self.written += self.stream.packet(packet)?;
        Ok(())
    }

    /// Writes out everything that is buffered.
    ///
    /// # Errors
    /// The file accepts no more data.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    fn turn(&mut self) -> io::Result<()> {
        self.stream.flush()?;
        self.begun += 1;
        let next = numbered(&self.name, self.begun);
        self.stream = Stream::new(File::create(&next)?)?;
        self.written = 0;
        self.files.push_back(next);
        while self.files.len() > self.most {
            let Some(oldest) = self.files.pop_front() else { break };
            match fs::remove_file(oldest) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns `DIR/NAME_00001.EXTENSION`.
fn numbered(name: &Path, number: u64) -> PathBuf {
    let stem = name.file_stem().unwrap_or_default().to_string_lossy();
    let extension = name.extension().map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    name.with_file_name(format!("{stem}_{number:05}{extension}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::read;
    use std::io::BufReader;
    use std::ops::ControlFlow;

    #[test]
    fn the_last_files_stay_and_each_is_whole() {
        let directory = std::env::temp_dir().join(format!("srv6d-ring-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut ring = Ring::new(&directory.join("a.pcapng"), 1000, 3).unwrap();
        let packet = |number: u8| Packet {
            interface: "eth1".to_owned(),
            bytes: vec![number; 200],
            length: 200,
            ..Packet::default()
        };
        (0..40).for_each(|number| ring.packet(&packet(number)).unwrap());
        ring.flush().unwrap();
        let mut names: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut numbers = Vec::new();
        for name in &names {
            let whole = read(BufReader::new(File::open(name).unwrap()), "", |packet| {
                assert_eq!(packet.interface, "eth1");
                numbers.extend(packet.bytes.first());
                ControlFlow::Continue(())
            });
            whole.unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| name.to_string_lossy().contains("a_000")), "{names:?}");
        assert!(numbers.len() >= 10 && numbers.last() == Some(&39) && numbers.is_sorted(), "{numbers:?}");
    }
}
