//! The file that keeps the ranks that joined over a restart of the daemon.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use srv6d_job::Table;
use srv6d_text::{read_text_up_to, replace_file};
use tracing::warn;

/// Version of the file.
const VERSION: u32 = 1;
/// Largest file that is read, in MiB.
const LARGEST: u64 = 256;

#[derive(Serialize, Deserialize)]
struct Saved<T> {
    version: u32,
    /// The start of the machine. Processes and times of another one mean nothing.
    boot: String,
    table: T,
}

/// Reads the file. One that is missing, of another start of the machine or wrong counts as empty.
pub fn read(file: &Path) -> Table {
    let text = match read_text_up_to(LARGEST, file) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Table::default(),
        Err(why) => {
            put_aside(file, &why);
            return Table::default();
        }
    };
    match serde_json::from_str::<Saved<Table>>(&text) {
        Ok(saved) if saved.version == VERSION && saved.boot == boot() => {
            let (table, bad) = saved.table.checked();
            if bad > 0 {
                warn!("{}: {bad} jobs that cannot be are left out; start them again", file.display());
            }
            table
        }
        Ok(_) => Table::default(),
        Err(why) => {
            put_aside(file, &why);
            Table::default()
        }
    }
}

/// Keeps a file that cannot be read, under another name.
fn put_aside(file: &Path, why: &dyn std::fmt::Display) {
    let mut name = file.as_os_str().to_owned();
    name.push(".bad");
    let kept = match fs::rename(file, &name) {
        Ok(()) => format!("it is kept as {}", Path::new(&name).display()),
        Err(error) => format!("it cannot be renamed either ({error})"),
    };
    warn!("cannot read the jobs in {}: {why}; {kept}, and none is taken over: start them again", file.display());
}

/// Writes the file.
///
/// # Errors
/// It cannot be written.
pub fn write(file: &Path, table: &Table) -> io::Result<()> {
    let saved = Saved { version: VERSION, boot: boot(), table };
    replace_file(file, &serde_json::to_vec(&saved).map_err(io::Error::other)?)
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_file_of_another_start_or_of_nonsense_is_begun_anew() {
        let directory = std::env::temp_dir().join(format!("srv6d-jobs-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("jobs.json");
        assert_eq!(read(&file), Table::default(), "there is none");
        let jobs = r#"{"jobs":{"a":{"owner":0,"generation":1,"tenant":null,"priority":0,"pattern":"ring","size":2,"members":{},"placements":{}}}}"#;
        let table: Table = serde_json::from_str(jobs).unwrap();
        write(&file, &table).unwrap();
        assert_eq!(read(&file), table);
        let text = fs::read_to_string(&file).unwrap();
        for wrong in [text.replace(&boot(), "another"), text.replace("\"version\":1", "\"version\":2"), "{".to_owned()]
        {
            fs::write(&file, wrong).unwrap();
            assert_eq!(read(&file), Table::default());
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
