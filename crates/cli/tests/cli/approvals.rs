//! `approvals` at a gateway: what each command prints, and its exit code.

use holdgate_core::approval::Status;
use serde_json::json;

use crate::world::{World, exec};

#[test]
fn what_is_pending_is_listed_first() {
    let world = World::new();
    let served = world.serve();
    let nothing = world.run(&["approvals", "list"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""));
    assert!(nothing.stderr.contains("nothing pending"));
    let (one, two) = (world.ask(&served, exec(&["ls"])), world.ask(&served, exec(&["df"])));
    assert_eq!(world.run(&["approvals", "deny", &one.id]).code, 0);
    let listed = |more: &[&str]| world.run(&[&["approvals", "list"], more].concat());
    let pending = listed(&[]).stdout;
    assert!(pending.contains(&two.id) && !pending.contains(&one.id), "{pending}");
    assert!(pending.contains("Run `df`") && pending.contains("deployer"), "{pending}");
    let denied = listed(&["--status", "denied"]).stdout;
    assert!(denied.contains(&one.id) && !denied.contains(&two.id), "{denied}");
    assert_eq!(listed(&["--all"]).stdout.lines().count(), 3, "a header and two rows");
    assert_eq!(listed(&["--all", "--agent", "nobody"]).stdout, "");
    assert_eq!(listed(&["--all", "--kind", "tool"]).stdout, "");
}

#[test]
fn a_list_is_one_json_document_with_a_cursor() {
    let world = World::new();
    let served = world.serve();
    let ids = ["a", "b", "c"].map(|name| world.ask(&served, exec(&[name])).id);
    let first = world.run(&["--json", "approvals", "list", "--limit", "2"]).json();
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = world.run(&["approvals", "list", "--json", "--limit", "2", "--cursor", cursor]).json();
    assert_eq!((&rest["items"][0]["id"], &rest["nextCursor"]), (&json!(ids[0]), &json!(null)));
}

#[test]
fn a_request_is_shown_whole_with_the_requesters_words_marked() {
    let world = World::new();
    let served = world.serve();
    let mut request = exec(&["rm\u{200b}", "-rf", "/srv", "a\nStatus  allowed"]);
    request["reason"] = "trust me\u{202e}".into();
    let asked = world.ask(&served, request);
    let shown = world.run(&["approvals", "show", &asked.id]);
    assert_eq!(shown.code, 0);
    let text = &shown.stdout;
    for part in [
        r"rm\u{200B}",
        r"/srv",
        "Agent's reason    \"trust me\\u{202E}\"",
        "silence denies",
        &asked.digest,
        &format!("{}/approve/{}", served.url, asked.id),
        &format!(" approvals allow {}", asked.id),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let own: Vec<_> = text.lines().filter(|line| line.starts_with("Status")).collect();
    assert_eq!(own, ["Status            pending"], "no text of the requester's begins a line");
    assert_eq!(world.run(&["--json", "approvals", "show", &asked.id]).json()["digest"], json!(asked.digest));
}

#[test]
fn the_command_that_is_shown_works_when_it_is_copied() {
    let world = World::new();
    let served = world.serve();
    for has_url in [false, true] {
        let asked = world.ask(&served, exec(&["ls"]));
        let mut show = world.command(&["approvals", "show", &asked.id]);
        if has_url {
            show.env("HOLDGATE_URL", &served.url);
        }
        let shown = world.finish(&mut show).stdout;
        let line = shown.lines().find(|line| line.contains(" approvals allow ")).unwrap();
        assert_eq!(line.contains(&format!(" --url {} ", served.url)), has_url, "{line}");
        let mut shell = std::process::Command::new("sh");
        let copied = world.finish(shell.args(["-c", line]).env_clear());
        assert_eq!(copied.code, 0, "{line}: {copied:?}");
        assert_eq!(world.read(&served, &asked.id).status, Status::Allowed);
    }
}

#[test]
fn an_allow_applies_once_and_the_first_answer_stands() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask(&served, exec(&["ls"]));
    let first = world.run(&["approvals", "allow", &asked.id, "--reason", "looks right"]);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(
        first.stdout.contains("allowed by operator") && first.stdout.contains("looks right"),
        "{first:?}"
    );
    assert!(first.stderr.contains("Run `ls`") && first.stderr.contains(&asked.digest), "{first:?}");
    let again = world.run(&["approvals", "allow", &asked.id]);
    assert_eq!(again.code, 0);
    assert!(again.stdout.contains("the same answer stood already"), "{again:?}");
    let other = world.run(&["approvals", "deny", &asked.id]);
    assert_eq!(other.code, 4);
    assert!(other.stderr.contains("was allowed by operator"), "{other:?}");
    let other = world.run(&["--json", "approvals", "deny", &asked.id]);
    assert_eq!((other.code, &other.json()["code"]), (4, &json!("already_decided")));
    assert_eq!(other.json()["approval"]["decision"], json!("allow-once"));
}

