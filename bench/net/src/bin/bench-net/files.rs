//! Reads and writes files with results and reports.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use srv6d_bench_net::compare::Comparison;
use srv6d_bench_net::results::Results;
use srv6d_bench_net::{BenchError, host, neighbors, report};
use srv6d_report::Document;

use crate::Failure;

const RESULTS: &str = "results.json";

pub fn keep(directory: &Path, results: &impl serde::Serialize) -> Result<(), BenchError> {
    write_json(directory, RESULTS, results).map_err(|why| BenchError::of("results cannot be kept (--out)", why))
}

/// Returns the file of this name if `path` is a directory, or `path` itself if it is a file.
fn file_in(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_path_buf() }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path, form: &str) -> Result<T, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|why| Failure::Usage(format!("{shown}: {why}")))?;
    serde_json::from_str(&text).map_err(|why| Failure::Usage(format!("{shown} is not {form}: {why}")))
}

/// The results of a run, by what it measured.
enum Measured {
    Forwarding(Results),
    Host(host::Results),
    Neighbors(neighbors::Results),
}

fn read_results(path: &Path) -> Result<Measured, Failure> {
    /// The fields that tell the kinds of results apart: only results of `bench-net host` have streams, and only results
    /// of `bench-net neighbors` have first packets.
    #[derive(serde::Deserialize)]
    struct Kind {
        streams: Option<serde::de::IgnoredAny>,
        first_packets: Option<serde::de::IgnoredAny>,
    }
    let form = "what bench-net measured (results.json; a report.json is for `bench-net render`)";
    let file = file_in(path, RESULTS);
    match read::<Kind>(&file, form)? {
        Kind { streams: Some(_), .. } => read(&file, form).map(Measured::Host),
        Kind { first_packets: Some(_), .. } => read(&file, form).map(Measured::Neighbors),
        Kind { .. } => read(&file, form).map(Measured::Forwarding),
    }
}

pub fn report_again(path: &Path) -> Result<(), Failure> {
    let document = match read_results(path)? {
        Measured::Host(results) => host::document(&results),
        Measured::Neighbors(results) => neighbors::document(&results),
        Measured::Forwarding(results) => report::document(&results),
    };
    write_document(&document, file_in(path, RESULTS).parent().unwrap_or(Path::new("")))
}

/// Writes pages with the same name as the file, because reports of several runs may be in one directory.
pub fn render(path: &Path) -> Result<(), Failure> {
    let file = file_in(path, "report.json");
    let form = "a report (report.json; a results.json is for `bench-net report`)";
    write_pages(&read(&file, form)?, &file)
}

pub fn compare(before: &Path, after: &Path, json: bool) -> Result<(), Failure> {
    let comparison = match (read_results(before)?, read_results(after)?) {
        (Measured::Forwarding(before), Measured::Forwarding(after)) => Comparison::of(&before, &after),
        (Measured::Host(before), Measured::Host(after)) => Comparison::of(&before, &after),
        (Measured::Neighbors(_), _) | (_, Measured::Neighbors(_)) => {
            let why =
                "`bench-net neighbors` measures times, which differ from machine to machine: compare the tables by eye";
            return Err(Failure::Usage(why.to_owned()));
        }
        _ => {
            let why = "one of the two runs is of `bench-net host`, and the other is not: compare runs of one kind";
            return Err(Failure::Usage(why.to_owned()));
        }
    };
    if comparison.figures.is_empty() {
        let why = "the two runs have no ratio in common: it takes the same two rows (srv6d-uN and linux-uN, say) with a \
                   figure at the same size and placement in both";
        return Err(Failure::Usage(why.to_owned()));
    }
    if !json {
        return print(&comparison.text());
    }
    let text = serde_json::to_string_pretty(&comparison).map_err(|why| BenchError::of("compare", why))?;
    print(&format!("{text}\n"))
}

/// Prints to standard output. It is no failure if the reader stops early (`| head`).
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(BenchError::of("standard output", why).into()),
        _ => Ok(()),
    }
}

pub fn write_document(document: &Document, directory: &Path) -> Result<(), Failure> {
    write_json(directory, "report.json", document)?;
    write_pages(document, &directory.join("report.json"))
}

/// Writes Markdown and HTML next to the JSON of a report.
fn write_pages(document: &Document, json: &Path) -> Result<(), Failure> {
    write(&json.with_extension("md"), &document.markdown())?;
    let html = json.with_extension("html");
    write(&html, &document.html())?;
    print(&format!("report: {}\n", html.display()))
}

fn write_json(directory: &Path, name: &str, value: &impl serde::Serialize) -> Result<(), BenchError> {
    fs::create_dir_all(directory).map_err(|why| BenchError::of(directory.display(), why))?;
    let text = serde_json::to_string_pretty(value).map_err(|why| BenchError::of(name, why))?;
    write(&directory.join(name), &text)
}

fn write(file: &Path, text: &str) -> Result<(), BenchError> {
    // The file is replaced as a whole: a run that is killed while writing keeps the previous contents.
    let new = file.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|why| BenchError::of(file.display(), why))
}
