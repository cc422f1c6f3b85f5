//! `holdgate demo`, with the real binary: whole, in parts, with and without a gateway.
#![expect(clippy::unwrap_used, reason = "a test whose processes do not run has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A directory of its own for everything that a test's processes write.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn holdgate(&self, arguments: &[&str]) -> Command {
        let mut command = holdgate_testkit::process::command(env!("CARGO_BIN_EXE_holdgate"));
        command.args(arguments).env("HOLDGATE_HOME", self.home()).env("TMPDIR", self.dir.path());
        command.env_remove("HOLDGATE_URL").env_remove("HOLDGATE_TOKEN").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, Output) {
        let output = self.holdgate(arguments).output().unwrap();
        (output.status.code().unwrap(), output)
    }

    fn start(&self) -> Value {
        let (code, output) = self.run(&["demo", "start"]);
        assert_eq!(code, 0, "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.lines().count(), 1, "{stdout}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// The run's workspace.
    fn workspace(&self, run: &str) -> PathBuf {
        self.home().join("demo").join(run)
    }

    fn answer(&self, verb: &str, started: &Value) {
        let (code, output) = self.run(&["approvals", verb, text(started, "approvalId")]);
        assert_eq!(code, 0, "{output:?}");
    }

    /// Serves the home until the answer is dropped.
    fn serve(&self) -> Serving {
        let mut serve = self.holdgate(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Serving { child, url }
    }

    /// A `git` that says when it is asked to tag a release, and does so only once it may.
    fn slow_git(&self) -> (String, PathBuf, PathBuf) {
        let (bin, entered, go) =
            (self.dir.path().join("bin"), self.dir.path().join("entered"), self.dir.path().join("go"));
        fs::create_dir(&bin).unwrap();
        let real = Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *\" tag -a \"*) : > '{}'; while [ ! -e '{}' ]; do sleep 0.02; done;; esac\nexec '{}' \"$@\"\n",
            entered.display(),
            go.display(),
            String::from_utf8(real.stdout).unwrap().trim()
        );
        fs::write(bin.join("git"), script).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        (format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()), entered, go)
    }
}

struct Serving {
    child: Child,
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A demo that is being watched.
struct Watched {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it has told so far.
    story: String,
}

impl Watched {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, story: String::new() }
    }

    /// Reads on to a line with these words; answers what follows them.
    fn reads(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no {words:?} in\n{}", self.story);
            self.story.push_str(&line);
            if let Some((_, rest)) = line.split_once(words) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code and its whole story.
    fn end(mut self) -> (Option<i32>, String) {
        self.stdout.read_to_string(&mut self.story).unwrap();
        (self.child.wait().unwrap().code(), self.story)
    }
}

/// Runs a command that was told, as somebody who copies it.
fn copy(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).env_clear().output().unwrap()
}

fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap_or_else(|| panic!("no {field} in {document}"))
}

fn releases(workspace: &Path) -> usize {
    fs::read_to_string(workspace.join("effects.log")).map_or(0, |log| log.lines().count())
}

