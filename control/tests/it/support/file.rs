//! A file that is removed at the end of its test.

use std::fs;
use std::path::PathBuf;

pub struct File(PathBuf);

impl File {
    /// Writes a file. `name` must be unique in this program.
    pub fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("srv6d-test-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}
