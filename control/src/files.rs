//! Texts from files that somebody has named: bounded in size, and no devices.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Longest text that is read, in bytes: what fits into a request of the management socket.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The text of a regular file.
///
/// # Errors
/// It is something else, longer than 16 MiB, no UTF-8, or cannot be read.
pub fn read_text(file: &Path) -> io::Result<String> {
    if !fs::metadata(file)?.is_file() {
        return Err(not("no regular file"));
    }
    // What takes its place in this moment must not keep the reader waiting.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    bounded(opened)
}

/// The same, or what comes out of a pipe: for clients, `check <(srv6d sonic convert ...)`. Blocks until the pipe is closed.
///
/// # Errors
/// As [`read_text`].
pub fn read_text_or_pipe(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.file_type().is_fifo() { bounded(fs::File::open(file)?) } else { read_text(file) }
}

fn bounded(opened: fs::File) -> io::Result<String> {
    let mut text = String::new();
    opened.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST { Err(not("longer than 16 MiB")) } else { Ok(text) }
}

fn not(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn devices_directories_and_long_files_are_refused_by_name() {
        let file = std::env::temp_dir().join(format!("srv6d-files-{}", std::process::id()));
        fs::write(&file, "text").unwrap();
        assert_eq!(read_text(&file).unwrap(), "text");
        fs::File::options().write(true).open(&file).unwrap().set_len(LONGEST + 1).unwrap();
        assert_eq!(read_text(&file).unwrap_err().to_string(), "longer than 16 MiB");
        fs::remove_file(file).unwrap();
        for other in ["/dev/zero", "/"] {
            assert_eq!(read_text_or_pipe(Path::new(other)).unwrap_err().to_string(), "no regular file", "{other}");
        }
    }
}
