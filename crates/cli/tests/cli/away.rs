//! `approvals` when the gateway is away, elsewhere, or not one: who is found, and what is said.

use std::process::{Child, Stdio};

use crate::world::{Served, World, bare, exec, until};

fn waiting(world: &World, id: &str) -> Child {
    let mut command = world.command(&["approvals", "wait", id]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Stops a gateway while `child` goes on waiting.
fn stop_while_waiting(served: Served<'_>, child: &mut Child) {
    use std::io::BufRead as _;
    // It has seen the record once it says what it waits for.
    let mut line = String::new();
    std::io::BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("waiting at http://"), "{line}");
    served.stop();
}

#[test]
fn without_a_gateway_or_a_database_nothing_can_be_reached() {
    let world = World::new();
    for command in [&["approvals", "list"][..], &["approvals", "wait", "apr_1"], &["exec", "--", "true"]] {
        let ended = world.run(command);
        assert_eq!(ended.code, 7, "{ended:?}");
        assert!(ended.stderr.contains("holdgate serve"), "{ended:?}");
    }
    assert!(!world.home().exists(), "looking makes nothing");
}

#[test]
fn a_gateway_that_is_not_there_is_unreachable() {
    let world = World::new();
    world.serve().stop();
    for url in ["http://127.0.0.1:1", "http://localhost:1"] {
        let ended = world.run(&["--url", url, "approvals", "list"]);
        assert_eq!(ended.code, 7, "{ended:?}");
        assert!(ended.stderr.contains(url), "{ended:?}");
    }
}

#[test]
fn a_url_that_is_no_gateways_is_an_error_and_sends_nothing() {
    let world = World::new();
    world.serve().stop();
    for (url, why) in [
        ("https://127.0.0.1:7420", "https://"),
        ("http://evil.example:7420", "in the clear|tunnel"),
        ("http://me:hunter2@127.0.0.1:7420", "credential"),
        ("127.0.0.1:7420", "not a URL"),
        ("http://127.0.0.1:7420/?gatewayUrl=ws://evil.example", "more than a scheme"),
    ] {
        for by_environment in [false, true] {
            let mut command = world.command(&["approvals", "list"]);
            let ended = if by_environment {
                world.finish(command.env("HOLDGATE_URL", url))
            } else {
                world.finish(command.args(["--url", url]))
            };
            assert_eq!(ended.code, 1, "{url}: {ended:?}");
            assert!(why.split('|').any(|why| ended.stderr.contains(why)), "{url}: {}", ended.stderr);
            assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        }
    }
}

#[test]
fn the_environment_names_home_and_gateway_as_the_options_do() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask(&served, exec(&["ls"]));
    let mut by_home = bare();
    by_home.args(["approvals", "list"]).env("HOLDGATE_HOME", world.home());
    assert!(world.finish(&mut by_home).stdout.contains(&asked.id));
    let mut by_url = bare();
    by_url
        .args(["approvals", "list"])
        .env("HOLDGATE_URL", &served.url)
        .env("HOLDGATE_HOME", world.path("nowhere"));
    by_url.env("HOLDGATE_TOKEN", world.token("operator.token"));
    assert!(world.finish(&mut by_url).stdout.contains(&asked.id));
}

#[test]
fn a_missing_or_unknown_token_is_said_plainly() {
    let world = World::new();
    let served = world.serve();
    let mut nowhere = bare();
    nowhere.arg("--home").arg(world.path("nowhere")).args(["--url", &served.url, "approvals", "list"]);
    let ended = world.finish(&mut nowhere);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("operator.token") && ended.stderr.contains("HOLDGATE_TOKEN"), "{ended:?}");
    for (token, why) in [("hgo_0000", "not known"), ("two words", "HOLDGATE_TOKEN holds characters")] {
        let ended = world.finish(world.command(&["approvals", "list"]).env("HOLDGATE_TOKEN", token));
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains(why) && !ended.stderr.contains(token), "{ended:?}");
    }
}

#[test]
fn a_home_whose_gateway_is_gone_is_opened_for_one_command() {
    let world = World::new();
    let served = world.serve();
    let (a, b) = (world.ask_of_a_run(&served, "a"), world.ask_of_a_run(&served, "b"));
    served.stop();
    let listed = world.run(&["approvals", "list"]);
    assert!(listed.stdout.contains(&a.id) && listed.stdout.contains(&b.id), "{listed:?}");
    let said = format!("holdgate: no gateway is running; using the database in {}\n", world.home().display());
    assert_eq!(listed.stderr, said);
    let shown = world.run(&["approvals", "show", &a.id]).stdout;
    assert!(!shown.contains("http://"), "a link that nobody answers is not shown: {shown}");
    assert_eq!(world.run(&["approvals", "allow", &a.id]).code, 0);
    assert_eq!(world.run(&["approvals", "deny", &a.id]).code, 4);
    let mut command = world.command(&["approvals", "allow", &b.id]);
    let refused = world.finish(command.env("HOLDGATE_TOKEN", world.token("agent.token")));
    assert_eq!(refused.code, 1, "the file's own door has the same authorisation: {refused:?}");
    assert_eq!(world.read(&world.serve(), &a.id).status.as_str(), "allowed");
}

#[test]
fn looking_while_the_gateway_is_away_ends_nothing_that_waits_for_it() {
    let world = World::new();
    let served = world.serve();
    let live = world.ask(&served, exec(&["ls"]));
    served.stop();
    let before = rows(&world);
    world.run(&["approvals", "list", "--all"]);
    world.run(&["approvals", "show", &live.id]);
    assert_eq!(rows(&world), before);
}

fn rows(world: &World) -> Vec<(String, String)> {
    let db = rusqlite::Connection::open(world.database()).unwrap();
    let mut statement = db.prepare("SELECT id, status FROM approvals ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_wait_finds_the_gateway_again_at_another_address() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask_of_a_run(&served, "a");
    let mut child = waiting(&world, &asked.id);
    stop_while_waiting(served, &mut child);
    let _served = world.serve();
    assert_eq!(world.run(&["approvals", "allow", &asked.id]).code, 0);
    assert_eq!(world.wait(child).code, 0);
}

#[test]
fn a_wait_without_a_gateway_leaves_room_to_decide() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask_of_a_run(&served, "a");
    served.stop();
    let child = waiting(&world, &asked.id);
    let said = format!("no gateway is running; using the database in {}\n", world.home().display());
    // Now and then the file is being looked at; whoever decides tries again.
    until("a chance to decide", || (world.run(&["approvals", "deny", &asked.id]).code == 0).then_some(()));
    let ended = world.wait(child);
    assert_eq!(ended.code, 3);
    assert_eq!(ended.stderr.matches(&said).count(), 1, "{ended:?}");
}

#[test]
fn a_database_that_another_command_holds_is_named_as_in_use() {
    let world = World::new();
    world.serve().stop();
    let sidecar = world.home().join("holdgate.db.owner");
    let held = std::fs::File::options().read(true).write(true).open(&sidecar).unwrap();
    held.lock().unwrap();
    std::fs::write(&sidecar, r#"{"pid":4242}"#).unwrap();
    for command in [&["approvals", "list"][..], &["exec", "--", "true"]] {
        let ended = world.run(command);
        assert_eq!(ended.code, 7, "{ended:?}");
        assert!(ended.stderr.contains("process 4242, which serves no gateway"), "{ended:?}");
    }
    let ended = world.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("4242"), "{ended:?}");
}
