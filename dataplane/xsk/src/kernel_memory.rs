//! Measures the kernel memory of a process's BPF maps and programs, which is not part of its resident set.

use std::collections::BTreeMap;
use std::{fs, io};

/// Returns how many bytes of kernel memory the BPF maps and programs of a process take. Each object is counted once.
/// AF_XDP rings and packet buffers are mapped into the process, so they are part of its resident set and are not
/// counted here.
///
/// The kernel tells the size of each object in `memlock` of `/proc/PID/fdinfo/FD`. Since Linux 6.4 it counts the
/// entries that are in use; older versions say how much a full map would take.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn kernel_memory(pid: u32) -> io::Result<u64> {
    let mut objects = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor that has been closed meanwhile is skipped.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        if let Some((object, bytes)) = object_of(&text) {
            objects.insert(object, bytes);
        }
    }
    Ok(objects.values().sum())
}

/// Returns the map or program that a descriptor refers to, and its bytes.
fn object_of(fdinfo: &str) -> Option<((&'static str, u64), u64)> {
    let value = |key: &str| {
        let line = fdinfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok())
    };
    let id = ["map_id", "prog_id"].into_iter().find_map(|key| Some((key, value(key)?)))?;
    Some((id, value("memlock")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_map_or_a_program_has_bytes() {
        let map = "pos:\t0\nmap_type:\t11\nmax_entries:\t4\nmemlock:\t4096\nmap_id:\t7\nfrozen:\t0\n";
        assert_eq!(object_of(map), Some((("map_id", 7), 4096)));
        let program = "prog_type:\t6\nprog_jited:\t1\nmemlock:\t8192\nprog_id:\t9\n";
        assert_eq!(object_of(program), Some((("prog_id", 9), 8192)));
        assert_eq!(object_of("pos:\t0\nflags:\t02\n"), None);
    }
}