fn tags(workspace: &Path) -> Vec<String> {
    let output =
        Command::new("git").args(["tag", "--list"]).current_dir(workspace.join("acorn")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whether git is there. Says so if not; where everything is required its absence is a failure.
fn has_git() -> bool {
    let is_there = Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success());
    #[expect(clippy::disallowed_methods, reason = "the test run's own switch")]
    let is_required = std::env::var_os("HOLDGATE_TEST_REQUIRE").is_some_and(|value| value == "all");
    assert!(is_there || !is_required, "git is not installed, and HOLDGATE_TEST_REQUIRE=all asks for it");
    if !is_there {
        // Straight to the stream: what a passing test prints is not shown.
        let _ = writeln!(std::io::stderr(), "skipped: git is not installed");
    }
    is_there
}

fn wait_for(path: &Path) {
    for _ in 0..500 {
        if path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} did not appear", path.display());
}

#[test]
fn an_allowed_release_happens_once_and_says_so() {
    if !has_git() {
        return;
    }
    let place = Place::new();
    let (code, output) = place.run(&["--json", "demo", "--yes"]);
    assert_eq!(code, 0, "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["status"], &document["releases"]), (&"allowed".into(), &1.into()), "{document}");
    assert_eq!(document["receipt"]["outcome"], "succeeded");
    let workspace = PathBuf::from(text(&document, "workspace"));
    assert!(workspace.starts_with(place.dir.path()) && !workspace.starts_with(place.home()));
    assert_eq!((releases(&workspace), tags(&workspace)), (1, vec!["v1.3.0".to_owned(), "v1.4.0".to_owned()]));
    let release = fs::read_to_string(workspace.join("acorn/RELEASE")).unwrap();
    assert!(release.starts_with("acorn 1.4.0\n"), "{release}");
    let changelog = fs::read_to_string(workspace.join("acorn/CHANGELOG.md")).unwrap();
    assert!(changelog.find("## 1.4.0") < changelog.find("## 1.3.0"), "{changelog}");
}

#[test]
fn the_story_tells_where_to_decide_and_what_happened() {
    let place = Place::new();
    let (code, output) = place.run(&["demo", "--yes"]);
    assert_eq!(code, 0, "{output:?}");
    let story = String::from_utf8(output.stdout).unwrap();
    for told in
        ["has exited", "/approve/apr_", "operator.token", " approvals allow apr_", "publish_release, once"]
    {
        assert!(story.contains(told), "{told:?} is missing in\n{story}");
    }
    assert!(!story.contains('\u{1b}'), "a pipe gets no colours");
}

#[test]
fn a_denied_release_does_not_happen() {
    let place = Place::new();
    let (code, output) = place.run(&["--json", "demo", "--no"]);
    assert_eq!(code, 3, "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["status"], &document["releases"]), (&"denied".into(), &0.into()), "{document}");
    let workspace = PathBuf::from(text(&document, "workspace"));
    assert_eq!(releases(&workspace), 0);
    assert!(!workspace.join("acorn/RELEASE").exists());
}

#[test]
fn silence_denies() {
    let place = Place::new();
    let (code, output) = place.run(&["--json", "demo", "--timeout", "200ms"]);
    assert_eq!(code, 3, "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["status"], &document["releases"]), (&"expired".into(), &0.into()), "{document}");
}

#[test]
fn without_git_the_release_is_files_only_and_says_so() {
    let place = Place::new();
    let nothing = place.dir.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    let output = place.holdgate(&["demo", "--yes"]).env("PATH", &nothing).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let story = String::from_utf8(output.stdout).unwrap();
    assert!(story.contains("git is not installed"), "{story}");
}

#[test]
fn a_gateway_that_the_caller_uses_otherwise_is_left_alone() {
    let place = Place::new();
    let foreign = ("HOLDGATE_URL", "http://127.0.0.1:9");
    let output = place.holdgate(&["demo", "--yes"]).env(foreign.0, foreign.1).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!place.home().exists(), "the demo has a home of its own");
}

#[test]
fn the_page_stays_up_after_the_end_until_somebody_ends_it() {
    let place = Place::new();
    let mut demo = Watched::start(place.holdgate(&["demo"]));
    let page = demo.reads("in a browser");
    let allow = demo.reads("in a terminal");
    demo.reads("Waiting.");
    assert!(copy(&allow).status.success(), "{allow}");
    demo.reads("publish_release, once");
    let remove = demo.reads("remove them with: ");
    demo.reads("The page stays up");
    let (address, path) = page.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 ") && answer.contains("id=\"approval\""), "{answer}");
    demo.signal(Signal::INT);
    assert_eq!(demo.end().0, Some(0), "the story was told to its end");
    let left = || fs::read_dir(place.dir.path()).unwrap().count();
    assert_eq!(left(), 1);
    assert!(copy(&remove).status.success(), "{remove}");
    assert_eq!(left(), 0, "nothing else is left");
}

#[test]
fn a_demo_that_is_stopped_while_it_waits_says_that_nothing_ran_and_can_go_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let mut demo = Watched::start(place.holdgate(&["demo"]));
        let deny = demo.reads("or  ");
        demo.reads("Waiting.");
        demo.signal(signal);
        demo.reads("Stopped. Nothing ran.");
        let go_on = demo.reads("go on with");
        let (ended, story) = demo.end();
        assert_eq!(ended, Some(code), "{story}");
        assert!(story.contains("remove them with: rm -r "), "{story}");
        assert_eq!(copy(&go_on).status.code(), Some(8), "its run still waits: {go_on}");
        assert!(copy(&deny).status.success(), "{deny}");
        assert_eq!(copy(&go_on).status.code(), Some(3));
    }
}

#[test]
fn a_demo_that_is_stopped_in_the_middle_of_the_release_says_that_its_end_is_not_known() {
    if !has_git() {
        return;
    }
    let place = Place::new();
    let (path, entered, go) = place.slow_git();
    let mut demo = place.holdgate(&["demo", "--yes"]);
    demo.env("PATH", path);
    let demo = Watched::start(demo);
    wait_for(&entered);
    demo.signal(Signal::TERM);
    let (code, story) = demo.end();
    fs::write(&go, "").unwrap();
    assert_eq!(code, Some(143), "{story}");
    assert!(story.contains("Stopped while publish_release ran. How it ended is not known"), "{story}");
    assert!(!story.contains("go on with"), "{story}");
}

