//! Children that really run: files, links and scripts that change at the worst moment.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::directory::Directory;
use super::super::drift::verify;
use super::super::environment::Environment;
use super::*;

/// A directory to run in, and a file outside of it that the children report to.
struct Place {
    home: tempfile::TempDir,
    work: PathBuf,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        fs::create_dir(&work).unwrap();
        Self { home, work }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn report(&self) -> PathBuf {
        self.home.path().join("report")
    }

    fn invocation(&self, argv: &[&str]) -> Invocation {
        let report = self.report();
        let variables = [
            ("PATH", "/usr/bin:/bin"),
            ("OUT", report.to_str().unwrap()),
            ("HOLDGATE_TOKEN", "s3cret"),
            ("HOLDGATE_URL", "http://127.0.0.1:1"),
        ];
        Invocation {
            argv: argv.iter().map(|&text| text.to_owned()).collect(),
            environment: Environment::for_child(variables.map(|(name, value)| (name.into(), value.into()))),
        }
    }

    fn freeze(&self, invocation: &Invocation) -> Frozen {
        invocation.freeze(Directory::open(&self.work).unwrap()).unwrap()
    }

    /// Freezes, verifies and prepares; what `meddle` does comes between that and the start.
    async fn run(&self, argv: &[&str], meddle: impl FnOnce()) -> (String, ExitStatus) {
        let invocation = self.invocation(argv);
        let reviewed = self.freeze(&invocation).content;
        let prepared = prepare(&invocation, verify(&invocation, &reviewed).unwrap()).unwrap();
        meddle();
        let status = prepared.spawn().unwrap().wait().await.unwrap();
        (fs::read_to_string(self.report()).unwrap_or_default(), status)
    }
}

const GOOD: &str = "echo \"GOOD $*\" > \"$OUT\"\n";
const MUTATED: &str = "echo \"MUTATED $*\" > \"$OUT\"\n";

#[tokio::test]
async fn a_script_rewritten_after_the_last_check_runs_as_it_was_approved() {
    let place = Place::new();
    let script = place.write("script.sh", GOOD);
    let (report, status) =
        place.run(&["sh", "script.sh", "a b"], || fs::write(&script, MUTATED).unwrap()).await;
    assert_eq!((report.as_str(), status.code()), ("GOOD a b\n", Some(0)));
}

#[tokio::test]
async fn a_script_replaced_after_the_last_check_runs_as_it_was_approved() {
    let place = Place::new();
    let script = place.write("script.sh", GOOD);
    let other = place.write("other", MUTATED);
    let (report, _) =
        place.run(&["bash", "-eu", "script.sh", "x"], || fs::rename(&other, &script).unwrap()).await;
    assert_eq!(report, "GOOD x\n");
}

#[tokio::test]
async fn an_executable_script_replaced_after_the_last_check_runs_as_it_was_approved() {
    for line in ["#!/bin/sh", "#!/bin/sh -e", "#!/usr/bin/env bash"] {
        let place = Place::new();
        let script = place.write("tool", &format!("{line}\n{GOOD}"));
        let other = place.write("other", &format!("{line}\n{MUTATED}"));
        let (report, _) = place.run(&["./tool", "-x", "y"], || fs::rename(&other, &script).unwrap()).await;
        assert_eq!(report, "GOOD -x y\n", "{line}");
    }
}

#[tokio::test]
async fn a_bare_interpreter_is_the_file_of_that_name_and_not_one_of_path() {
    let place = Place::new();
    fs::copy("/bin/sh", place.work.join("bash")).unwrap();
    place.write("tool", "#!bash\nreadlink -f /pr*c/$$/exe > \"$OUT\"\n");
    let (report, _) = place.run(&["./tool"], || ()).await;
    assert_eq!(Path::new(report.trim_end()), fs::canonicalize(&place.work).unwrap().join("bash"));
    assert!(place.freeze(&place.invocation(&["./tool"])).pin.is_some());
}

