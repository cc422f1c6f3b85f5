//! What is said of each kind: headlines, facts in order, and what is refused.

use serde_json::{Value, json};

use super::super::{COMMAND_DISPLAY_LIMIT, DISPLAY_LIMIT, Fact, NotPresentable};
use super::{Kind, Presentation, fact, present, shown};

fn headline(kind: Kind, content: Value) -> String {
    shown(kind, content).headline
}

fn facts(shown: &Presentation) -> Vec<(&str, &str)> {
    shown.facts.iter().map(|fact| (fact.label.as_str(), fact.text.as_str())).collect()
}

#[test]
fn a_command_is_told_with_everything_it_was_resolved_to() {
    let (git, script, environment) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
    let shown = shown(
        Kind::Exec,
        json!({
            "argv": ["sh", "script.sh", "big.iso", "it's"],
            "executable": { "path": "/bin/sh", "sha256": git, "bytes": 12 },
            "cwd": { "path": "/srv/app", "device": 2049, "inode": 131 },
            "environment": { "sha256": environment, "count": 31 },
            "operands": [
                { "argument": 1, "path": "script.sh", "sha256": script, "bytes": 1, "pinned": true },
                { "argument": 2, "path": "big.iso", "bytes": 99, "modifiedMs": 5, "unhashed": true },
            ],
            "extra": { "a": ["7", 7] },
        }),
    );
    assert_eq!(shown.headline, r"Run `sh script.sh big.iso 'it'\''s'` in /srv/app");
    assert_eq!(shown.command_text.as_deref(), Some(r"sh script.sh big.iso 'it'\''s'"));
    let expected = [
        ("Command", r"sh script.sh big.iso 'it'\''s'".to_owned()),
        ("Argument 0", r#""sh""#.to_owned()),
        ("Argument 1", r#""script.sh""#.to_owned()),
        ("Argument 2", r#""big.iso""#.to_owned()),
        ("Argument 3", r#""it's""#.to_owned()),
        ("Program", format!(r#""/bin/sh", sha256 {git}, 12 bytes"#)),
        ("Directory", r#""/srv/app", device 2049, inode 131"#.to_owned()),
        ("Environment", format!("31 variables, sha256 {environment}")),
        (
            "Operand",
            format!(r#""script.sh", argument 1, sha256 {script}, 1 byte, runs from a sealed copy of the approved bytes"#),
        ),
        (
            "Operand",
            r#""big.iso", argument 2, 99 bytes, modified at Unix millisecond 5, content not hashed: only size and time are checked"#
                .to_owned(),
        ),
        ("extra.a[0]", r#""7""#.to_owned()),
        ("extra.a[1]", "7".to_owned()),
    ];
    let expected: Vec<_> = expected.iter().map(|(label, text)| (*label, text.as_str())).collect();
    assert_eq!(facts(&shown), expected);
    assert_eq!(shown.flags, [""; 0]);
}

#[test]
fn known_fields_of_another_type_and_unknown_fields_are_shown_by_path() {
    let shown = shown(
        Kind::Exec,
        json!({
            "argv": ["x"],
            "executable": { "path": 7, "sha256": "short", "bytes": "12", "mode": null },
            "cwd": { "path": "/w", "inode": "9" },
            "operands": [{ "path": "a", "pinned": false }, 3],
            "environment": {},
            "Command": "ls",
        }),
    );
    let expected = [
        ("Command", "x"),
        ("executable.bytes", r#""12""#),
        ("executable.mode", "null"),
        ("executable.path", "7"),
        ("executable.sha256", r#""short""#),
        ("Directory", r#""/w", inode "9""#),
        ("environment", "{}"),
        ("Operand", r#""a""#),
        ("operands[0].pinned", "false"),
        ("operands[1]", "3"),
        (r#""Command""#, r#""ls""#),
    ];
    assert_eq!(facts(&shown), expected);
}

#[test]
fn the_headline_of_a_command_is_its_verb_object_and_place() {
    let long = "x".repeat(90);
    let table = [
        (
            json!({ "argv": ["git", "push", "origin", "main"], "cwd": { "path": "/srv/app" } }),
            "Run `git push origin main` in /srv/app",
        ),
        (json!({ "argv": ["sh", "-c", long], "cwd": "/srv/app" }), "Run `sh` with 2 arguments in /srv/app"),
        (json!({ "argv": ["sh", long] }), "Run `sh` with 1 argument"),
        (json!({ "argv": [long] }), "Run a program with a long name, below, with 0 arguments"),
        (json!({ "argv": ["echo", "`id` in /tmp"], "cwd": "/" }), "Run `echo` with 1 argument in /"),
        (json!({ "argv": ["ls", ""], "cwd": "/my dir" }), "Run `ls ''` in '/my dir'"),
        (json!({ "argv": ["ls"], "cwd": long }), "Run `ls` in the directory below"),
        (json!({ "command": "ls | wc" }), "Run `ls | wc`"),
        (json!({ "command": long, "argv": null, "cwd": "/w" }), "Run the command below in /w"),
        (json!({ "argv": ["ls"], "command": "rm -rf /" }), "Run `ls`"),
    ];
    for (content, expected) in table {
        assert_eq!(headline(Kind::Exec, content), expected);
    }
}

#[test]
fn a_tool_call_is_told_by_its_inputs() {
    let shown = shown(
        Kind::Tool,
        json!({
            "kind": "tool_call", "toolName": "publish_release", "rawInput": { "version": "1.2.0" },
            "input": { "version": "1.2.0" }, "agentName": "operator", "taskId": "task-7", "toolCallId": "call-6",
            "consequential": true,
        }),
    );
    assert_eq!(shown.headline, r#"Call tool `publish_release` with version "1.2.0" (consequential)"#);
    assert_eq!(shown.tool_name.as_deref(), Some("publish_release"));
    let expected = [
        ("Tool", r#""publish_release""#),
        ("input.version", r#""1.2.0""#),
        ("As sent by the model", "the same as the input"),
        ("agentName", r#""operator""#),
        ("consequential", "true"),
        ("kind", r#""tool_call""#),
        ("taskId", r#""task-7""#),
        ("toolCallId", r#""call-6""#),
    ];
    assert_eq!(facts(&shown), expected);
}

#[test]
fn what_the_model_sent_is_told_where_it_differs() {
    let shown = shown(
        Kind::Tool,
        json!({
            "toolName": "t",
            "rawInput": { "same": 1, "n": "7", "list": [1, 2], "more": { "x": true }, "empty": {} },
            "input": { "same": 1, "n": 7, "list": [1, 3, 4], "default": null, "empty": { "y": 0 } },
        }),
    );
    let sent: Vec<_> = facts(&shown).into_iter().filter(|(label, _)| label.starts_with("rawInput")).collect();
    let expected = [
        ("rawInput.empty (as sent by the model)", "{}"),
        ("rawInput.list[1] (as sent by the model)", "2"),
        ("rawInput.list[2] (as sent by the model)", "absent"),
        ("rawInput.more.x (as sent by the model)", "true"),
        ("rawInput.n (as sent by the model)", r#""7""#),
        ("rawInput.default (as sent by the model)", "absent"),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn the_headline_of_a_tool_call_names_a_few_short_inputs() {
    let long = "x".repeat(90);
    let table = [
        (json!({}), "Call tool `t` without input"),
        (
            json!({ "a": 1, "b": null, "c": "s", "d": true }),
            r#"Call tool `t` with a 1, b null, c "s" and 1 more"#,
        ),
        (json!({ "a": long, "b": { "c": 1 } }), "Call tool `t` with 2 inputs"),
        (json!({ "a": long }), "Call tool `t` with 1 input"),
        (json!({ "a": long, "b": 2 }), "Call tool `t` with b 2 and 1 more"),
        (json!({ "a": "x\", b \"y" }), r#"Call tool `t` with a "x\", b \"y""#),
        (json!({ "with no": 1 }), r#"Call tool `t` with "with no" 1"#),
        (json!([1, 2]), "Call tool `t` with a list of 2 items"),
        (json!("s"), r#"Call tool `t` with "s""#),
    ];
    for (input, expected) in table {
        assert_eq!(headline(Kind::Tool, json!({ "toolName": "t", "input": input })), expected);
    }
    assert_eq!(headline(Kind::Tool, json!({ "toolName": "a`b" })), r"Call tool `a\u{60}b` without input");
    assert_eq!(
        headline(Kind::Tool, json!({ "toolName": long })),
        "Call tool with a long name, below, without input"
    );
}

#[test]
fn the_other_kinds_are_told_by_what_is_there() {
    let long = "x".repeat(90);
    let table = [
        (Kind::Plan, json!({ "tasks": [1, 2] }), "Execute a plan of 2 tasks"),
        (Kind::Plan, json!({ "tasks": [1] }), "Execute a plan of 1 task"),
        (Kind::Plan, json!({ "tasks": 2 }), "Execute a plan"),
        (Kind::Dispatch, json!({ "task": { "title": "Ship 1.4" } }), "Start task `Ship 1.4`"),
        (Kind::Dispatch, json!({ "task": { "title": long } }), "Start task with a long title, below"),
        (Kind::Dispatch, json!({ "task": "x" }), "Start a task"),
        (Kind::Round, json!({ "nextTasks": [{}, {}, {}] }), "Start the next round of 3 tasks"),
        (Kind::Round, json!({}), "Start the next round"),
        (Kind::Plugin, json!({ "title": "Send\nmail" }), r"Run plugin action `Send\u{A}mail`"),
        (Kind::Plugin, json!({ "a": 1 }), "Run a plugin action with 1 field"),
    ];
    for (kind, content, expected) in table {
        assert_eq!(headline(kind, content), expected);
    }
    assert_eq!(fact(&shown(Kind::Plan, json!({})), "Content"), "{}");
}

#[test]
fn content_of_the_wrong_shape_is_refused_with_its_place() {
    let table = [
        (Kind::Plan, json!([]), "content"),
        (Kind::Plugin, json!(null), "content"),
        (Kind::Exec, json!({}), "argv"),
        (Kind::Exec, json!({ "argv": [] }), "argv"),
        (Kind::Exec, json!({ "argv": "ls", "command": "ls" }), "argv"),
        (Kind::Exec, json!({ "argv": [""] }), "argv[0]"),
        (Kind::Exec, json!({ "argv": [1] }), "argv[0]"),
        (Kind::Exec, json!({ "argv": ["ls", null] }), "argv[1]"),
        (Kind::Exec, json!({ "command": "" }), "command"),
        (Kind::Exec, json!({ "command": ["ls"] }), "command"),
        (Kind::Tool, json!({ "input": {} }), "toolName"),
        (Kind::Tool, json!({ "toolName": "" }), "toolName"),
    ];
    for (kind, content, place) in table {
        let refused = present(kind, &content).unwrap_err();
        assert!(
            matches!(&refused, NotPresentable::Malformed { at, .. } if at == place),
            "{content}: {refused:?}"
        );
    }
}

#[test]
fn content_nested_beyond_reason_is_refused() {
    let nested = (0..200).fold(json!(1), |inner, _| Value::Array(vec![inner]));
    let refused = present(Kind::Plan, &json!({ "a": nested })).unwrap_err();
    assert_eq!(refused.to_string(), "the action's content must be at most 128 levels of nesting");
}

#[test]
fn a_command_over_its_limit_is_refused_and_at_the_limit_it_is_whole() {
    let fits = "x".repeat(COMMAND_DISPLAY_LIMIT);
    assert_eq!(shown(Kind::Exec, json!({ "command": fits })).command_text.as_ref(), Some(&fits));
    assert_eq!(shown(Kind::Exec, json!({ "argv": [fits] })).command_text, Some(fits));
    for content in [
        json!({ "command": "x".repeat(COMMAND_DISPLAY_LIMIT + 1) }),
        json!({ "argv": ["x", "x".repeat(COMMAND_DISPLAY_LIMIT - 1)] }),
        json!({ "argv": ["x".repeat(COMMAND_DISPLAY_LIMIT), ""] }),
        json!({ "argv": vec!["a b"; 300_000] }),
        json!({ "argv": ["sh", "\u{200B}x".repeat(300_000)] }),
    ] {
        let refused = present(Kind::Exec, &content).unwrap_err();
        let NotPresentable::TooLong { shown, limit } = refused else { panic!("{refused:?}") };
        assert!(shown > limit && limit == COMMAND_DISPLAY_LIMIT, "{shown}");
        assert!(refused.to_string().contains("never truncated"));
    }
}

#[test]
fn arguments_are_told_one_by_one_as_soon_as_one_is_more_than_a_word() {
    let mut argv = vec!["x"; COMMAND_DISPLAY_LIMIT / 2 - 4];
    assert_eq!(shown(Kind::Exec, json!({ "argv": argv })).facts.len(), 1, "the command says it all");
    argv.push("a b");
    assert_eq!(shown(Kind::Exec, json!({ "argv": argv })).facts.len(), 1 + argv.len());
}

#[test]
fn a_script_is_told_with_what_runs_it() {
    let sha256 = "5".repeat(64);
    let shell = json!({ "path": "/bin/sh", "sha256": sha256, "bytes": 9 });
    let script = json!({ "path": "/w/x", "bytes": 7, "pinned": true, "interpreters": [shell, { "path": "/bin/env" }] });
    let shown = shown(Kind::Exec, json!({ "argv": ["./x"], "executable": script }));
    let expected = [
        ("Command", "./x".to_owned()),
        ("Program", r#""/w/x", 7 bytes, runs from a sealed copy of the approved bytes"#.to_owned()),
        ("Interpreter", format!(r#""/bin/sh", sha256 {sha256}, 9 bytes"#)),
        ("Interpreter", r#""/bin/env""#.to_owned()),
    ];
    let expected = expected.each_ref().map(|(label, text)| (*label, text.as_str()));
    assert_eq!(facts(&shown), expected);
}

#[test]
fn variables_that_steer_programs_are_named() {
    let environment = json!({ "count": 2, "steering": ["BASH_ENV", "LD_PRELOAD"] });
    let shown = shown(Kind::Exec, json!({ "argv": ["true"], "environment": environment }));
    let steers = "Variable that steers programs";
    let expected = [
        ("Command", "true"),
        ("Environment", "2 variables"),
        (steers, r#""BASH_ENV""#),
        (steers, r#""LD_PRELOAD""#),
    ];
    assert_eq!(facts(&shown), expected);
}

#[test]
fn a_headline_repeats_no_text_of_several_lines() {
    let shown = shown(Kind::Tool, json!({ "toolName": "t", "input": { "notes": "a\nb", "version": "1" } }));
    assert_eq!(shown.headline, "Call tool `t` with version \"1\" and 1 more");
}

#[test]
fn facts_over_the_limit_are_refused_and_at_the_limit_they_are_whole() {
    // The label takes one character and the quotation signs two.
    let fits = "x".repeat(DISPLAY_LIMIT - 3);
    let whole = Fact { label: "a".to_owned(), text: format!("\"{fits}\"") };
    assert_eq!(shown(Kind::Plan, json!({ "a": fits })).facts, [whole]);
    let wide: serde_json::Map<String, Value> = (0..80_000).map(|n| (n.to_string(), json!(0))).collect();
    let deep_key = "k".repeat(60_000);
    let contents = [
        (Kind::Plan, json!({ "a": format!("{fits}x") })),
        (Kind::Plan, json!({ "a": fits, "b": 1 })),
        (Kind::Round, json!({ "a": vec![0; 200_000] })),
        (Kind::Dispatch, json!({ (deep_key): wide })),
        (Kind::Plugin, json!({ "k".repeat(1 << 20): 1 })),
        (Kind::Tool, json!({ "toolName": "x".repeat(70_000) })),
        (Kind::Tool, json!({ "toolName": "t", "input": { "a": fits } })),
        (Kind::Exec, json!({ "argv": ["ls"], "operands": vec![json!({ "path": "x".repeat(90) }); 10_000] })),
    ];
    for (kind, content) in contents {
        let refused = present(kind, &content).unwrap_err();
        let NotPresentable::TooLong { shown, limit } = refused else { panic!("{refused:?}") };
        assert!(shown > limit && limit == DISPLAY_LIMIT, "{shown}");
    }
}

#[test]
fn a_presentation_keeps_its_json_shape() {
    let shown = shown(Kind::Tool, json!({ "toolName": "t", "input": { "a": 1 } }));
    let json = serde_json::to_value(&shown).unwrap();
    let expected = json!({
        "kind": "tool", "headline": "Call tool `t` with a 1", "toolName": "t",
        "facts": [{ "label": "Tool", "text": "\"t\"" }, { "label": "input.a", "text": "1" }], "flags": [],
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Presentation>(json).unwrap(), shown);
}
