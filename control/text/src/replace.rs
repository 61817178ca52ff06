//! Replacement of files in one step: a file is written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file and replaces an existing one of that name. A reader sees either the old or the new content, also after
/// a power failure. The new file is first written next to the old one, with `.new` appended to its name. A file that
/// has that name already is removed; if it is a link, it is not followed.
///
/// # Errors
/// If the directory cannot be written, or if there is no space left.
pub fn replace_file(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    match fs::remove_file(beside) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    // O_EXCL refuses a link that appears at this moment.
    let mut written = OpenOptions::new().write(true).create_new(true).open(beside)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(beside, file).inspect_err(|_| drop(fs::remove_file(beside)))?;
    match file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_link_in_the_way_is_replaced_and_not_followed() {
        let directory = std::env::temp_dir().join(format!("srv6d-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, victim) = (directory.join("state"), directory.join("victim"));
        fs::write(&victim, "precious").unwrap();
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&victim, directory.join("state.new")).unwrap();
        replace_file(&file, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!directory.join("state.new").exists());
        fs::remove_dir_all(directory).unwrap();
    }
}
