//! Devices, credentials, freezes and what to do when something is lost: the real commands on real homes.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{Ended, Served, World, bare, exec, mode};

/// Makes a code for a device of `person`.
fn code_for(world: &World, person: &str) -> String {
    let offered = world.run(&["--json", "pair", "--person", person]);
    assert_eq!(offered.code, 0, "{offered:?}");
    offered.json()["code"].as_str().unwrap().to_owned()
}

/// Runs a command in the home of another machine, with a text on its standard input.
fn elsewhere(world: &World, arguments: &[&str], input: &str) -> Ended {
    let mut command = bare();
    command.arg("--home").arg(world.path("laptop")).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses before it reads is gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    world.wait(child)
}

fn join(world: &World, served: &Served<'_>, code: &str) -> Ended {
    elsewhere(world, &["pair", "--join", &served.url, "--label", "laptop"], &format!("{code}\n"))
}

#[test]
fn another_machine_is_paired_by_a_code_and_answers_as_its_person() {
    let world = World::new();
    let served = world.serve();
    let code = code_for(&world, "alice");
    let joined = join(&world, &served, &code.to_lowercase());
    assert_eq!(joined.code, 0, "{joined:?}");
    let file = world.path("laptop").join("device.token");
    assert_eq!(mode(&file), 0o600);
    let token = fs::read_to_string(&file).unwrap().lines().next().unwrap().to_owned();
    assert!(token.starts_with("hgd_") && !joined.stdout.contains(&token) && !joined.stderr.contains(&token));
    let used = join(&world, &served, &code);
    assert_eq!(used.code, 1, "{used:?}");
    assert!(!used.stderr.contains(&code), "{used:?}");

    let asked = world.ask(&served, exec(&["ls"]));
    let allowed = elsewhere(&world, &["approvals", "allow", &asked.id], "");
    assert_eq!(allowed.code, 0, "{allowed:?}");
    assert!(allowed.stdout.contains("allowed by alice (laptop) at"), "{allowed:?}");
    for command in [&["devices", "list"][..], &["token", "list"], &["freeze"], &["token", "create", "x"]] {
        let refused = elsewhere(&world, command, "");
        assert_eq!(refused.code, 1, "{command:?}: {refused:?}");
        assert!(refused.stderr.contains("operator.admin"), "{refused:?}");
    }
    let away = elsewhere(&world, &["approvals", "list", "--url", "http://127.0.0.1:1"], "");
    assert_eq!(away.code, 1, "{away:?}");
    assert!(away.stderr.contains("its token goes nowhere else"), "{away:?}");

    let devices = world.run(&["--json", "devices", "list"]).json();
    let device = &devices["items"][0];
    assert_eq!((&device["person"], &device["label"]), (&json!("alice"), &json!("laptop")));
    let revoked = world.run(&["devices", "revoke", device["id"].as_str().unwrap()]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    let out = elsewhere(&world, &["approvals", "list"], "");
    assert_eq!(out.code, 1, "{out:?}");
    assert_eq!(world.run(&["devices", "revoke", device["id"].as_str().unwrap()]).code, 5);
    assert_eq!(world.run(&["devices", "list"]).stdout, "");
}

#[test]
fn who_offers_a_code_is_told_when_it_was_used() {
    let world = World::new();
    let served = world.serve();
    let mut offering = world.command(&["pair"]);
    let mut child = offering.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut code = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut code).unwrap();
    assert_eq!(join(&world, &served, &code).code, 0);
    let ended = world.wait(child);
    assert_eq!(ended.code, 0, "{ended:?}");
    for said in ["one device of operator", "paired: \"laptop\"", &format!("{}/sign-in", served.url)] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

#[test]
fn pairing_needs_a_gateway_and_a_code() {
    let world = World::new();
    world.serve().stop();
    assert_eq!(world.run(&["pair"]).code, 7);
    let served = world.serve();
    assert_eq!(elsewhere(&world, &["pair", "--join", &served.url], "").code, 1);
    assert_eq!(world.run(&["pair", "--join", &served.url, "7K2MD-0QXR9"]).code, 2, "a code is no argument");
    assert_eq!(world.run(&["pair", "--join", &served.url, "--admin"]).code, 2);
    assert_eq!(elsewhere(&world, &["pair", "--join", "http://gate.example"], "7K2MD-0QXR9").code, 1);
    assert!(!world.path("laptop").exists(), "nothing is left of what did not work");
}

#[test]
fn tokens_are_made_listed_replaced_and_revoked_with_a_gateway_and_without() {
    let world = World::new();
    for has_gateway in [true, false] {
        let served = has_gateway.then(|| world.serve());
        let name = if has_gateway { "ci" } else { "cd" };
        let made = world.run(&["token", "create", name, "--reviewer", "person:alice"]);
        assert_eq!(made.code, 0, "{made:?}");
        let token = made.stdout.trim().to_owned();
        assert!(token.starts_with("hga_") && !made.stderr.contains(&token), "{made:?}");
        assert_eq!(world.run(&["token", "create", name]).code, 1, "the name is taken");
        let listed = world.run(&["token", "list"]);
        assert!(listed.stdout.contains(name) && listed.stdout.contains("person:alice"), "{listed:?}");
        assert!(!listed.stdout.contains("hga_"), "{listed:?}");
        let rotated = world.run(&["--json", "token", "rotate", name]).json();
        let next = rotated["token"].as_str().unwrap().to_owned();
        assert_ne!(next, token);
        if let Some(served) = &served {
            assert!(served.get("/v1/me", Some(&token)).starts_with("HTTP/1.1 401"));
            assert!(served.get("/v1/me", Some(&next)).starts_with("HTTP/1.1 200"));
        }
        assert_eq!(world.run(&["token", "revoke", name]).code, 0);
        assert_eq!(world.run(&["token", "revoke", name]).code, 5);
        assert_eq!(world.run(&["token", "rotate", "nobody"]).code, 5);
        let runtime =
            world.run(&["--json", "token", "create", "host", "--runtime", "--for-agent", "agent"]).json();
        assert_eq!(runtime["principal"]["range"], json!("agent"));
        assert_eq!(world.run(&["token", "revoke", "host"]).code, 0);
    }
    assert_eq!(world.run(&["token", "create", "x", "--for-agent", "agent"]).code, 2);
}

#[test]
fn the_homes_own_tokens_are_replaced_in_their_files() {
    let world = World::new();
    let served = world.serve();
    for name in ["operator", "agent"] {
        let file = format!("{name}.token");
        let before = world.token(&file);
        let rotated = world.run(&["token", "rotate", name]);
        assert_eq!(rotated.code, 0, "{rotated:?}");
        let after = world.token(&file);
        assert!(before != after && !rotated.stdout.contains(&after), "{rotated:?}");
        assert_eq!(mode(&world.home().join(&file)), 0o600);
        assert!(served.get("/v1/me", Some(&before)).starts_with("HTTP/1.1 401"));
        assert!(served.get("/v1/me", Some(&after)).starts_with("HTTP/1.1 200"));
    }
    served.stop();
    let _served = world.serve();
    assert_eq!(world.run(&["approvals", "list"]).code, 0, "the files hold after a restart");
}

#[test]
fn a_revoked_agent_token_is_not_made_good_again_by_a_restart() {
    let world = World::new();
    let served = world.serve();
    let revoked = world.token("agent.token");
    assert_eq!(world.run(&["token", "revoke", "agent"]).code, 0);
    served.stop();
    let served = world.serve();
    assert!(served.get("/v1/me", Some(&revoked)).starts_with("HTTP/1.1 401"));
    assert!(served.get("/v1/me", Some(&world.token("agent.token"))).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_lost_operator_token_is_recovered_by_whoever_has_the_database() {
    let world = World::new();
    let served = world.serve();
    let before = world.token("operator.token");
    let file = world.home().join("operator.token");
    let refused = world.run(&["token", "recover"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains(&served.url) && refused.stderr.contains("stop that first"),
        "{refused:?}"
    );
    served.stop();
    let refused = world.run(&["token", "recover"]);
    assert!(refused.code == 1 && refused.stderr.contains("in order"), "{refused:?}");
    for lost in [None, Some("half a tok"), Some(format!("hgo_{}", "0f".repeat(32)).as_str())] {
        match lost {
            None => fs::remove_file(&file).unwrap(),
            Some(garbled) => fs::write(&file, garbled).unwrap(),
        }
        if lost.is_some() {
            let refused = world.run(&["serve", "--listen", "127.0.0.1:0"]);
            assert!(refused.code == 1 && refused.stderr.contains("operator.token"), "{refused:?}");
        }
        let recovered = world.run(&["token", "recover"]);
        assert_eq!(recovered.code, 0, "{recovered:?}");
        assert!(recovered.stderr.contains("recorded"), "{recovered:?}");
    }
    let served = world.serve();
    assert!(served.get("/v1/me", Some(&before)).starts_with("HTTP/1.1 401"));
    let facts = served.get("/v1/administration", Some(&world.token("operator.token")));
    assert_eq!(facts.matches("operator-recovered").count(), 3, "{facts}");
}

#[test]
fn what_is_frozen_stays_frozen_until_it_is_thawed() {
    let world = World::new();
    let served = world.serve();
    let frozen = world.run(&["freeze", "agent", "--reason", "odd"]);
    assert_eq!(frozen.code, 0, "{frozen:?}");
    assert!(frozen.stdout.contains("agent is frozen") && frozen.stdout.contains("\"odd\""), "{frozen:?}");
    let mut run = world.command(&["exec", "--", "true"]);
    assert_eq!(world.finish(&mut run).code, 77, "nothing runs");
    served.stop();
    let all = world.run(&["--json", "freeze"]).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    assert_eq!(world.run(&["thaw"]).code, 0);
    let left = world.run(&["thaw", "agent"]);
    assert_eq!(left.stdout, "nothing is frozen\n", "{left:?}");
    assert_eq!(world.run(&["thaw", "agent"]).code, 0, "again is no mistake");
}

fn states(ended: &Ended) -> Vec<(String, String)> {
    let document = ended.json();
    let checks = document["checks"].as_array().unwrap();
    let field = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    checks.iter().map(|check| (field(check, "name"), field(check, "state"))).collect()
}

fn has(ended: &Ended, name: &str, state: &str) -> bool {
    states(ended).contains(&(name.to_owned(), state.to_owned()))
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_healthy_home() {
    let world = World::new();
    let served = world.serve();
    world.ask(&served, exec(&["ls"]));
    let examined = world.run(&["--json", "doctor"]);
    assert_eq!(examined.code, 0, "{examined:?}");
    assert_eq!(examined.json()["ok"], json!(true));
    for name in [
        "home",
        "operator token",
        "agent token",
        "database",
        "clock",
        "gateway",
        "sign-in",
        "records",
        "freezes",
    ] {
        assert!(has(&examined, name, "ok"), "{name}: {examined:?}");
    }
    assert!(has(&examined, "separation", "advisory"));
    assert!(world.run(&["doctor"]).stdout.contains("1 pending"));
    world.run(&["freeze"]);
    served.stop();
    let examined = world.run(&["--json", "doctor"]);
    assert_eq!(examined.code, 0, "what is advisory is not wrong: {examined:?}");
    assert!(has(&examined, "gateway", "advisory") && has(&examined, "freezes", "advisory"));
    let text = world.run(&["doctor"]).stdout;
    assert!(text.contains("-> start one with `holdgate serve`"), "{text}");
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let world = World::new();
    let nowhere = world.run(&["doctor"]);
    assert!(nowhere.code == 1 && nowhere.stdout.contains("there is no directory"), "{nowhere:?}");
    world.serve().stop();
    let broken = |name: &str, says: &str| {
        let examined = world.run(&["--json", "doctor"]);
        assert_eq!(examined.code, 1, "{name}: {examined:?}");
        assert!(has(&examined, name, "wrong"), "{name}: {examined:?}");
        assert!(examined.stdout.contains(says), "{says}: {examined:?}");
    };
    let permit =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    permit(&world.home(), 0o777);
    broken("home", "chmod 700");
    permit(&world.home(), 0o700);
    let token = world.home().join("operator.token");
    permit(&token, 0o644);
    broken("token files", "chmod 600");
    permit(&token, 0o600);
    let whole = fs::read(&token).unwrap();
    fs::write(&token, "hgo_x").unwrap();
    broken("operator token", "token recover");
    fs::write(&token, &whole).unwrap();
    fs::write(world.home().join("holdgate.toml"), "listen = 7").unwrap();
    broken("configuration", "holdgate config check");
    fs::remove_file(world.home().join("holdgate.toml")).unwrap();
    permit(&world.database(), 0o644);
    broken("database", "chmod 600");
    permit(&world.database(), 0o600);
    assert_eq!(world.run(&["doctor"]).code, 0, "all of it was put right");
    let db = fs::read(world.database()).unwrap();
    let mut damaged = db.clone();
    let page = damaged.len() / 2 / 4096 * 4096;
    damaged[page..page + 4096].fill(0xA5);
    fs::write(world.database(), &damaged).unwrap();
    broken("database", "restore the file from a backup");
    fs::write(world.database(), "notes").unwrap();
    broken("database", "no database");
}

#[test]
fn the_doctor_says_when_the_gateway_does_not_know_us() {
    let world = World::new();
    let served = world.serve();
    let mut examine = world.command(&["--json", "doctor"]);
    let examined = world.finish(examine.env("HOLDGATE_TOKEN", format!("hgo_{}", "0".repeat(64))));
    assert_eq!(examined.code, 1, "{examined:?}");
    assert!(has(&examined, "gateway", "ok") && has(&examined, "sign-in", "wrong"), "{examined:?}");
    drop(served);
    let examined = world.run(&["--json", "doctor", "--url", "http://127.0.0.1:1"]);
    assert!(examined.code == 1 && has(&examined, "gateway", "wrong"), "{examined:?}");
}
