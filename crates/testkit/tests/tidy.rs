//! The habits of `AGENTS.md` that a program can check, checked over every source file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 600;
const AGENTS_LINES: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&root().join("crates"), ".rs", &mut found);
    assert!(found.len() > 50, "the sources were not found");
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_file_opens_with_what_it_owns() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} does not open with //!", path.display());
    }
}

#[test]
fn no_file_outgrows_its_bound() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES, "{} has {lines} lines; split it by what it owns", path.display());
    }
    let agents = fs::read_to_string(root().join("AGENTS.md")).unwrap();
    assert!(agents.lines().count() <= AGENTS_LINES, "AGENTS.md is longer than {AGENTS_LINES} lines");
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    // Put together here so that this file does not find itself.
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("FIX", "ME"),
        concat!("#[", "ignore"),
    ];
    for (path, text) in sources() {
        for mark in marks {
            assert!(!text.contains(mark), "{} holds {mark}", path.display());
        }
    }
}

#[test]
fn names_say_what_a_thing_knows() {
    for (path, text) in sources() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "helper", "helpers", "common"].contains(&name.as_str()),
            "{}",
            path.display()
        );
        for line in text.lines().filter(|line| line.contains("struct ") || line.contains("trait ")) {
            assert!(!line.contains("Manager") && !line.contains("Helper"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn every_decision_page_is_numbered_once() {
    let mut pages = Vec::new();
    files(&root().join("docs/decisions"), ".md", &mut pages);
    let mut numbers: Vec<_> =
        pages.iter().map(|page| page.file_name().unwrap().to_string_lossy()[..4].to_owned()).collect();
    numbers.sort();
    let expected: Vec<_> = (1..=numbers.len()).map(|n| format!("{n:04}")).collect();
    assert_eq!(numbers, expected);
}