#[tokio::test]
async fn a_script_that_is_rewritten_without_pause_never_runs_with_other_bytes() {
    let place = Place::new();
    let script = place.write("script.sh", GOOD);
    let invocation = place.invocation(&["sh", "script.sh"]);
    let reviewed = place.freeze(&invocation).content;
    let stop = AtomicBool::new(false);
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = place.work.join("other");
            while !stop.load(Ordering::Relaxed) {
                fs::write(&script, MUTATED).unwrap();
                fs::write(&script, GOOD).unwrap();
                fs::write(&other, MUTATED).unwrap();
                fs::rename(&other, &script).unwrap();
                fs::write(&other, GOOD).unwrap();
                fs::rename(&other, &script).unwrap();
                // Long enough for some checks to pass.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        while (ran < 15 || refused < 15) && ran + refused < 20_000 {
            let prepared = verify(&invocation, &reviewed).map_err(anyhow::Error::from);
            let Ok(mut prepared) = prepared.and_then(|frozen| prepare(&invocation, frozen)) else {
                refused += 1;
                continue;
            };
            assert!(prepared.command.status().unwrap().success());
            assert_eq!(fs::read_to_string(place.report()).unwrap(), "GOOD \n");
            ran += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(ran >= 15 && refused >= 15, "ran {ran} times and was refused {refused} times");
}

#[tokio::test]
async fn a_script_that_asks_for_its_path_gets_it_and_is_not_marked_as_pinned() {
    let place = Place::new();
    place.write("script.sh", "echo \"$0\" > \"$OUT\"\n");
    let frozen = place.freeze(&place.invocation(&["sh", "script.sh"]));
    assert_eq!(frozen.pin, None);
    let (report, _) = place.run(&["sh", "script.sh"], || ()).await;
    assert_eq!(report, "script.sh\n");
    place.write("tool", "#!/bin/sh\necho \"$0\" > \"$OUT\"\n");
    let (report, _) = place.run(&["./tool"], || ()).await;
    assert_eq!(report, "./tool\n");
}

#[tokio::test]
async fn the_child_runs_in_the_directory_that_was_verified_whatever_its_link_says_now() {
    let place = Place::new();
    let (elsewhere, link) = (place.home.path().join("elsewhere"), place.home.path().join("link"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&place.work, &link).unwrap();
    let invocation = place.invocation(&["sh", "-c", "pwd -P > \"$OUT\""]);
    let reviewed = invocation.freeze(Directory::open(&link).unwrap()).unwrap().content;
    let prepared = prepare(&invocation, verify(&invocation, &reviewed).unwrap()).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&elsewhere, &link).unwrap();
    assert!(prepared.spawn().unwrap().wait().await.unwrap().success());
    let report = fs::read_to_string(place.report()).unwrap();
    assert_eq!(Path::new(report.trim_end()), fs::canonicalize(&place.work).unwrap());
}

#[tokio::test]
async fn a_relative_command_is_meant_from_the_verified_directory() {
    let place = Place::new();
    fs::copy("/bin/sh", place.work.join("shell")).unwrap();
    let (report, _) = place.run(&["./shell", "-c", "echo \"$0\" > \"$OUT\""], || ()).await;
    assert_eq!(report, "./shell\n");
}

#[tokio::test]
async fn the_child_sees_none_of_our_variables() {
    let place = Place::new();
    let show = "{ env; tr '\\0' '\\n' < /proc/self/environ; } > \"$OUT\"";
    let (report, _) = place.run(&["sh", "-c", show], || ()).await;
    assert!(report.contains("PATH=/usr/bin:/bin"));
    assert!(!report.contains("HOLDGATE") && !report.contains("s3cret"), "{report}");
}

#[tokio::test]
async fn arguments_arrive_byte_for_byte() {
    let place = Place::new();
    place.write("run ", "#!/bin/sh\nfor one; do echo \"[$one]\"; done > \"$OUT\"\n");
    place.write("run", "#!/bin/sh\necho wrong > \"$OUT\"\n");
    let argv = ["./run ", "ls", " ", "", "a\tb\n", "\u{202e}x"];
    let (report, _) = place.run(&argv, || ()).await;
    assert_eq!(report, "[ls]\n[ ]\n[]\n[a\tb\n]\n[\u{202e}x]\n");
    let content = serde_json::to_value(place.freeze(&place.invocation(&argv)).content).unwrap();
    assert_eq!(content["argv"], serde_json::json!(argv));
}

#[tokio::test]
async fn the_childs_end_becomes_the_exit_code() {
    let place = Place::new();
    for (script, code, words) in [
        ("exit 0", 0, "exit status 0"),
        ("exit 3", 3, "exit status 3"),
        ("kill -9 $$", 137, "killed by signal 9"),
        ("kill -TERM $$", 143, "killed by signal 15"),
    ] {
        let (_, status) = place.run(&["sh", "-c", script], || ()).await;
        assert_eq!((exit_code(status), outcome(status).as_str()), (code, words), "{script}");
    }
}

#[tokio::test]
async fn a_command_whose_interpreter_vanished_since_cannot_start() {
    let place = Place::new();
    fs::copy("/bin/cat", place.work.join("cat")).unwrap();
    place.write("tool", "#!./cat\n");
    let invocation = place.invocation(&["./tool"]);
    let reviewed = place.freeze(&invocation).content;
    let prepared = prepare(&invocation, verify(&invocation, &reviewed).unwrap()).unwrap();
    fs::remove_file(place.work.join("cat")).unwrap();
    let failed = format!("{:#}", prepared.spawn().unwrap_err());
    assert!(failed.contains("cannot start ./tool"), "{failed}");
}

#[test]
fn a_sealed_copy_cannot_be_written_by_anyone() {
    use std::io::Write as _;
    let (_fd, path) = sealed(b"approved").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"approved");
    if let Ok(mut file) = fs::OpenOptions::new().write(true).open(&path) {
        assert!(file.write_all(b"MUTATED").is_err());
        assert!(file.set_len(0).is_err());
    }
    assert_eq!(fs::read(&path).unwrap(), b"approved");
}