#[test]
fn a_deny_says_why() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask(&served, exec(&["ls"]));
    let denied = world.run(&["--json", "approvals", "deny", &asked.id, "--reason", "not today"]);
    assert_eq!((denied.code, &denied.json()["applied"]), (0, &json!(true)));
    assert_eq!(world.read(&served, &asked.id).answer_reason(), Some("not today"));
}

#[test]
fn an_answer_that_must_say_why_does() {
    let world = World::new();
    let served = world.serve();
    let mut request = exec(&["ls"]);
    request["requirement"] = json!({"reasonRequired": true});
    let asked = world.ask(&served, request);
    let bare = world.run(&["approvals", "allow", &asked.id]);
    assert_eq!(bare.code, 1, "{bare:?}");
    assert_eq!(world.read(&served, &asked.id).status, Status::Pending);
    assert_eq!(world.run(&["approvals", "allow", &asked.id, "--reason", "r"]).code, 0);
}

#[test]
fn an_agents_token_never_answers() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask(&served, exec(&["ls"]));
    for answer in ["allow", "deny"] {
        let mut command = world.command(&["approvals", answer, &asked.id]);
        let refused = world.finish(command.env("HOLDGATE_TOKEN", world.token("agent.token")));
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("agents and requesters never decide"), "{refused:?}");
    }
    assert_eq!(world.read(&served, &asked.id).status, Status::Pending);
}

#[test]
fn what_does_not_exist_is_not_found() {
    let world = World::new();
    let _served = world.serve();
    let absent = "apr_00112233445566778899aabbccddeeff";
    for id in [absent, "apr_", "", ".", "../approvals", "a\u{1b}[2J", "😀", &"x".repeat(9_000)] {
        for command in ["show", "allow", "deny", "wait"] {
            let ended = world.run(&["approvals", command, "--", id]);
            assert_eq!(ended.code, 5, "{command} {id:?}: {ended:?}");
            assert!(!ended.stderr.contains('\u{1b}'), "{ended:?}");
        }
    }
}

#[test]
fn what_is_over_cannot_be_answered() {
    let world = World::new();
    let served = world.serve();
    let mut request = exec(&["ls"]);
    request["timeoutMs"] = 1.into();
    let expired = world.ask(&served, request);
    let cancelled = world.ask(&served, exec(&["ls"]));
    world.cancel(&served, &cancelled.id);
    for (asked, how) in [(&expired, "expired"), (&cancelled, "cancelled")] {
        assert_eq!(world.run(&["approvals", "wait", &asked.id]).code, 6);
        let late = world.run(&["approvals", "allow", &asked.id]);
        assert_eq!(late.code, 6, "{late:?}");
        assert!(late.stderr.contains(how), "{late:?}");
    }
}

#[test]
fn a_wait_ends_as_the_request_does() {
    let world = World::new();
    let served = world.serve();
    for (answer, code) in [("allow", 0), ("deny", 3)] {
        let asked = world.ask(&served, exec(&["ls"]));
        let mut command = world.command(&["--json", "approvals", "wait", &asked.id]);
        let waiting = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(world.run(&["approvals", answer, &asked.id]).code, 0);
        let ended = world.wait(waiting);
        assert_eq!((ended.code, &ended.json()["id"]), (code, &json!(asked.id)), "{ended:?}");
    }
    let asked = world.ask(&served, exec(&["ls"]));
    let ended = world.run(&["approvals", "wait", &asked.id, "--timeout", "50ms"]);
    assert_eq!((ended.code, ended.stdout.trim()), (8, format!("{} pending", asked.id).as_str()), "{ended:?}");
}

