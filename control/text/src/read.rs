//! Reads texts from files that a user has named. Their size is bounded, and only regular files are read.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Length of the longest text that [`read_text`] reads, in MiB: as much as fits into a request of the management socket.
const LONGEST: u64 = 16;

/// Reads the text of a regular file.
///
/// # Errors
/// It is not a regular file, is longer than 16 MiB, is not UTF-8, or cannot be read.
pub fn read_text(file: &Path) -> io::Result<String> {
    read_text_up_to(LONGEST, file)
}

/// Reads the text of a regular file that may be larger than most. `longest` is in MiB.
///
/// # Errors
/// It is not a regular file, is longer than `longest`, is not UTF-8, or cannot be read.
pub fn read_text_up_to(longest: u64, file: &Path) -> io::Result<String> {
    if !fs::metadata(file)?.is_file() {
        return Err(invalid("no regular file"));
    }
    // If another file takes its place at this moment, opening it must not block the reader.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    bounded(longest, opened)
}

/// Like [`read_text`], but also reads a pipe until it is closed, and standard input if the file is `-`. Clients use it for
/// `check <(srv6d sonic convert ...)`.
///
/// # Errors
/// The errors are those of [`read_text`].
pub fn read_text_or_pipe(file: &Path) -> io::Result<String> {
    if file == Path::new("-") {
        return within(LONGEST, io::stdin().lock());
    }
    let is_pipe = fs::metadata(file)?.file_type().is_fifo();
    if is_pipe { bounded(LONGEST, fs::File::open(file)?) } else { read_text(file) }
}

fn bounded(longest: u64, opened: fs::File) -> io::Result<String> {
    let most = longest * 1024 * 1024;
    // The text of a sparse file would take memory before it is refused.
    if opened.metadata()?.len() > most {
        return Err(too_long(longest));
    }
    within(longest, opened)
}

fn within(longest: u64, opened: impl Read) -> io::Result<String> {
    let most = longest * 1024 * 1024;
    let mut text = String::new();
    opened.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most { Err(too_long(longest)) } else { Ok(text) }
}

fn too_long(longest: u64) -> io::Error {
    invalid(format!("longer than {longest} MiB"))
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
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
        fs::File::options().write(true).open(&file).unwrap().set_len(LONGEST * 1024 * 1024 + 1).unwrap();
        assert_eq!(read_text(&file).unwrap_err().to_string(), "longer than 16 MiB");
        assert_eq!(read_text_up_to(LONGEST + 1, &file).unwrap().len() as u64, LONGEST * 1024 * 1024 + 1);
        fs::remove_file(file).unwrap();
        for other in ["/dev/zero", "/"] {
            assert_eq!(read_text_or_pipe(Path::new(other)).unwrap_err().to_string(), "no regular file", "{other}");
        }
    }
}
