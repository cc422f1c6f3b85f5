//! `serve`: what it announces, what it refuses to start on, and how it stops.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::world::{World, bare, exec, mode, until};

#[test]
fn a_gateway_says_where_it_listens_and_how_to_sign_in() {
    let world = World::new();
    let served = world.serve();
    assert!(served.url.starts_with("http://127.0.0.1:"));
    assert!(served.get("/healthz", None).starts_with("HTTP/1.1 200"));
    let (ended, _) = served.stop();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "one line on standard output and no more");
    let operator = world.home().join("operator.token").display().to_string();
    for said in
        [operator.as_str(), "agent.token", "advisory until a reviewer decides from another device or user"]
    {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}

#[test]
fn a_home_is_private_and_its_database_holds_no_credential() {
    let world = World::new();
    world.serve().stop();
    assert_eq!(mode(&world.home()), 0o700);
    let mut count = 0;
    for entry in fs::read_dir(world.home()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        let is_token_file = path.extension().is_some_and(|extension| extension == "token");
        if !is_token_file {
            count += 1;
            let bytes = fs::read(&path).unwrap();
            for name in ["operator.token", "agent.token"] {
                let token = world.token(name);
                assert!(
                    !bytes.windows(token.len()).any(|window| window == token.as_bytes()),
                    "{}",
                    path.display()
                );
            }
        }
    }
    assert!(count > 0);
}