/// One life of a run in the place's home: still waiting, then allowed, then done, then done already.
fn suspend_allow_and_finish(place: &Place, started: &Value) {
    let run = text(started, "runId");
    assert_eq!(place.run(&["demo", "restore", run]).0, 8);
    assert_eq!(releases(&place.workspace(run)), 0);
    place.answer("allow", started);
    for _ in 0..2 {
        let (code, output) = place.run(&["--json", "demo", "restore", run]);
        assert_eq!(code, 0, "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((text(&document, "status"), text(&document, "runId")), ("finished", run));
        assert_eq!(releases(&place.workspace(run)), 1);
    }
}

#[test]
fn without_a_gateway_each_process_uses_the_database_itself_and_shows_no_link() {
    let place = Place::new();
    let started = place.start();
    assert!(started["url"].is_null(), "{started}");
    suspend_allow_and_finish(&place, &started);
}

#[test]
fn with_a_gateway_each_process_speaks_to_it_and_the_page_is_linked() {
    let place = Place::new();
    let serving = place.serve();
    let started = place.start();
    let page = format!("{}/approve/{}", serving.url, text(&started, "approvalId"));
    assert_eq!(text(&started, "url"), page);
    suspend_allow_and_finish(&place, &started);
}

#[test]
fn a_run_outlives_the_gateway_it_was_started_under() {
    let place = Place::new();
    let serving = place.serve();
    let started = place.start();
    drop(serving);
    suspend_allow_and_finish(&place, &started);
}

#[test]
fn a_denied_run_is_told_so_and_stays_so() {
    let place = Place::new();
    let started = place.start();
    place.answer("deny", &started);
    for _ in 0..2 {
        let (code, output) = place.run(&["demo", "restore", text(&started, "runId")]);
        assert_eq!(code, 3, "{output:?}");
    }
    assert_eq!(releases(&place.workspace(text(&started, "runId"))), 0);
}

fn second_restore_is_told(place: &Place) {
    let started = place.start();
    let run = text(&started, "runId");
    place.answer("allow", &started);
    let (path, entered, go) = place.slow_git();
    let mut first = place.holdgate(&["demo", "restore", run]);
    let first = first.env("PATH", path).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&entered);
    let (code, output) = place.run(&["demo", "restore", run]);
    fs::write(&go, "").unwrap();
    let first = first.wait_with_output().unwrap();
    assert_eq!(code, 9, "{output:?}");
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert_eq!((releases(&place.workspace(run)), tags(&place.workspace(run)).len()), (1, 2));
}

#[test]
fn of_two_restores_at_once_one_goes_on_and_the_other_is_told() {
    if !has_git() {
        return;
    }
    second_restore_is_told(&Place::new());
    let place = Place::new();
    let _serving = place.serve();
    second_restore_is_told(&place);
}

#[test]
fn of_many_restores_at_once_none_does_it_again() {
    let place = Place::new();
    let _serving = place.serve();
    let started = place.start();
    let run = text(&started, "runId");
    place.answer("allow", &started);
    let restores: Vec<Child> = (0..6)
        .map(|_| {
            let mut restore = place.holdgate(&["demo", "restore", run]);
            restore.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let codes: Vec<i32> =
        restores.into_iter().map(|mut child| child.wait().unwrap().code().unwrap()).collect();
    assert!(codes.contains(&0) && codes.iter().all(|code| matches!(code, 0 | 9)), "{codes:?}");
    assert_eq!(releases(&place.workspace(run)), 1);
}

#[test]
fn a_run_that_cannot_go_on_is_a_clear_error() {
    let place = Place::new();
    let started = place.start();
    let run = text(&started, "runId");
    let (code, output) = place.run(&["demo", "restore", "run_other"]);
    assert_eq!(code, 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no run run_other"), "{output:?}");
    place.answer("allow", &started);
    fs::remove_dir_all(place.workspace(run)).unwrap();
    let (code, output) = place.run(&["demo", "restore", run]);
    assert_eq!(code, 1);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is gone"), "{output:?}");
    let (_, shown) = place.run(&["--json", "approvals", "show", text(&started, "approvalId")]);
    let record: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(record["claim"].is_null(), "nothing was claimed: {record}");
}

#[test]
fn a_restore_without_a_home_makes_none() {
    let place = Place::new();
    let (code, output) = place.run(&["demo", "restore", "run_1"]);
    assert_eq!(code, 7, "{output:?}");
    assert!(!place.home().exists());
}
