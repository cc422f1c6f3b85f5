//! Every key of the file, every way to get it wrong, and what a gateway that serves does about either.

use std::sync::Mutex;

use super::*;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(FILE)
    }

    fn source(&self) -> Source {
        Source { path: self.path(), is_named: false }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }

    fn load(&self, text: &str) -> anyhow::Result<Config> {
        self.write(text);
        Config::load(&self.source(), &Flags::default())
    }

    /// Makes a certificate and its key.
    fn certify(&self) -> TlsFiles {
        let files =
            TlsFiles { certificate: self.dir.path().join("c.pem"), key: self.dir.path().join("k.pem") };
        let made = rcgen::generate_simple_self_signed(["gate.example".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }
}

fn refused(text: &str) -> String {
    format!("{:#}", Place::new().load(text).expect_err(text))
}

fn person(name: &str) -> Reviewer {
    Reviewer::Person(name.to_owned())
}

const EVERYTHING: &str = r#"
listen = "0.0.0.0:443"
public-url = "https://gate.example/gate"
trusted-proxies = ["127.0.0.1", "2001:db8::1"]
shared-operator-token = true

[tls]
certificate = "c.pem"
key = "/etc/holdgate/k.pem"

[requirement]
approvals = 2
denials = 16
requester-may-decide = true
reason-required = true
allowed-decisions = ["allow-always", "allow-once"]
reviewers = ["person:alice", "group:ops", "device:d1"]

[requirement.exec]
approvals = 1
reviewers = ["person:carol"]

[requirement.plugin]
denials = 3
[requirement.tool]
requester-may-decide = false
[requirement.dispatch]
reason-required = false
[requirement.round]
allowed-decisions = ["allow-once"]
[requirement.plan]
approvals = 16

[groups]
ops = ["alice", "bob", "alice"]

[agents.deployer]
reviewers = ["group:ops"]

[limits]
pending-per-agent = 50
pending-per-session = 1
"#;

#[test]
fn every_key_has_its_meaning() {
    let place = Place::new();
    let config = place.load(EVERYTHING).unwrap();
    assert_eq!(config.listen, "0.0.0.0:443".parse().unwrap());
    assert_eq!(config.public_url.as_ref().unwrap().to_string(), "https://gate.example/gate");
    assert_eq!(config.trusted_proxies, ["127.0.0.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert!(config.shared_operator_token);
    let files = config.tls.as_ref().unwrap();
    assert_eq!(files.certificate, place.dir.path().join("c.pem"), "relative to the file");
    assert_eq!(files.key, PathBuf::from("/etc/holdgate/k.pem"));

    let policy = config.policy();
    let general = Floor {
        approvals: 2,
        denials: 16,
        requester_may_decide: true,
        reason_required: true,
        allowed_decisions: Decision::ALL.to_vec(),
        reviewers: Some(vec![
            person("alice"),
            Reviewer::Group("ops".to_owned()),
            Reviewer::Device("d1".to_owned()),
        ]),
    };
    assert_eq!(policy.requirement, general);
    let own = |kind| policy.kinds.iter().find(|(of, _)| *of == kind).map(|(_, floor)| floor.clone()).unwrap();
    let carol = Some(vec![person("carol")]);
    assert_eq!(own(Kind::Exec), Floor { approvals: 1, reviewers: carol, ..general.clone() });
    assert_eq!(own(Kind::Plugin), Floor { denials: 3, ..general.clone() });
    assert_eq!(own(Kind::Tool), Floor { requester_may_decide: false, ..general.clone() });
    assert_eq!(own(Kind::Dispatch), Floor { reason_required: false, ..general.clone() });
    let once = vec![Decision::AllowOnce, Decision::Deny];
    assert_eq!(own(Kind::Round), Floor { allowed_decisions: once, ..general.clone() });
    assert_eq!(own(Kind::Plan), Floor { approvals: 16, ..general });
    assert_eq!(policy.groups["ops"], ["alice", "bob"].map(str::to_owned).into());
    assert_eq!(policy.agents["deployer"], [Reviewer::Group("ops".to_owned())]);
    assert_eq!(policy.limits, Limits { pending_per_agent: Some(50), pending_per_session: Some(1) });
}

#[test]
fn without_a_file_the_defaults_are_in_force_unless_one_was_named() {
    let place = Place::new();
    let config = Config::load(&place.source(), &Flags::default()).unwrap();
    assert_eq!(config, place.load("").unwrap());
    assert_eq!((config.listen, config.policy()), (LISTEN, &Policy::default()));
    assert_eq!(config.policy().requirement.allowed_decisions, Decision::ALL);
    let named = Source { path: place.dir.path().join("other.toml"), is_named: true };
    let error = format!("{:#}", Config::load(&named, &Flags::default()).unwrap_err());
    assert!(error.contains("cannot read the configuration") && error.contains("other.toml"), "{error}");
}

#[test]
fn a_flag_wins_over_the_file() {
    let place = Place::new();
    place.write(
        "listen = \"127.0.0.1:1\"\npublic-url = \"https://a.example\"\ntrusted-proxies = [\"10.0.0.1\"]",
    );
    let files = TlsFiles { certificate: "c".into(), key: "k".into() };
    let flags = Flags {
        listen: Some("127.0.0.1:2".parse().unwrap()),
        public_url: Some("https://b.example".parse().unwrap()),
        trusted_proxies: vec!["10.0.0.2".parse().unwrap()],
        tls: Some(files.clone()),
        shared_operator_token: true,
    };
    let config = Config::load(&place.source(), &flags).unwrap();
    assert_eq!(config.listen, flags.listen.unwrap());
    assert_eq!(config.public_url, flags.public_url);
    assert_eq!((&config.trusted_proxies, config.tls.as_ref()), (&flags.trusted_proxies, Some(&files)));
    assert!(config.shared_operator_token);
}

/// A text, the place that is named, and what is said of it.
const WRONG: &[(&str, &str, &str)] = &[
    ("listen = 7420", "line 1 (listen)", "expected a string"),
    ("\nlisten = \"7420\"", "line 2 (listen)", "like 127.0.0.1:7420"),
    ("public-url = \"gate.example\"", "line 1 (public-url)", "like https://gate.example"),
    ("trusted-proxies = \"127.0.0.1\"", "line 1 (trusted-proxies)", "expected an array"),
    ("trusted-proxies = [\"proxy.example\"]", "line 1 (trusted-proxies)", "not an IP address"),
    ("\ntrusted-proxies = [\n \"10.0.0.0/8\",\n]", "line 2 (trusted-proxies)", "not an IP address"),
    ("shared-operator-token = 1", "line 1 (shared-operator-token)", "expected a boolean"),
    ("[tls]\ncertificate = \"c\"", "line 1 ([tls])", "missing field `key`"),
    ("[tls]\nkey = \"c\"", "line 1 ([tls])", "missing field `certificate`"),
    ("[tls]\ncert = \"c\"", "line 2 (cert)", "unknown field `cert`"),
    ("[requirement]\napprovals = 0", "line 2 (approvals)", "1 to 16"),
    ("[requirement]\napprovals = 17", "line 2 (approvals)", "1 to 16"),
    ("[requirement]\napprovals = -1", "line 2 (approvals)", "it is -1"),
    ("[requirement]\napprovals = \"2\"", "line 2 (approvals)", "expected a whole number"),
    ("[requirement]\ndenials = 0", "line 2 (denials)", "1 to 16"),
    ("[requirement]\ndenials = 17", "line 2 (denials)", "1 to 16"),
    ("[requirement]\nrequester-may-decide = \"no\"", "line 2 (requester-may-decide)", "expected a boolean"),
    ("[requirement]\nreason-required = 0", "line 2 (reason-required)", "expected a boolean"),
    ("[requirement]\nallowed-decisions = [\"allow\"]", "line 2 (allowed-decisions)", "\"allow-once\""),
    ("[requirement]\nallowed-decisions = []", "requirement.allowed-decisions", "add \"allow-once\""),
    ("[requirement]\nallowed-decisions = [\"deny\"]", "requirement.allowed-decisions", "add \"allow-once\""),
    ("[requirement]\nreviewers = [\"alice\"]", "line 2 (reviewers)", "person:NAME"),
    ("[requirement]\nreviewers = [\"user:alice\"]", "line 2 (reviewers)", "person:NAME"),
    ("[requirement]\nreviewers = [\"person:\"]", "line 2 (reviewers)", "not a name"),
    ("[requirement]\nreviewers = [\"person: al\"]", "line 2 (reviewers)", "not a name"),
    ("[requirement]\nreviewers = [\"device:a\\u0007\"]", "line 2 (reviewers)", "\\u{7}"),
    ("[requirement]\nreviewers = []", "requirement.reviewers", "nobody could ever decide"),
    ("[requirement]\nreviewers = [\"group:ops\"]", "requirement.reviewers", "no group \"ops\""),
    (
        "[requirement]\napprovals = 3\nreviewers = [\"group:ops\", \"person:a\"]\n[groups]\nops = [\"a\", \"b\"]",
        "requirement.approvals",
        "its reviewers are 2",
    ),
    ("[requirement.exec]\nreviewers = [\"group:x\"]", "requirement.exec.reviewers", "no group \"x\""),
    ("[requirement.exec]\napprovals = 99", "line 2 (approvals)", "1 to 16"),
    ("[requirement.exec]\nexec = {}", "line 2 (exec)", "unknown field `exec`"),
    ("[requirement.shell]\napprovals = 1", "line 1 ([requirement.shell])", "unknown field `shell`"),
    (
        "[requirement]\nreviewers = [\"person:a\"]\n[requirement.plan]\napprovals = 2",
        "requirement.plan.approvals",
        "its reviewers are 1",
    ),
    ("[groups]\nops = \"alice\"", "line 2 (ops)", "expected an array"),
    ("[groups]\nops = [\"\"]", "line 2 (ops)", "not a name"),
    ("[groups]\nops = []", "groups.ops", "name its people"),
    ("[groups]\n\" x\" = [\"a\"]", "groups.\" x\"", "not a name"),
    ("[agents.deployer]", "line 1 ([agents.deployer])", "missing field `reviewers`"),
    ("[agents.deployer]\nreviewers = []", "agents.deployer.reviewers", "nobody could ever decide"),
    ("[agents.deployer]\nreviewers = [\"group:x\"]", "agents.deployer.reviewers", "no group \"x\""),
    ("[agents.deployer]\ntoken = \"x\"", "line 2 (token)", "unknown field `token`"),
    ("[agents.\"\"]\nreviewers = [\"person:a\"]", "agents.\"\"", "not a name"),
    ("[limits]\npending-per-agent = 0", "line 2 (pending-per-agent)", "1 to 1000000"),
    ("[limits]\npending-per-session = 1000001", "line 2 (pending-per-session)", "1 to 1000000"),
    ("[limits]\npending = 1", "line 2 (pending)", "expected `pending-per-agent`"),
    ("listens = \"127.0.0.1:1\"", "line 1 (listens)", "unknown field `listens`, expected one of `listen`"),
    ("public_url = \"https://x\"", "line 1 (public_url)", "unknown field `public_url`"),
    ("listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"", "line 2 (listen)", "duplicate key"),
    ("listen = ", "line 1 (listen)", "value"),
    ("[requirement", "line 1 ([requirement)", "unclosed table"),
];

#[test]
fn what_is_wrong_is_said_with_its_line_its_key_and_what_would_be_right() {
    for (text, place, says) in WRONG {
        let said = refused(text);
        assert!(said.contains(FILE), "{text}: {said}");
        assert!(said.contains(place) && said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let place = Place::new();
    std::fs::write(place.path(), b"listen = \"\xff\"").unwrap();
    let error = format!("{:#}", Config::load(&place.source(), &Flags::default()).unwrap_err());
    assert!(error.contains(FILE) && error.contains("UTF-8"), "{error}");
}

#[test]
fn a_certificate_that_cannot_be_served_with_is_named() {
    let place = Place::new();
    let files = place.certify();
    let (certificate, key) = (files.certificate.display().to_string(), files.key.display().to_string());
    let load = |certificate: &str, key: &str| {
        let config = place.load(&format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}")).unwrap();
        config.reach().map(|reach| reach.tls.is_some()).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(load("c.pem", "k.pem"), Ok(true));
    let foreign = Place::new().certify_into(&place, "other.pem");
    for (certificate, key, says) in [
        ("none.pem", key.as_str(), "cannot read"),
        (certificate.as_str(), "none.pem", "cannot read"),
        (key.as_str(), key.as_str(), "holds no certificate"),
        (certificate.as_str(), certificate.as_str(), "holds no private key"),
        (FILE, key.as_str(), "holds no certificate"),
        (certificate.as_str(), foreign.as_str(), "cannot be used with the key"),
    ] {
        let error = load(certificate, key).unwrap_err();
        assert!(error.contains(says), "{certificate} {key}: {error}");
        assert!(!error.contains("BEGIN"), "{error}");
    }
}

impl Place {
    /// Leaves a key of another certificate at another place.
    fn certify_into(&self, other: &Place, name: &str) -> String {
        let path = other.dir.path().join(name);
        std::fs::copy(self.certify().key, &path).unwrap();
        path.display().to_string()
    }
}

#[test]
fn what_is_in_force_is_said_in_the_words_of_the_file() {
    let place = Place::new();
    let config = place.load(EVERYTHING).unwrap();
    let said: BTreeMap<_, _> = config.describe().into_iter().collect();
    assert_eq!(said["public-url"], "https://gate.example/gate");
    assert_eq!(said["requirement.approvals"], 2);
    assert_eq!(said["requirement.exec.reviewers"], json!(["person:carol"]));
    assert_eq!(said["requirement.plan.approvals"], 16);
    assert_eq!(said["groups.ops"], json!(["alice", "bob"]));
    assert_eq!(said["agents.deployer.reviewers"], json!(["group:ops"]));
    assert_eq!(said["limits.pending-per-session"], 1);
}

#[test]
fn what_is_dangerous_is_warned_of() {
    let place = Place::new();
    let files = place.certify();
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let config = place
        .load("public-url = \"http://gate.example\"\nshared-operator-token = true\n[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"")
        .unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let warnings = config.warnings(&place.source()).join("\n");
    for says in ["other users can change", "can read the key", "is plain HTTP", "is shared"] {
        assert!(warnings.contains(says), "{says}: {warnings}");
    }
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let harmless = place.load("public-url = \"http://localhost:1\"").unwrap();
    assert_eq!(harmless.warnings(&place.source()), Vec::<String>::new());
}

/// Reloads; answers the configuration that was handed on, if one was.
fn reloaded(live: &mut Live) -> Option<Config> {
    let handed_on = Mutex::new(None);
    live.reload(|config| *handed_on.lock().unwrap() = Some(config.clone()));
    handed_on.into_inner().unwrap()
}

#[test]
fn a_bad_file_keeps_the_old_configuration() {
    let place = Place::new();
    let config = place.load("[requirement]\napprovals = 2").unwrap();
    let mut live = Live::new(place.source(), Flags::default(), config, None);
    place.write("[requirement]\napprovals = 0");
    assert_eq!(reloaded(&mut live), None);
    place.write("listen = \"0.0.0.0:1\"\n[requirement]\napprovals = 3");
    assert_eq!(reloaded(&mut live), None, "what could not be started with is not taken in part");
    place.write("[requirement]\napprovals = 4");
    assert_eq!(reloaded(&mut live).unwrap().policy().requirement.approvals, 4);
}

#[test]
fn what_needs_a_new_start_stays_and_is_named_every_time() {
    let place = Place::new();
    let config = place.load("").unwrap();
    let mut live = Live::new(place.source(), Flags::default(), config, None);
    place.certify();
    place.write(
        "listen = \"127.0.0.1:1\"\npublic-url = \"https://x.example\"\ntrusted-proxies = [\"10.0.0.1\"]\n\
         shared-operator-token = true\n[requirement]\napprovals = 2\n[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"",
    );
    for _ in 0..2 {
        let later = live.replace().unwrap();
        assert_eq!(later, ["listen", "public-url", "trusted-proxies", "shared-operator-token", "tls"]);
    }
    let running = reloaded(&mut live).unwrap();
    assert_eq!(running.policy().requirement.approvals, 2);
    assert_eq!((running.listen, running.public_url, running.tls), (LISTEN, None, None));
    assert!(running.trusted_proxies.is_empty() && !running.shared_operator_token);
}

#[test]
fn a_bad_certificate_keeps_everything_as_it_was() {
    let place = Place::new();
    let files = place.certify();
    let tls = "[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"";
    let config = place.load(tls).unwrap();
    let reach = config.reach().unwrap();
    let mut live = Live::new(place.source(), Flags::default(), config, reach.tls);
    place.write(&format!("[requirement]\napprovals = 2\n{tls}"));
    let good = std::fs::read(&files.certificate).unwrap();
    std::fs::write(&files.certificate, "").unwrap();
    assert_eq!(reloaded(&mut live), None);
    std::fs::write(&files.certificate, good).unwrap();
    assert_eq!(reloaded(&mut live).unwrap().policy().requirement.approvals, 2);
}
