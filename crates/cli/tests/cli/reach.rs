//! Being reachable: public URL, TLS, proxies, and a configuration that is checked and read again.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, exec};

/// A home with this configuration in it.
fn configured(text: &str) -> World {
    let world = World::new();
    fs::create_dir(world.home()).unwrap();
    fs::write(world.home().join("holdgate.toml"), text).unwrap();
    world
}

fn certify(world: &World) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (world.path("c.pem"), world.path("k.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

#[test]
fn links_come_from_the_public_url_and_commands_find_the_gateway_under_its_base_path() {
    let world = World::new();
    let served = world.serve_with(&["--public-url", "https://gate.example/gate/"]);
    assert!(served.get("/healthz", None).starts_with("HTTP/1.1 200"));
    assert!(served.get("/v1/approvals", None).starts_with("HTTP/1.1 404"));
    assert!(served.get("/gate/v1/approvals", None).starts_with("HTTP/1.1 401"));
    let mut waiting = world.command(&["exec", "--", "true"]);
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let (_, id) = line.trim_end().rsplit_once("https://gate.example/gate/approve/").expect(&line);
    let shown = world.run(&["--json", "approvals", "show", id]).json();
    assert_eq!(shown["urlPath"], format!("/gate/approve/{id}"));
    assert_eq!(world.run(&["approvals", "allow", id]).code, 0);
    assert!(waiting.wait().unwrap().success());
    let (ended, _) = served.stop();
    assert!(ended.stderr.contains("links begin with https://gate.example/gate\n"), "{}", ended.stderr);
}

#[test]
fn a_gateway_with_a_certificate_serves_tls_and_this_machines_commands_all_the_same() {
    let world = World::new();
    let (certificate, key) = certify(&world);
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let served = world.serve_with(&["--tls-certificate", certificate, "--tls-key", key]);
    let address = served.url.strip_prefix("https://127.0.0.1:").expect(&served.url);
    let mut plain = TcpStream::connect(format!("127.0.0.1:{address}")).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let listed = world.run(&["approvals", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    served.stop();
}

#[test]
fn what_would_be_unsafe_is_refused_with_what_to_do() {
    let world = World::new();
    let url = "https://gate.example";
    for (arguments, code, why) in [
        (&["--listen", "0.0.0.0:0"][..], 2, "--trusted-proxy"),
        (&["--listen", "0.0.0.0:0", "--public-url", url], 2, "plain HTTP"),
        (&["--listen", "0.0.0.0:0", "--trusted-proxy", "10.0.0.1"], 2, "--public-url"),
        (&["--trusted-proxy", "127.0.0.1"], 1, "--public-url"),
        (&["--trusted-proxy", "proxy.example"], 2, "not an IP address"),
        (&["--public-url", "gate.example"], 2, "like https://gate.example"),
        (&["--public-url", "https://me:secret@gate.example"], 2, "credential"),
        (&["--tls-certificate", "c.pem"], 2, "--tls-key"),
        (&["--tls-key", "k.pem"], 2, "--tls-certificate"),
        (&["--tls-certificate", "/none", "--tls-key", "/none"], 1, "cannot read /none"),
        (&["--config", "/none"], 1, "cannot read the configuration /none"),
    ] {
        let ended = world.run(&[&["serve"], arguments].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!world.home().exists(), "nothing was made");
}

#[test]
fn a_gateway_behind_a_named_proxy_may_listen_for_others() {
    let world = configured(
        "listen = \"0.0.0.0:0\"\npublic-url = \"https://gate.example\"\ntrusted-proxies = [\"10.0.0.1\"]",
    );
    let mut child = serve(&world);
    let listed = world.run(&["approvals", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    child.end();
}

#[test]
fn a_configuration_is_checked_without_a_gateway() {
    let world = configured("public-url = \"https://gate.example\"\n[requirement.exec]\napprovals = 2\n");
    let checked = world.run(&["config", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    for line in [
        "public-url = \"https://gate.example\"",
        "requirement.exec.approvals = 2",
        "requirement.approvals = 1",
    ] {
        assert!(checked.stdout.lines().any(|said| said == line), "{line}: {}", checked.stdout);
    }
    let json = world.run(&["--json", "config", "check"]).json();
    assert_eq!(json["inForce"]["requirement.exec.approvals"], 2);
    let bad = world.path("bad.toml");
    for (text, why) in [
        ("[requirement]\napprovals = 0", "line 2 (approvals): it is 0; it must be 1 to 16"),
        ("listen = \"0.0.0.0:1\"", "--tls-certificate"),
        ("[tls]\ncertificate = \"none\"\nkey = \"none\"", "cannot read"),
    ] {
        fs::write(&bad, text).unwrap();
        let checked = world.run(&["config", "check", "--config", bad.to_str().unwrap()]);
        assert_eq!((checked.code, checked.stdout.as_str()), (1, ""), "{text}");
        assert!(checked.stderr.contains(why), "{text}: {}", checked.stderr);
        let started = world.run(&["serve", "--config", bad.to_str().unwrap()]);
        assert_eq!(started.code, 1, "{text}: what does not check does not start");
    }
    assert!(!world.database().exists(), "nothing was made");
}

/// A gateway whose log is read while it serves.
struct Logged {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

fn serve(world: &World) -> Logged {
    let mut command = world.command(&["serve"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut logged = Logged { child, log };
    assert!(line.starts_with("listening on "), "{line}{}", logged.rest());
    logged
}

impl Logged {
    /// The next line of the log with this in it.
    fn until(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(what) {
                return line;
            }
            line.clear();
        }
        panic!("the log ends without {what}");
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        rest
    }

    fn end(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // A failing test leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_gateway_reads_its_configuration_again_and_a_bad_one_changes_nothing() {
    let file = |text: &str| format!("listen = \"127.0.0.1:0\"\n{text}");
    let world = configured(&file("[requirement]\napprovals = 2"));
    let path = world.home().join("holdgate.toml");
    let mut gateway = serve(&world);
    let reload = || assert_eq!(world.run(&["config", "reload"]).code, 0);

    fs::write(&path, file("[requirement]\napprovals = 99")).unwrap();
    reload();
    let loud = gateway.until("THE CONFIGURATION WAS NOT READ AGAIN");
    assert!(loud.contains("ERROR") && loud.contains("line 3 (approvals)"), "{loud}");
    assert_eq!(world.run(&["approvals", "list"]).code, 0, "it serves on");

    fs::write(&path, file("shared-operator-token = true\n[requirement]\napprovals = 3")).unwrap();
    kill_process(Pid::from_child(&gateway.child), Signal::HUP).unwrap();
    assert!(gateway.until("WARN").contains("shared-operator-token"));
    assert!(gateway.until("the least that a request takes").contains("approvals=3"));
    gateway.end();
}

#[test]
fn where_no_gateway_serves_none_is_told_to_reload() {
    let world = World::new();
    let told = world.run(&["config", "reload"]);
    assert_eq!(told.code, 7, "{told:?}");
    assert!(told.stderr.contains("no gateway serves the home"), "{}", told.stderr);
}

#[test]
fn a_shared_operator_token_announces_itself_as_advisory() {
    let world = World::new();
    let (ended, _) = world.serve_with(&["--shared-operator-token"]).stop();
    assert!(ended.stderr.contains("one operator token is shared") && ended.stderr.contains("advisory"));
    let served = world.serve();
    world.ask(&served, exec(&["ls"]));
    let (ended, _) = served.stop();
    assert!(!ended.stderr.contains("is shared"), "{}", ended.stderr);
}
