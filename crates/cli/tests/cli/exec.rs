//! `exec` as a process among processes: streams, signals, the environment, links, exit codes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Ended, Served, World, until};

/// An `exec` that waits for its approval.
struct Waiting<'a> {
    world: &'a World,
    child: Child,
    stderr: BufReader<ChildStderr>,
    id: String,
    /// What stderr said it waits for.
    line: String,
}

impl<'a> Waiting<'a> {
    /// Starts `exec -- COMMAND` and reads its first line.
    fn start(world: &'a World, command: &[&str]) -> Self {
        let mut exec = world.command(&["exec", "--reason", "a test", "--"]);
        exec.args(command);
        Self::spawn(world, exec)
    }

    fn spawn(world: &'a World, mut exec: Command) -> Self {
        let piped = exec.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let id = line.split(' ').find(|word| word.starts_with("apr_"));
        let id = id.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { world, child, stderr, id, line }
    }

    fn answer(&self, answer: &str, more: &[&str]) {
        let mut arguments = vec!["approvals", answer, &self.id];
        arguments.extend(more);
        assert_eq!(self.world.run(&arguments).code, 0);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line of standard error.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// Waits for its end. Standard error is what came after the lines that were read.
    fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        drop(self.child.stdin.take());
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Ended { code, stdout, stderr }
    }

    /// Allows it and waits for its end.
    fn allowed(self) -> Ended {
        self.answer("allow", &[]);
        self.end()
    }
}

/// How the record of a request stands: status, why it ended, whether it was claimed, and its receipt.
fn record(world: &World, served: &Served<'_>, id: &str) -> (&'static str, String, bool, Option<String>) {
    let approval = world.read(served, id);
    let reason = approval.terminal_reason.map_or(String::new(), |reason| reason.as_str().to_owned());
    let receipt =
        approval.receipt.map(|it| format!("{}: {}", it.outcome.as_str(), it.detail.unwrap_or_default()));
    (approval.status.as_str(), reason, approval.claim.is_some(), receipt)
}

fn is(
    status: &'static str,
    reason: &str,
    claimed: bool,
    receipt: Option<&str>,
) -> (&'static str, String, bool, Option<String>) {
    (status, reason.to_owned(), claimed, receipt.map(str::to_owned))
}

#[test]
fn an_allowed_command_has_our_streams_and_gives_its_status() {
    let world = World::new();
    let served = world.serve();
    let mut waiting = Waiting::start(&world, &["sh", "-c", "cat; echo told >&2; exit 3"]);
    let id = waiting.id.clone();
    assert_eq!(waiting.line, format!("holdgate: waiting for approval {id} {}/approve/{id}\n", served.url));
    waiting.child.stdin.as_mut().unwrap().write_all(b"from our input").unwrap();
    let ended = waiting.allowed();
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (3, "from our input", "told\n"));
    assert_eq!(record(&world, &served, &id), is("allowed", "user", true, Some("failed: exit status 3")));
}

#[test]
fn success_and_death_by_a_signal_are_told_as_such() {
    let world = World::new();
    let served = world.serve();
    for (script, code, receipt) in
        [("exit 0", 0, "succeeded: exit status 0"), ("kill -KILL $$", 137, "failed: killed by signal 9")]
    {
        let waiting = Waiting::start(&world, &["sh", "-c", script]);
        let id = waiting.id.clone();
        assert_eq!(waiting.allowed().code, code);
        assert_eq!(record(&world, &served, &id), is("allowed", "user", true, Some(receipt)));
    }
}

#[test]
fn a_denied_command_says_who_and_why() {
    let world = World::new();
    let served = world.serve();
    let waiting = Waiting::start(&world, &["touch", world.path("mark").to_str().unwrap()]);
    let id = waiting.id.clone();
    waiting.answer("deny", &["--reason", "not today"]);
    let ended = waiting.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (77, ""));
    assert!(ended.stderr.contains("denied by") && ended.stderr.contains("not today"), "{}", ended.stderr);
    assert_eq!(record(&world, &served, &id), is("denied", "user", false, None));
    assert!(!world.path("mark").exists());
}

#[test]
fn silence_denies_after_the_timeout() {
    let world = World::new();
    let _served = world.serve();
    let ended =
        world.run(&["exec", "--timeout", "150ms", "--", "touch", world.path("mark").to_str().unwrap()]);
    assert_eq!(ended.code, 77, "{ended:?}");
    assert!(ended.stderr.contains("nobody answered in time"), "{ended:?}");
    assert!(!world.path("mark").exists());
}