#[test]
fn a_row_that_does_not_decode_is_denied_and_cannot_be_allowed() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask_of_a_run(&served, "a");
    served.stop();
    let db = rusqlite::Connection::open(world.database()).unwrap();
    // The database itself refuses such a change; a failing disk does not ask.
    db.execute_batch("DROP TRIGGER approvals_request_is_frozen").unwrap();
    assert_eq!(db.execute("UPDATE approvals SET presentation = '[]'", []).unwrap(), 1);
    drop(db);
    let _served = world.serve();
    let shown = world.run(&["approvals", "show", &asked.id]);
    assert!(shown.code == 0 && shown.stdout.contains("denied (storage-corrupt)"), "{shown:?}");
    assert_eq!(
        world.run(&["--json", "approvals", "show", &asked.id]).json()["terminalReason"],
        json!("storage-corrupt")
    );
    let allowed = world.run(&["approvals", "allow", &asked.id]);
    assert_eq!((allowed.code, allowed.stdout.as_str()), (1, ""), "{allowed:?}");
    assert_eq!(world.run(&["approvals", "wait", &asked.id]).code, 3);
    assert_eq!(world.run(&["approvals", "list"]).stdout, "", "it waits for nobody");
    assert!(world.run(&["approvals", "list", "--all"]).stdout.contains(&asked.id), "it is not hidden");
}

#[test]
fn a_command_line_that_makes_no_sense_is_a_usage_error() {
    let world = World::new();
    for arguments in [
        &[][..],
        &["approvals"],
        &["approvals", "allow"],
        &["approvals", "list", "--status", "open"],
        &["approvals", "list", "--status", "denied", "--all"],
        &["approvals", "list", "--kind", "thing"],
        &["approvals", "list", "--limit", "0"],
        &["approvals", "wait", "apr_1", "--timeout", "soon"],
        &["nonsense"],
    ] {
        assert_eq!(world.run(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn an_allow_that_was_taken_back_is_told_as_such_and_kept_in_the_history() {
    let world = World::new();
    let served = world.serve();
    let [one, two] = ["a", "b"].map(|name| world.ask(&served, exec(&[name])).id);
    assert_eq!(world.run(&["approvals", "history"]).stdout, "", "what waits has not ended");
    assert_eq!(world.run(&["approvals", "revoke", "no-such"]).code, 5);
    assert_eq!(world.run(&["approvals", "revoke", &one]).code, 1, "nothing is allowed yet");
    assert_eq!(world.run(&["approvals", "allow", &one]).code, 0);
    let revoked = world.run(&["approvals", "revoke", &one, "--reason", "wrong host"]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    assert!(revoked.stdout.contains("taken back"), "{revoked:?}");
    let waited = world.run(&["approvals", "wait", &one]);
    assert_eq!(waited.code, 6, "whoever waits must not go on: {waited:?}");
    assert!(waited.stdout.contains("then taken back by operator"), "{waited:?}");
    let shown = world.run(&["approvals", "show", &one]).stdout;
    assert!(shown.contains("wrong host"), "{shown}");
    assert_eq!(world.run(&["approvals", "deny", &two]).code, 0);
    let listed = world.run(&["approvals", "history"]).stdout;
    assert!(listed.contains("revoked") && listed.contains("denied"), "{listed}");
    assert_eq!(world.run(&["approvals", "history", "--kind", "tool"]).stdout, "");
    let first = world.run(&["--json", "approvals", "history", "--limit", "1"]).json();
    assert_eq!((&first["items"][0]["id"], first["items"].as_array().unwrap().len()), (&json!(two), 1));
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = world.run(&["--json", "approvals", "history", "--all", "--cursor", cursor]).json();
    assert_eq!((&rest["items"][0]["id"], &rest["nextCursor"]), (&json!(one), &json!(null)));
}

#[test]
fn one_answer_of_two_is_recorded_and_waits_for_the_other() {
    let world = World::new();
    let served = world.serve();
    let mut request = exec(&["ls"]);
    request["requirement"] = json!({"approvals": 2});
    let asked = world.ask(&served, request);
    assert!(world.run(&["approvals", "list"]).stdout.contains("pending 0/2"));
    let voted = world.run(&["approvals", "allow", &asked.id]);
    assert_eq!(voted.code, 0, "{voted:?}");
    assert!(voted.stdout.contains("recorded; 1 of 2"), "{voted:?}");
    let again = world.run(&["approvals", "allow", &asked.id]);
    assert!(again.code == 0 && again.stdout.contains("recorded; 1 of 2"), "{again:?}");
    assert!(world.run(&["approvals", "list"]).stdout.contains("pending 1/2"));
    let shown = world.run(&["approvals", "show", &asked.id]).stdout;
    assert!(shown.contains("2 people to allow") && shown.contains("allow-once by"), "{shown}");
    assert_eq!(world.read(&served, &asked.id).status, Status::Pending);
}
