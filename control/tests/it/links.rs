//! Links between the pages lead to files and headings that exist.
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no pages of the repository.
const PASSED_OVER: [&str; 4] = [".git", "target", "node_modules", "corpus"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns all pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir() && !path.is_symlink());
    let is_passed_over = |path: &PathBuf| path.file_name().is_some_and(|name| PASSED_OVER.iter().any(|it| name == *it));
    let below = folders.iter().filter(|path| !is_passed_over(path)).flat_map(|path| pages(path));
    let here = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).cloned();
    here.chain(below).collect()
}

/// A page without its blocks of code.
fn prose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// The anchor that a heading gets: lower case, hyphens for blanks, no other signs.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

fn anchors(path: &Path) -> BTreeSet<String> {
    let prose = prose(path);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Returns the targets of a page's links, except those of other sites.
fn links(prose: &str) -> Vec<&str> {
    let after_brackets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    after_brackets.filter(|link| !link.starts_with("http") && !link.contains(char::is_whitespace)).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let pages = pages(&top());
    assert!(pages.len() > 20, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = prose(page);
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = target.exists() && (heading.is_empty() || anchors(&target).contains(heading));
            if !is_there {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns true if a source in Rust or C has the function: of a type, if the type is named in front of it.
fn has_function(source: &str, function: &str) -> bool {
    let (kind, name) = function.rsplit_once("::").unwrap_or(("", function));
    let is_of_kind =
        |line: &str| line.starts_with("impl") && line.split(|c: char| !c.is_alphanumeric()).any(|word| word == kind);
    let forms = [format!("fn {name}("), format!("fn {name}<"), format!(" int {name}("), format!(" *{name}(")];
    forms.iter().any(|form| source.contains(form)) && (kind.is_empty() || source.lines().any(is_of_kind))
}

/// In the tables of the page, the second column names functions, and the third one the file that has them.
#[test]
fn every_step_that_is_to_be_followed_is_a_function_of_its_file() {
    let page = fs::read_to_string(top().join("docs/internals/follow.md")).unwrap();
    let (mut steps, mut missing) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = row.split('|').skip(2);
        let (Some(functions), Some(file)) = (cells.next(), cells.next().and_then(|cell| quoted(cell).next())) else {
            continue;
        };
        let source = fs::read_to_string(top().join(file)).unwrap_or_default();
        for function in quoted(functions) {
            steps += 1;
            if !has_function(&source, function) {
                missing.push(format!("{function} in {file}"));
            }
        }
    }
    assert!(steps > 50, "{steps}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn anchors_are_those_of_a_web_page() {
    assert_eq!(anchor(" AF_XDP modes"), "af_xdp-modes");
    assert_eq!(anchor(" A host's own applications"), "a-hosts-own-applications");
    assert_eq!(anchor(" `ndr.py`"), "ndrpy");
}