#[test]
fn a_command_line_that_says_nothing_useful_is_a_usage_error() {
    let world = World::new();
    for arguments in [
        &["exec"][..],
        &["exec", "ls"],
        &["exec", "--"],
        &["exec", "--timeout", "10", "--", "ls"],
        &["exec", "--timeout", "0s", "--", "ls"],
    ] {
        assert_eq!(world.run(arguments).code, 2, "{arguments:?}");
    }
    let said = world.run(&["exec", "--timeout", "ten", "--", "ls"]).stderr;
    assert!(said.contains("write it like 10m, 90s, 1h30m or 500ms"), "{said}");
}

#[test]
fn a_signal_while_waiting_withdraws_the_request() {
    let world = World::new();
    let served = world.serve();
    for signal in [Signal::INT, Signal::TERM] {
        let waiting = Waiting::start(&world, &["touch", world.path("mark").to_str().unwrap()]);
        let id = waiting.id.clone();
        waiting.signal(signal);
        let ended = waiting.end();
        assert_eq!(ended.code, 77, "{ended:?}");
        assert_eq!(ended.stderr, "holdgate: not run: stopped while waiting; the request was withdrawn\n");
        assert_eq!(record(&world, &served, &id), is("cancelled", "withdrawn", false, None));
    }
    assert!(!world.path("mark").exists());
}

#[test]
fn a_signal_while_the_gateway_is_away_says_that_the_request_lapses_by_itself() {
    let world = World::new();
    let served = world.serve();
    let mut waiting = Waiting::start(&world, &["touch", world.path("mark").to_str().unwrap()]);
    served.stop();
    assert!(waiting.says().contains("the gateway does not answer; waiting for it until "));
    waiting.signal(Signal::TERM);
    let ended = waiting.end();
    assert_eq!(ended.code, 77, "{ended:?}");
    assert_eq!(
        ended.stderr,
        "holdgate: not run: stopped while waiting; the request could not be withdrawn; it lapses by itself\n"
    );
    assert!(!world.path("mark").exists());
}

#[test]
fn a_gateway_that_goes_away_and_comes_back_is_told_once_each_and_the_command_runs() {
    let world = World::new();
    let served = world.serve();
    let address = served.url.strip_prefix("http://").unwrap().to_owned();
    let mut waiting = Waiting::start(&world, &["echo", "ran"]);
    served.stop();
    assert!(waiting.says().contains("the gateway does not answer; waiting for it until "));
    let _served = world.serve_at(&address);
    assert_eq!(waiting.says(), "holdgate: the gateway answers again\n");
    let ended = waiting.allowed();
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "ran\n", ""), "{ended:?}");
}

#[test]
fn the_help_says_how_long_it_waits_by_itself() {
    let help = World::new().run(&["exec", "--help"]).stdout;
    assert!(help.contains("[default: 10m]"), "{help}");
}

#[test]
fn a_list_says_what_became_of_an_allow() {
    let world = World::new();
    let _served = world.serve();
    for (code, result) in [(0, "succeeded"), (3, "failed")] {
        let ready = world.path(&format!("ready-{code}"));
        let script = format!("echo > '{}'; cat; exit {code}", ready.display());
        let waiting = Waiting::start(&world, &["sh", "-c", &script]);
        let id = waiting.id.clone();
        let status = || {
            let listed = world.run(&["approvals", "list", "--all"]).stdout;
            let row = listed.lines().find(|row| row.contains(&id)).unwrap_or_else(|| panic!("{listed}"));
            row.split(' ').next().unwrap().to_owned()
        };
        assert_eq!(status(), "pending");
        waiting.answer("allow", &[]);
        until("the child", || ready.exists().then_some(()));
        assert_eq!(status(), "running");
        assert_eq!(waiting.end().code, code);
        assert_eq!(status(), result);
    }
}

#[test]
fn a_signal_while_the_command_runs_is_the_commands() {
    let world = World::new();
    let served = world.serve();
    let script = "for s in INT TERM HUP USR1; do trap \"echo $s; exit 9\" $s; done
        echo ready > \"$1\"; while :; do sleep 0.02; done";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1] {
        let ready = world.path(&format!("ready-{}", signal.as_raw()));
        let waiting = Waiting::start(&world, &["sh", "-c", script, "sh", ready.to_str().unwrap()]);
        let id = waiting.id.clone();
        waiting.answer("allow", &[]);
        until("the child", || ready.exists().then_some(()));
        waiting.signal(signal);
        let ended = waiting.end();
        assert_eq!((ended.code, ended.stdout.lines().count()), (9, 1), "{signal:?}: {ended:?}");
        assert_eq!(record(&world, &served, &id), is("allowed", "user", true, Some("failed: exit status 9")));
    }
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let world = World::new();
    let _served = world.serve();
    let mut shell = Command::new("sh");
    let exec = world.command(&["exec", "--", "sh", "-c", "kill -HUP $$; echo alive"]);
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(exec.get_program()).args(exec.get_args());
    shell.env_remove("HOLDGATE_URL").env_remove("HOLDGATE_TOKEN");
    let waiting = Waiting::spawn(&world, shell);
    waiting.signal(Signal::HUP);
    let ended = waiting.allowed();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "alive\n"), "{ended:?}");
}

