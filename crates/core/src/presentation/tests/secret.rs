//! Secrets are masked wherever they stand, nothing else is, and a mask hides no command.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::secret::Masked;
use super::super::{COMMAND_DISPLAY_LIMIT, NotPresentable, flags, masked};
use super::{Kind, decode, fact, hostile_text, present, shown, strings};
use crate::presentation::visible::Quote;

const HIDDEN: &str = "a secret is hidden as ***; the digest covers it";

fn mask(text: &str) -> String {
    Masked::of(text).as_str().to_owned()
}

#[test]
fn a_secret_is_masked_and_the_rest_stays_readable() {
    let table = [
        (
            "curl -H 'Authorization: Bearer sk-abcdefghijklmnopqrstuvwxyz123456' https://x",
            "curl -H 'Authorization: Bearer ***' https://x",
        ),
        ("curl -H \"Authorization: Basic dTpw\" https://x", "curl -H \"Authorization: Basic ***\" https://x"),
        ("curl --header='X-Api-Key: a b; c' https://x", "curl --header='X-Api-Key: ***' https://x"),
        ("curl -H Authorization:abc https://x", "curl -H Authorization:*** https://x"),
        ("curl -H 'Cookie: a=b; c=d' https://x", "curl -H 'Cookie: ***' https://x"),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: ***; c=***\nHost: x"),
        ("curl -u bob:hunter2 https://x", "curl -u bob:*** https://x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("send Bearer abc.def-1 to x", "send Bearer *** to x"),
        ("the bearer token of a bearer of news", "the bearer token of a bearer of news"),
        ("mysql --password=hunter2 -h db", "mysql --password=*** -h db"),
        ("mysql --password 'hunter 2' -h db", "mysql --password '***' -h db"),
        ("docker login --password-stdin host", "docker login --password-stdin host"),
        ("tool --no-password target", "tool --no-password target"),
        ("tool --token --verbose", "tool --token --verbose"),
        ("DB_PASSWORD=a,b;rm -rf /", "DB_PASSWORD=***;rm -rf /"),
        ("helm --set db.password=x,image=evil/y", "helm --set db.password=***,image=evil/y"),
        ("PASSWORD='it'\\''s' make", "PASSWORD=*** make"),
        ("{\"password\": \"a \\\"b\", \"user\": \"u\"}", "{\"password\": \"***\", \"user\": \"u\"}"),
        ("-d '{\"token\":\"a b\",\"n\":1}' https://x", "-d '{\"token\":\"***\",\"n\":1}' https://x"),
        ("-d \"{\\\"token\\\":\\\"a b\\\",\\\"n\\\":1}\"", "-d \"{\\\"token\\\":\\\"***\\\",\\\"n\\\":1}\""),
        ("{\"secrets\": [\"a b\", \"c\"], \"n\": 1}", "{\"secrets\": [\"***\", \"***\"], \"n\": 1}"),
        (
            "{\"auth\": {\"user\": \"u\", \"pass\": \"p\"}}",
            "{\"auth\": {\"user\": \"u\", \"pass\": \"***\"}}",
        ),
        ("git clone https://me:pw@host/r", "git clone https://me:***@host/r"),
        ("git clone https://abcdef@host/r", "git clone https://***@host/r"),
        ("git clone ssh://git@host/r", "git clone ssh://git@host/r"),
        ("redis://:pw@host:1/0", "redis://:***@host:1/0"),
        ("https://x/?a=1&access_token=z%20z&b=2#f", "https://x/?a=1&access_token=***&b=2#f"),
        ("https://x/?next=%3Ftoken%3Dabc%26x&b=2", "https://x/?next=%3Ftoken%3D***&b=2"),
        ("https://x/?%74oken=abc&b", "https://x/?%74oken=***&b"),
        ("https://api/bot123456:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/send", "https://api/bot123456:***/send"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nx",
            "-----BEGIN RSA PRIVATE KEY-----\n***\n-----END RSA PRIVATE KEY-----\nx",
        ),
        (
            "key: |\n  -----BEGIN PRIVATE KEY-----\n  MIIE\n  -----END PRIVATE KEY-----\nx",
            "key: |\n  -----BEGIN PRIVATE KEY-----\n  ***\n  -----END PRIVATE KEY-----\nx",
        ),
        (
            r#"{"k":"-----BEGIN PRIVATE KEY-----\nMIIE\nabc=\n-----END PRIVATE KEY-----\n"}"#,
            r#"{"k":"-----BEGIN PRIVATE KEY-----\n***\n-----END PRIVATE KEY-----\n"}"#,
        ),
        ("to\u{200B}ken=a\u{202E}b\u{2060}c d", "to\u{200B}ken=*** d"),
        ("password = get_password(\"db\")", "password = get_password(\"db\")"),
        ("token = os.environ[\"TOKEN\"]", "token = os.environ[\"TOKEN\"]"),
        ("{\"token\": 123}", "{\"token\": ***}"),
        ("fn f(token: &str, secret: Option<String>)", "fn f(token: &str, secret: ***<String>)"),
    ];
    for (text, expected) in table {
        assert_eq!(mask(text), expected, "{text}");
    }
}

#[test]
fn tokens_of_known_shape_are_masked_anywhere() {
    let tail = "Ab1".repeat(14);
    let prefixes = [
        "sk-",
        "sk-proj-",
        "sk_live_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "npm_",
        "pypi-",
        "xoxa-",
        "xoxb-",
        "xoxp-",
        "xoxr-",
        "xoxs-",
        "AIza",
        "hf_",
        "hgo_",
        "hga_",
        "hgs_",
        "hgd_",
        "hgr_",
    ];
    for prefix in prefixes {
        assert_eq!(mask(&format!("echo {prefix}{tail}; ls")), "echo ***; ls", "{prefix}");
        assert_eq!(mask(&format!("({prefix}{tail})")), "(***)", "{prefix}");
    }
    assert_eq!(mask("echo AKIAIOSFODNN7EXAMPLE x"), "echo *** x");
    assert_eq!(mask("x=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl y"), "x=*** y");
}

#[test]
fn a_text_without_a_secret_is_left_alone() {
    let texts = [
        "",
        "***",
        "git push origin main",
        "sk-learn-contrib",
        "task-abcdefghijklmnopqrstuvwxyz1",
        "npm_config_cache",
        "pypi-publish-something-long",
        "eyJ",
        "max_tokens: 4096, total_tokens=12",
        "token_count=5",
        "author=me",
        "password=",
        "password: ",
        "secret=$SECRET",
        "token=\"${API_TOKEN}\"",
        "auth=true",
        "password == other",
        "token::Kind",
        "PWD=/srv/app make",
        "keyboard=us",
        "https://host/path@2?x=a@b",
        "ls -u a:b",
        "Authorization: Bearer $TOKEN",
        "curl -H \"Authorization: Bearer ${TOKEN}\" https://x",
        "TOKEN_FILE=/run/x",
        "a 'b' \"c\" \\\" $( ` (",
        "{\"token\": null, \"secret\": true}",
        "100%25 of %zz",
        "sha256:0123456789abcdef0123456789abcdef",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "my secret plan",
        "the password is set",
        "password=<your password>",
        "ssh git@host",
    ];
    for text in texts {
        assert_eq!(mask(text), text);
    }
}

/// Each of these runs `rm` in a shell, whatever its quotation signs suggest.
#[test]
fn a_mask_never_hides_what_a_shell_would_run() {
    let lines = [
        r#"echo "password="; rm -rf /; echo "x""#,
        r#"echo 'password='; rm -rf /; echo 'x'"#,
        r#"echo x"password="; rm -rf /; echo "x""#,
        r#"echo "a\\" "password="; rm -rf /; echo "x""#,
        r#"echo password=\"; rm -rf /; echo \""#,
        r#"echo \"password=\"; rm -rf /; echo \"x\""#,
        r#"sh -c 'echo "password="; rm -rf /; echo "x"'"#,
        r#"sh -c "echo 'password='; rm -rf /; echo 'x'""#,
        r#"sh -c "echo \"password=\"; rm -rf /; echo \"x\"""#,
        r#"sh -c 'password=\"; rm -rf /; echo \"'"#,
        r#"echo x's password='; rm -rf /; echo '"#,
        r#"echo "$(echo "password="; rm -rf /; echo "x")""#,
        r#"echo "foo -H"Authorization: x; rm -rf /; echo "y""#,
        r#"sh -c 'Cookie: x; rm -rf /'"#,
        "password=x rm -rf /",
        "password= rm -rf /",
        "password=x;rm -rf /",
        "password=x&rm -rf /",
        "password=x|rm -rf /",
        "password=x\nrm -rf /",
        "password=$(rm -rf /)",
        "password=x$(rm -rf /)",
        "password=`rm -rf /`",
        "password=\"x$(rm -rf /)\"",
        "password=\"x`rm -rf /`\"",
        "sh -c \"password='$(rm -rf /)'\"",
        "curl -H \"Authorization: Bearer $(rm -rf /)\" https://x",
        "curl -H \"Cookie: a; $(rm -rf /)\" https://x",
        "token=<(rm -rf /)",
        "{\"command\":\"export token=abc\\nrm -rf /\"}",
        "{\"command\":\"export token=abc\\u000arm -rf /\"}",
        "{\"command\":\"export token=abc\\u003brm -rf /\"}",
        "password=\"x; rm -rf /",
        "password='x; rm -rf /",
        "--token $(rm -rf /)",
        "--no-auth rm -rf /",
        "-H 'Authorization: x\nrm -rf /",
        "# -H \"Authorization: \nrm -rf /\n`\"",
        "# it's\nx 'password='; rm -rf /; echo 'y'",
        "# password='\nrm -rf /\n'",
        "echo $'\\'' 'password='; rm -rf /; echo 'x'",
        "-----BEGIN PRIVATE KEY-----\nrm -rf /\n",
        "-----BEGIN PRIVATE KEY-----\nrm -rf /\n-----END PRIVATE KEY-----",
        "http://u:|rm -rf /;@host",
        "token=Bearer rm -rf /",
        "token={Bearer rm -rf /",
        "password=http://u:Bearer rm -rf /",
        "x=y:--token rm -rf /",
        "echo -H \"password\":x; rm -rf /; echo \"\"",
        "a=Cookie: rm -rf /",
    ];
    for line in lines {
        assert!(mask(line).contains("rm -rf /"), "{line} -> {}", mask(line));
    }
}

#[test]
fn a_hidden_text_that_could_be_more_than_a_word_is_flagged() {
    let odd = "a hidden secret holds spaces or shell syntax: what it would do cannot be seen here";
    assert_eq!(flags("password='x; y'"), [HIDDEN, odd]);
    assert_eq!(flags("password=xy"), [HIDDEN]);
    let key =
        |lines: &str| flags(&format!("-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----"));
    assert_eq!(key(&format!("{0}\n{0}\nabc=", "Mb4".repeat(21))), [HIDDEN, "5 lines"]);
    assert_eq!(key("reboot"), [HIDDEN, odd, "3 lines"]);
    assert_eq!(flags("no secret"), [""; 0]);
    assert_eq!(
        flags("curl -H 'Cookie: a=b; c=d' https://x"),
        [HIDDEN],
        "the spaces of a header are ordinary"
    );
    assert_eq!(flags("-H 'Cookie: a=b c"), [HIDDEN]);
    let shown = shown(Kind::Tool, json!({ "toolName": "t", "input": { "token": "rm -rf /" } }));
    assert_eq!(shown.flags, [HIDDEN, odd]);
}

#[test]
fn the_lines_of_a_text_with_secrets_are_counted() {
    let shown =
        shown(Kind::Tool, json!({ "toolName": "t", "input": { "script": "a\ntoken=x\nb\ntoken=y\nc" } }));
    assert_eq!(shown.flags, [HIDDEN, "5 lines"]);
}

/// What the reviewers' clients of others show for the same commands.
#[test]
fn a_command_is_shown_as_other_reviewers_clients_show_it() {
    let table = [
        (
            "curl -H 'Authorization: Bearer sk-abcdefghijklmnopqrstuvwxyz123456' https://x",
            "curl -H 'Authorization: Bearer ***' https://x",
        ),
        (
            "echo \u{202E}gpj\u{200B}.exe\nrm -rf /\t\u{A0}x",
            r"echo \u{202E}gpj\u{200B}.exe\u{A}rm -rf /\u{9}\u{A0}x",
        ),
    ];
    for (command, expected) in table {
        assert_eq!(shown(Kind::Exec, json!({ "command": command })).command_text.as_deref(), Some(expected));
        assert_eq!(masked(command), expected);
    }
}

#[test]
fn a_flag_never_repeats_a_part_of_a_secret() {
    let shown = shown(Kind::Exec, json!({ "command": "login --password sеcrеt\u{200B}wоrd x\u{200B}" }));
    assert_eq!(shown.command_text.unwrap(), r"login --password *** x\u{200B}");
    assert_eq!(shown.flags, [HIDDEN, "1 invisible or direction-changing character"]);
}

#[test]
fn the_fields_of_content_are_masked_by_their_names() {
    let input = json!({
        "password": "a b", "pin": 7, "token": 1234, "max_tokens": 4096, "enabled_auth": true, "apiKey": null,
        "headers": { "Authorization": "Bearer abc", "Accept": "x/y", "cookie": ["a=b", "c=d"] },
        "credentials": { "name": "prod-host", "value": "v1", "parts": [{ "x": "v2" }] },
        "env": [{ "name": "DB_PASSWORD", "value": "v3" }, { "name": "MODE", "value": "fast" }],
        "pairs": [["Cookie", "v4"], ["Accept", "x/y"]],
        "args": ["--password", "v5", "-H", "X-Api-Key: v 6", "--token", "--verbose", "-x"],
        "usage": { "tokens": { "in": 5 } },
    });
    let shown = shown(Kind::Tool, json!({ "toolName": "t", "input": input }));
    let table = [
        ("input.password", "\"***\""),
        ("input.pin", "7"),
        ("input.token", "***"),
        ("input.max_tokens", "4096"),
        ("input.enabled_auth", "true"),
        ("input.apiKey", "null"),
        ("input.headers.\"Authorization\"", "\"Bearer ***\""),
        ("input.headers.\"Accept\"", "\"x/y\""),
        ("input.headers.cookie[1]", "\"***\""),
        ("input.credentials.name", "\"prod-host\""),
        ("input.credentials.value", "\"***\""),
        ("input.credentials.parts[0].x", "\"***\""),
        ("input.env[0].value", "\"***\""),
        ("input.env[1].value", "\"fast\""),
        ("input.pairs[0][1]", "\"***\""),
        ("input.pairs[1][1]", "\"x/y\""),
        ("input.args[1]", "\"***\""),
        ("input.args[3]", "\"X-Api-Key: ***\""),
        ("input.args[5]", "\"--verbose\""),
        ("input.args[6]", "\"-x\""),
        ("input.usage.tokens.in", "5"),
    ];
    for (label, text) in table {
        assert_eq!(fact(&shown, label), text, "{label}");
    }
}

#[test]
fn arguments_are_masked_by_the_option_before_them() {
    let argv = json!([
        "/usr/bin/curl",
        "-u",
        "bob:pw",
        "-H",
        "Authorization: Bearer abc",
        "--oauth2-bearer",
        "x y",
        "https://x"
    ]);
    let shown = shown(Kind::Exec, json!({ "argv": argv }));
    let line = "/usr/bin/curl -u 'bob:***' -H 'Authorization: Bearer ***' --oauth2-bearer '***' https://x";
    assert_eq!(shown.command_text.as_deref(), Some(line));
    assert_eq!(fact(&shown, "Argument 2"), "\"bob:***\"");
    assert_eq!(fact(&shown, "Argument 6"), "\"***\"");
}

#[test]
fn actions_that_differ_in_a_secret_alone_look_alike_and_differ_in_their_digests() {
    use crate::{Action, Canonical};
    let content = |secret: &str| json!({ "toolName": "t", "input": { "password": secret } });
    let digest = |secret: &str| {
        let canonical = Canonical::parse(&content(secret).to_string()).unwrap();
        Action::freeze(Kind::Tool, "b", canonical).unwrap().digest()
    };
    assert_eq!(shown(Kind::Tool, content("one")), shown(Kind::Tool, content("two")));
    assert_ne!(digest("one"), digest("two"));
    assert_eq!(shown(Kind::Tool, content("one")).flags, [HIDDEN]);
}

#[test]
fn a_difference_that_is_hidden_is_still_told() {
    let content = json!({ "toolName": "t", "input": { "token": "one" }, "rawInput": { "token": "two" } });
    let shown = shown(Kind::Tool, content);
    assert_eq!(fact(&shown, "rawInput.token (as sent by the model)"), "\"***\"");
}

#[test]
fn two_fields_whose_names_are_masked_are_both_told() {
    let (one, two) = (format!("ghp_{}", "a".repeat(20)), format!("ghp_{}", "b".repeat(20)));
    let shown = shown(Kind::Plan, json!({ (one): 1, (two): 2 }));
    let facts: Vec<_> = shown.facts.iter().map(|fact| (fact.label.as_str(), fact.text.as_str())).collect();
    assert_eq!(facts, [("\"***\"", "1"), ("\"***\"", "2")]);
}

#[test]
fn a_hidden_text_longer_than_a_command_is_refused() {
    let content = |chars: usize| json!({ "toolName": "t", "input": { "password": "x".repeat(chars) } });
    assert!(present(Kind::Tool, &content(COMMAND_DISPLAY_LIMIT)).is_ok());
    let refused = present(Kind::Tool, &content(COMMAND_DISPLAY_LIMIT + 1)).unwrap_err();
    assert!(matches!(refused, NotPresentable::TooLong { limit: COMMAND_DISPLAY_LIMIT, .. }), "{refused:?}");
}

/// Where a credential can stand in a text. `@` is the credential.
const POSITIONS: &[&str] = &[
    "curl -H 'Authorization: Bearer @' https://x",
    "curl -H \"Authorization: Basic @\" https://x",
    "curl --header 'X-Api-Key: @' https://x",
    "curl -H 'Cookie: a=1; s=@' https://x",
    "curl --oauth2-bearer @ https://x",
    "--header=X-Api-Key: @",
    "--header=Authorization: Bearer @",
    "curl -u bob:@ https://x",
    "Authorization: Bearer @",
    "Authorization: Digest username=bob, response=@",
    "Proxy-Authorization: @\nHost: x",
    "Set-Cookie: a=@; Path=/",
    "x Bearer @ y",
    "password=@",
    "PASSWD=@ make",
    "export MY_SECRET='@'; make",
    "export API_TOKEN=\"@\"; make",
    "x --client-secret=@ y",
    "x --client-secret @ y",
    "x --private-key '@' y",
    "passphrase: @",
    "pwd = \"@\"",
    "credential => '@'",
    "{\"access_key\":\"@\",\"n\":1}",
    "{\"a\":{\"apiKey\" : \"@\"}}",
    "sh -c 'curl -d \"{\\\"token\\\":\\\"@\\\"}\" x'",
    "curl -d '{\"auth\":\"@\"}' x",
    "curl -d {\"secret\":[\"a\",\"@\"]} x",
    "{'password': '@'}",
    "{\"body\":\"{\\\"password\\\":\\\"@\\\"}\"}",
    "https://me:@@host/x",
    "https://@@host/x",
    "postgres://u:@@db:5432/x",
    "https://x/?access_token=@&b=1",
    "https://x/?a=1&Api-Key=@#f",
    "curl 'https://x/?a=1&auth=@'",
    "https://x/?next=https%3A%2F%2Fy%3Ftoken%3D@",
    "-----BEGIN PRIVATE KEY-----\n@\n-----END PRIVATE KEY-----",
    "ghp_0123456789abcdef@",
    "sk-0123456789abcdef@",
    "hga_0123456789@",
    "{\"headers\":{\"Cookie\":\"a=1; b=@\"}}",
    "db.password: @",
    "don't forget the password: @",
    "Server=db;User=me;Password=@;Encrypt=1",
];

/// The parts of the text that would give the secret away: five characters of it in a row.
fn leaks(shown: &str, secret: &str) -> bool {
    let seen: String = decode(shown, Quote::None).chars().filter(|c| c.is_ascii_graphic()).collect();
    let chars: Vec<char> = secret.chars().collect();
    chars.windows(5).any(|five| seen.contains(&five.iter().collect::<String>()))
}

fn canary() -> impl Strategy<Value = String> {
    "[A-Z0-9][a-zA-Z0-9]{11,31}"
}

/// The secret with characters between its own that are not seen.
fn split_unseen() -> impl Strategy<Value = (String, String)> {
    let unseen = prop::sample::select(vec![
        '\u{200B}',
        '\u{200D}',
        '\u{202E}',
        '\u{2066}',
        '\u{FEFF}',
        '\u{AD}',
        '\u{E0041}',
        '\0',
    ]);
    (canary(), prop::collection::vec((any::<prop::sample::Index>(), unseen), 1..6)).prop_map(
        |(secret, places)| {
            let mut split: Vec<char> = secret.chars().collect();
            for (place, c) in places {
                split.insert(place.index(split.len() - 1) + 1, c);
            }
            (secret, split.into_iter().collect())
        },
    )
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02x}")).collect()
}