#[test]
fn tokens_stay_the_same_over_restarts() {
    let world = World::new();
    world.serve().stop();
    let before = (world.token("operator.token"), world.token("agent.token"));
    let served = world.serve();
    assert_eq!((world.token("operator.token"), world.token("agent.token")), before);
    assert!(served.get("/v1/approvals", Some(&before.0)).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_deleted_token_file_replaces_the_credential() {
    let world = World::new();
    world.serve().stop();
    let before = world.token("operator.token");
    fs::remove_file(world.home().join("operator.token")).unwrap();
    let served = world.serve();
    assert!(served.get("/v1/approvals", Some(&before)).starts_with("HTTP/1.1 401"));
    assert!(served.get("/v1/approvals", Some(&world.token("operator.token"))).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_second_gateway_is_told_who_serves_the_home() {
    let world = World::new();
    let served = world.serve();
    let second = world.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((second.code, second.stdout.as_str()), (1, ""));
    let pid = served.pid().to_string();
    assert!(second.stderr.contains(&served.url) && second.stderr.contains(&pid), "{}", second.stderr);
    assert!(served.get("/healthz", None).starts_with("HTTP/1.1 200"), "the first goes on");
}

#[test]
fn a_port_in_use_is_named_and_ends_nothing() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask_of_a_run(&served, "a");
    served.stop();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = world.run(&["serve", "--listen", &address]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains(&format!("cannot listen on {address}")), "{}", ended.stderr);
    assert!(world.run(&["approvals", "list"]).stdout.contains(&asked.id), "the home is free again");
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let world = World::new();
    fs::write(world.path("file"), "").unwrap();
    // /proc refuses everybody, also a superuser.
    for home in [world.path("file").join("home").display().to_string(), "/proc/holdgate".to_owned()] {
        let ended = world.finish(bare().args(["--home", &home, "serve", "--listen", "127.0.0.1:0"]));
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains(&format!("cannot make the home directory {home}")), "{}", ended.stderr);
    }
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let world = World::new();
    world.serve().stop();
    let db = rusqlite::Connection::open(world.database()).unwrap();
    db.execute("INSERT INTO schema_migrations (version, checksum, applied_at) VALUES (99, 'x', 1)", [])
        .unwrap();
    drop(db);
    let before = fs::read(world.database()).unwrap();
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["approvals", "list"]] {
        let ended = world.run(arguments);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("newer than this program's"), "{}", ended.stderr);
    }
    assert_eq!(fs::read(world.database()).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let world = World::new();
    fs::create_dir(world.home()).unwrap();
    fs::write(world.database(), "my notes").unwrap();
    let ended = world.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("holdgate.db"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(world.database()).unwrap(), "my notes");
}

#[test]
fn a_token_file_that_holds_no_token_is_refused_and_not_quoted() {
    let world = World::new();
    world.serve().stop();
    let path = world.home().join("operator.token");
    for garbled in ["", "\n", "hgo_garbled", &format!("{}x", world.token("operator.token"))] {
        fs::write(&path, garbled).unwrap();
        let ended = world.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(ended.code, 1, "{garbled:?}");
        assert!(ended.stderr.contains("operator.token holds no token"), "{}", ended.stderr);
        assert!(garbled.trim().is_empty() || !ended.stderr.contains(garbled), "{}", ended.stderr);
    }
}

#[test]
fn a_token_file_that_others_can_read_is_warned_of() {
    let world = World::new();
    world.serve().stop();
    let path = world.home().join("operator.token");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (ended, _) = world.serve().stop();
    assert!(
        ended.stderr.contains("operator.token can be read by other users (mode 644)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_address_that_others_could_reach_is_a_usage_error() {
    let world = World::new();
    for (arguments, why) in [
        (&["serve", "--listen", "0.0.0.0:7420"][..], "plain HTTP"),
        (&["serve", "--listen", "[::]:7420"], "plain HTTP"),
        (&["serve", "--listen", "nonsense"], "not an address"),
        (&["serve", "--db", "postgres://x"], "sqlite:PATH"),
    ] {
        let ended = world.run(arguments);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    assert!(!world.home().exists(), "nothing was made");
}

#[test]
fn another_database_can_be_named() {
    let world = World::new();
    let db = world.path("other.db");
    let served = world.serve_with(&["--db", &format!("sqlite:{}", db.display())]);
    world.ask_of_a_run(&served, "a");
    assert!(db.exists() && !world.database().exists());
    let listed = world.run(&["--url", &served.url, "approvals", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let (ended, _) = served.stop();
    assert!(ended.stderr.contains("--url http://127.0.0.1:"), "{}", ended.stderr);
}

#[test]
fn a_gateway_stops_within_two_seconds_whatever_is_pending() {
    let world = World::new();
    let served = world.serve();
    let asked = world.ask(&served, exec(&["sleep", "1"]));
    let token = world.token("agent.token");
    let polls: Vec<_> =
        (0..4).map(|_| served.connect(&format!("/v1/approvals/{}/wait", asked.id), Some(&token))).collect();
    // An open connection that never says anything, as browsers keep them.
    let idle = std::net::TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
    // The polls are being answered once the metrics have counted what came after them.
    assert!(served.get("/healthz", None).starts_with("HTTP/1.1 200"));
    let (ended, took) = served.stop();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    drop((polls, idle));
}

#[test]
fn a_gateway_keeps_decisions_over_a_restart() {
    let world = World::new();
    let served = world.serve();
    let (allowed, pending) = (world.ask_of_a_run(&served, "a"), world.ask_of_a_run(&served, "b"));
    let live = world.ask(&served, exec(&["ls"]));
    assert_eq!(world.run(&["approvals", "allow", &allowed.id]).code, 0);
    served.stop();
    let served = world.serve();
    let status = |id: &str| world.read(&served, id).status.as_str();
    assert_eq!(
        [status(&allowed.id), status(&pending.id), status(&live.id)],
        ["allowed", "pending", "cancelled"]
    );
    assert_eq!(world.run(&["approvals", "allow", &live.id]).code, 6, "who waited for it is gone");
}

#[test]
fn metrics_have_their_buckets_and_need_a_token() {
    let world = World::new();
    let served = world.serve();
    assert!(served.get("/metrics", None).starts_with("HTTP/1.1 401"));
    let text = until("a histogram", || {
        let text = served.get("/metrics", Some(&world.token("agent.token")));
        text.contains("holdgate_http_request_seconds_bucket").then_some(text)
    });
    assert!(text.contains(r#"le="0.005""#), "{text}");
}

#[test]
fn a_log_filter_that_is_none_is_an_error() {
    let world = World::new();
    let ended = world.finish(world.command(&["serve"]).env("HOLDGATE_LOG", "holdgate=loudly=very"));
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("HOLDGATE_LOG"), "{}", ended.stderr);
}

#[test]
fn every_transition_is_logged_by_default_as_one_line_without_its_content() {
    let world = World::new();
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("HOLDGATE_LOG_FORMAT", "json").env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let served = world.start(command);
    let asked = world.ask(&served, exec(&["rm", "unspeakable"]));
    world.cancel(&served, &asked.id);
    let (ended, _) = served.stop();
    let lines = ended.stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let lines: Vec<_> = lines.filter(|line| line["target"] == "holdgate::transition").collect();
    let told: Vec<_> =
        lines.iter().map(|line| (&line["id"], &line["kind"], &line["status"], &line["reason"])).collect();
    let id = serde_json::json!(asked.id);
    let word = |text: &str| serde_json::json!(text);
    let (exec, nothing) = (word("exec"), word(""));
    let (pending, cancelled, withdrawn) = (word("pending"), word("cancelled"), word("withdrawn"));
    assert_eq!(
        told,
        [(&id, &exec, &pending, &nothing), (&id, &exec, &cancelled, &withdrawn)],
        "{}",
        ended.stderr
    );
    assert!(lines[1]["latency_ms"].is_i64() && !ended.stderr.contains("unspeakable"), "{}", ended.stderr);
    let says_so = ended.stderr.contains("this build has no exporter");
    assert_eq!(says_so, !cfg!(feature = "otlp"), "{}", ended.stderr);
}
