//! Namespaces that belong to a value, and those that a killed process has left.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{DIRECTORY, Error, create, delete};

/// A network namespace that is deleted when this value is dropped. It stands for its name.
#[derive(Debug)]
pub struct Netns(String);

impl Netns {
    /// Creates a namespace.
    ///
    /// # Errors
    /// The errors are those of [`create`].
    pub fn create(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        create(&name)?;
        Ok(Self(name))
    }

    /// Creates a namespace with a unique name that ends in `what`.
    ///
    /// # Errors
    /// The errors are those of [`create`].
    pub fn unique(what: &str) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::create(format!("srv6d-{}-{}-{what}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Takes over a namespace that may exist, so that it is deleted when the value is dropped.
    pub const fn adopt(name: String) -> Self {
        Self(name)
    }
}

impl Deref for Netns {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = delete(&self.0); // nobody is left who could do something about it
    }
}

/// Returns the id of the process that a name belongs to: `PREFIX` `PID` `-...`.
pub fn owner(name: &str, prefixes: &[&str]) -> Option<u32> {
    let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    rest.split_once('-')?.0.parse().ok()
}

/// Returns the names of namespaces, and of files of the same names in `directory`, that belong to these processes.
pub fn left_by(prefixes: &[&str], directory: &Path, is_owner: impl Fn(u32) -> bool) -> Vec<String> {
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries(Path::new(DIRECTORY)).chain(entries(directory));
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut left: Vec<String> = names.filter(|name| owner(name, prefixes).is_some_and(&is_owner)).collect();
    left.sort_unstable();
    left.dedup();
    left
}