#[test]
fn the_command_finds_no_gateway_secret() {
    let world = World::new();
    let served = world.serve();
    let token = world.token("agent.token");
    let look =
        "env; tr '\\0' '\\n' < /proc/self/environ; [ \"$(id -u)\" = 0 ] || cat /proc/$PPID/environ; true";
    let mut exec = world.command(&["exec", "--", "sh", "-c", look]);
    exec.env("HOLDGATE_TOKEN", &token).env("HOLDGATE_URL", &served.url).env("KEPT", "yes");
    let ended = Waiting::spawn(&world, exec).allowed();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("KEPT=yes"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("HOLDGATE_") && !ended.stdout.contains(&token), "{}", ended.stdout);
}

#[test]
fn what_changed_while_it_waited_is_named_and_nothing_is_claimed() {
    let world = World::new();
    let served = world.serve();
    let (tool, script) = (world.path("tool"), world.path("script.sh"));
    let write = |path: &std::path::Path, text: &str| {
        // As an editor does it: a new file takes the place of the old one.
        let new = path.with_extension("new");
        std::fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, path).unwrap();
    };
    let [tool_text, script_text] = [&tool, &script].map(|path| path.to_str().unwrap());
    for (command, target) in [(&[tool_text][..], &tool), (&["sh", script_text], &script)] {
        write(&tool, "echo approved");
        write(&script, "echo approved");
        let waiting = Waiting::start(&world, command);
        let id = waiting.id.clone();
        write(target, "echo MUTATED");
        let ended = waiting.allowed();
        assert_eq!((ended.code, ended.stdout.as_str()), (77, ""), "{ended:?}");
        assert!(ended.stderr.contains("refused: the content of"), "{ended:?}");
        assert!(ended.stderr.contains(target.to_str().unwrap()), "{ended:?}");
        assert_eq!(record(&world, &served, &id), is("allowed", "user", false, None));
    }
}

#[test]
fn a_directory_link_that_was_retargeted_is_refused() {
    let world = World::new();
    let served = world.serve();
    let [one, two, link] = ["one", "two", "link"].map(|name| world.path(name));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    symlink(&one, &link).unwrap();
    let start = || {
        let mut exec = world.command(&["exec", "--", "sh", "-c", "pwd; touch mark"]);
        exec.current_dir(&link).env("PWD", &link);
        Waiting::spawn(&world, exec)
    };
    let ended = start().allowed();
    assert_eq!((ended.code, ended.stdout.trim_end()), (0, link.to_str().unwrap()), "{ended:?}");
    assert!(one.join("mark").exists());
    std::fs::remove_file(one.join("mark")).unwrap();
    let waiting = start();
    let id = waiting.id.clone();
    std::fs::remove_file(&link).unwrap();
    symlink(&two, &link).unwrap();
    let ended = waiting.allowed();
    assert_eq!(ended.code, 77, "{ended:?}");
    let said = format!("refused: the directory {} is now another directory", link.display());
    assert!(ended.stderr.contains(&said), "{ended:?}");
    assert_eq!(record(&world, &served, &id), is("allowed", "user", false, None));
    let revoked = world.read(&served, &id).revocation;
    assert_eq!(revoked.unwrap().by.kind, "agent", "who did not run it took the allow back");
    assert!(!one.join("mark").exists() && !two.join("mark").exists());
}

#[test]
fn a_reviewer_sees_the_arguments_apart_and_what_they_are_bound_to() {
    let world = World::new();
    let _served = world.serve();
    let run = world.path("run ");
    std::fs::write(&run, "#!/bin/sh\necho \"$#\"\n").unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
    let waiting = Waiting::start(&world, &[run.to_str().unwrap(), "ls"]);
    let shown = world.run(&["approvals", "show", &waiting.id]).stdout;
    assert!(shown.contains("run\\u{20}' ls"), "{shown}");
    assert!(shown.contains("/bin/sh"), "the interpreter is shown: {shown}");
    assert_eq!(waiting.allowed().stdout, "1\n");
}