fn in_position(position: &str, secret: &str) -> String {
    // In a URL the sign before the host is its own.
    match position.split_once("@@") {
        Some((before, after)) => [before, secret, "@", after].concat(),
        None => position.replace('@', secret),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_secret_never_survives_in_any_position(secret in canary()) {
        for position in POSITIONS {
            let text = in_position(position, &secret);
            prop_assert!(!leaks(&masked(&text), &secret), "{} -> {}", text, masked(&text));
        }
    }

    #[test]
    fn a_secret_that_is_split_by_what_is_not_seen_never_survives((secret, split) in split_unseen()) {
        for position in POSITIONS {
            let text = in_position(position, &split);
            prop_assert!(!leaks(&masked(&text), &secret), "{:?} -> {}", text, masked(&text));
        }
    }

    #[test]
    fn a_percent_encoded_secret_never_survives(secret in canary()) {
        let encoded = percent_encoded(&secret);
        for position in ["https://x/?token=@&b=1", "curl 'https://x/?a=1&%61uth=@'", "https://me:@@host", "password=@", "x Bearer%20@ y"] {
            let text = in_position(position, &encoded);
            prop_assert!(!leaks(&masked(&text), &encoded), "{} -> {}", text, masked(&text));
        }
    }

    #[test]
    fn a_secret_never_survives_in_a_presentation((secret, split) in split_unseen(), at in 0..POSITIONS.len()) {
        for secret_text in [&secret, &split] {
            let text = in_position(POSITIONS[at], secret_text);
            let quoted = serde_json::to_string(&json!({ "password": secret_text, "text": text })).unwrap();
            let contents = [
                (Kind::Exec, json!({ "command": text, "cwd": text })),
                (Kind::Exec, json!({ "argv": ["x", text, "--password", secret_text, quoted], "cwd": { "path": text } })),
                (Kind::Exec, json!({ "argv": [text], "executable": { "path": text, "secret": secret_text }, "operands": [{ "path": text }] })),
                (Kind::Tool, json!({ "toolName": text, "input": { (text.clone()): text, "token": secret_text }, "rawInput": [quoted] })),
                (Kind::Tool, json!({ "toolName": "t", "input": text })),
                (Kind::Plugin, json!({ "title": text, "apiKey": [{ "x": [secret_text] }], "body": quoted })),
                (Kind::Dispatch, json!({ "task": { "title": text, "auth": secret_text } })),
                (Kind::Round, json!({ "nextTasks": [{ "env": [{ "name": "API_TOKEN", "value": secret_text }] }] })),
                (Kind::Plan, json!({ "tasks": [text], "credentials": { "x": secret_text } })),
            ];
            for (kind, content) in contents {
                let shown = shown(kind, content);
                for text in strings(&shown) {
                    prop_assert!(!leaks(text, &secret), "{}", text);
                }
                prop_assert_eq!(shown.flags[0].as_str(), HIDDEN);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_leaf_is_shown_or_shown_masked(
        leaves in prop::collection::vec((hostile_text(), any::<bool>()), 1..8),
    ) {
        let key = |index: usize, is_secret: bool| if is_secret { format!("secret{index}") } else { format!("x{index}") };
        let fields = leaves.iter().enumerate().map(|(index, (text, is_secret))| (key(index, *is_secret), json!(text)));
        let shown = shown(Kind::Plan, Value::Object(fields.collect()));
        prop_assert_eq!(shown.facts.len(), leaves.len());
        for (index, (text, is_secret)) in leaves.iter().enumerate() {
            let leaf = fact(&shown, &key(index, *is_secret));
            let leaf = decode(&leaf[1..leaf.len() - 1], Quote::Double);
            prop_assert!(&leaf == text || (*is_secret && leaf.contains("***")), "{:?} {:?}", leaf, text);
        }
    }

    #[test]
    fn a_text_of_ordinary_words_is_never_changed(text in "([a-z]{1,9}|[0-9]{1,4}|[-=:.,;/'\"(){}]){0,30}( [a-z]{1,9}){0,9}") {
        let names = ["pass", "pwd", "auth", "token", "secret", "cookie", "bearer", "credential", "key"];
        prop_assume!(!names.iter().any(|name| text.contains(name)) && !text.contains("://"));
        prop_assert_eq!(mask(&text), text);
    }

    #[test]
    fn masking_twice_is_masking_once_and_adds_little(
        parts in prop::collection::vec(prop_oneof![
            3 => prop::sample::select(POSITIONS.to_vec()).prop_map(str::to_owned),
            2 => hostile_text(),
            2 => prop::sample::select(vec![
                "password=", "token: ", "--secret ", "\"auth\":", "'", "\"", "\\\"", "\\", "$(", ")", "`", "[", "{", ",", ";", "=",
                ":", " ", "***", "Bearer ", "https://u:", "@", "?key&token=", "%3D", "ghp_", "\n", "Cookie: ", "-H '",
            ]).prop_map(str::to_owned),
        ], 0..8),
    ) {
        let text = parts.join(" ");
        let once = mask(&text);
        prop_assert_eq!(mask(&once), once.as_str(), "{:?}", text);
        prop_assert!(once.len() <= 3 * text.len());
        prop_assert!(masked(&text).len() <= 12 * text.len() + 12);
    }
}
