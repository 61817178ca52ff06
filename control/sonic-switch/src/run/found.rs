//! Finds the files that labs provide, in the order of their precedence.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::Places;

/// Possible paths of CONFIG_DB. The first that exists is used.
const CONFIG_DB: [&str; 3] =
    ["/var/sonic/config_db.json", "/etc/sonic/config_db.json", "/usr/share/sonic/virtual_chassis/default_config.json"];

/// Possible paths of FRR's configuration: a single file, or one file per daemon, which are read one after the other.
const FRR: [&[&str]; 5] = [
    &["/var/sonic/frr.conf"],
    &["/etc/sonic/frr/frr.conf"],
    &["/etc/sonic/frr/zebra.conf", "/etc/sonic/frr/staticd.conf", "/etc/sonic/frr/bgpd.conf"],
    &["/etc/frr/frr.conf"],
    &["/etc/frr/zebra.conf", "/etc/frr/staticd.conf", "/etc/frr/bgpd.conf", "/etc/frr/isisd.conf"],
];

/// Time of the last change and length of a file. A changed file has another stamp.
type Stamp = (Option<SystemTime>, u64);

/// The files that exist for one part of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFiles {
    files: BTreeMap<usize, (PathBuf, Stamp)>,
}

impl SourceFiles {
    /// Finds the present files of `config_db.json`.
    pub fn config_db(places: &Places) -> Self {
        let each: Vec<&[&str]> = CONFIG_DB.iter().map(std::slice::from_ref).collect();
        Self::first(places, &each)
    }

    /// Finds the present files of `frr.conf`.
    pub fn frr(places: &Places) -> Self {
        Self::first(places, &FRR)
    }

    fn first(places: &Places, choices: &[&[&str]]) -> Self {
        let present = |group: &&[&str]| -> Option<Self> {
            let stamped = group.iter().enumerate().filter_map(|(place, path)| {
                let path = places.path(path);
                let metadata = fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
                Some((place, (path, (metadata.modified().ok(), metadata.len()))))
            });
            let files: BTreeMap<usize, (PathBuf, Stamp)> = stamped.collect();
            (!files.is_empty()).then_some(Self { files })
        };
        choices.iter().find_map(present).unwrap_or_default()
    }

    /// Whether no file exists.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether these are the same files, whatever they contain.
    pub fn same_paths(&self, other: &Self) -> bool {
        self.files.values().map(|(path, _)| path).eq(other.files.values().map(|(path, _)| path))
    }

    /// Returns their names in the container.
    pub fn shown(&self, places: &Places) -> String {
        let names: Vec<String> = self.files.values().map(|(path, _)| places.shown(path)).collect();
        names.join(", ")
    }

    /// Returns the texts of the files, one after the other.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn text(&self) -> Result<String, String> {
        let mut all = String::new();
        for (path, _) in self.files.values() {
            let text = srv6d_text::read_text(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
            // `end` closes what its own file has opened, and must not close what the next file contains.
            let lines = text.lines().filter(|line| self.files.len() == 1 || line.trim() != "end");
            lines.for_each(|line| {
                all.push_str(line);
                all.push('\n');
            });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn written(files: &[(&str, &str)]) -> (PathBuf, Places) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("srv6d-found-{}-{number}", std::process::id()));
        for (path, text) in files {
            let file = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        (root.clone(), Places::below(root))
    }

    #[test]
    fn the_first_of_each_is_taken() {
        let (root, places) = written(&[
            ("/etc/sonic/config_db.json", "{}"),
            ("/usr/share/sonic/virtual_chassis/default_config.json", "{}"),
            ("/etc/frr/frr.conf", "hostname a"),
        ]);
        assert_eq!(SourceFiles::config_db(&places).shown(&places), "/etc/sonic/config_db.json");
        assert_eq!(SourceFiles::frr(&places).shown(&places), "/etc/frr/frr.conf");
        let before = SourceFiles::frr(&places);
        fs::create_dir_all(root.join("etc/sonic/frr")).unwrap();
        fs::write(root.join("etc/sonic/frr/frr.conf"), "hostname b").unwrap();
        assert_eq!(SourceFiles::frr(&places).text().unwrap(), "hostname b\n");
        assert!(!before.same_paths(&SourceFiles::frr(&places)));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_of_single_daemons_are_one_text() {
        let (root, places) =
            written(&[("/etc/frr/zebra.conf", "ip forwarding\nend\n"), ("/etc/frr/bgpd.conf", "router bgp 1\n!")]);
        assert_eq!(SourceFiles::frr(&places).shown(&places), "/etc/frr/zebra.conf, /etc/frr/bgpd.conf");
        assert_eq!(SourceFiles::frr(&places).text().unwrap(), "ip forwarding\nrouter bgp 1\n!\n");
        assert!(SourceFiles::config_db(&places).is_empty());
        fs::remove_dir_all(root).unwrap();
    }
}
