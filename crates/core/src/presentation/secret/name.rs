//! Which names are names of credentials: of fields, variables, options, headers and query parameters.
//!
//! Owns the lists of words and how a name is cut into words. Does not look at values.

/// Words that make a name the name of a credential, wherever they stand in it.
const WORDS: &[&str] = &[
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "pass",
    "passcode",
    "passwords",
    "pwd",
    "secrets",
    "tokens",
];
/// As well, when a longer word ends with them: `PGPASSWORD`, `authtoken`.
const ENDINGS: &[&str] = &[
    "accesskey",
    "apikey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "token",
];
/// Two words that do so together.
const PAIRS: &[(&str, &str)] = &[
    ("access", "key"),
    ("account", "key"),
    ("api", "key"),
    ("api", "keys"),
    ("encryption", "key"),
    ("private", "key"),
    ("signing", "key"),
];
/// Last words that say that the value only tells about a credential: `TOKEN_FILE`, `auth_type`, `secretName`.
const ABOUT: &[&str] = &[
    "algorithm",
    "arn",
    "budget",
    "count",
    "enabled",
    "endpoint",
    "env",
    "expires",
    "expiry",
    "field",
    "file",
    "format",
    "host",
    "jar",
    "length",
    "limit",
    "method",
    "mode",
    "name",
    "path",
    "policy",
    "port",
    "prompt",
    "provider",
    "ref",
    "required",
    "scope",
    "scopes",
    "size",
    "stdin",
    "ttl",
    "type",
    "uri",
    "url",
    "usage",
    "version",
];
/// First words of options that take no value: `--no-password target`.
const SWITCHES: &[&str] = &[
    "allow", "ask", "disable", "enable", "has", "hide", "is", "no", "require", "show", "skip", "use",
    "without",
];
/// Names inside a credential's own object that say which one it is, not what it is.
const IDENTIFYING: &[&str] = &[
    "env",
    "host",
    "kind",
    "method",
    "name",
    "namespace",
    "path",
    "provider",
    "scheme",
    "type",
    "uri",
    "url",
    "user",
    "username",
    "version",
];
/// Names that also count things: with a number after them they are no credential (`max_tokens: 4096`).
const COUNTED: &[&str] = &["pass", "tokens"];

/// What the name of a credential says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    /// Any value is a credential.
    Any,
    /// A text is a credential, a number is not.
    TextOnly,
}

/// Whether this is the name of a credential. Of a dotted name the last part counts.
pub(super) fn credential(name: &str) -> Option<Credential> {
    let words = words(name);
    let last = words.last()?.as_str();
    if ABOUT.contains(&last) {
        return None;
    }
    let counts = |word: &String| {
        let word = word.as_str();
        WORDS.contains(&word) || ENDINGS.iter().any(|ending| word.ends_with(ending))
    };
    let is_pair = words.windows(2).any(|two| PAIRS.contains(&(two[0].as_str(), two[1].as_str())));
    let mut found = words.iter().filter(|word| counts(word)).peekable();
    // `auth` is too common a word to count in front of another: `auth_server`.
    if found.peek().is_none() && !is_pair && last != "auth" {
        return None;
    }
    let only_counted = !is_pair && last != "auth" && found.all(|word| COUNTED.contains(&word.as_str()));
    Some(if only_counted { Credential::TextOnly } else { Credential::Any })
}

/// Whether the option stands alone: what comes after it is not its value.
pub(super) fn is_switch(option: &str) -> bool {
    words(option).first().is_some_and(|word| SWITCHES.contains(&word.as_str()))
}

/// Whether a field of this name tells which credential it is.
pub(super) fn is_identifying(name: &str) -> bool {
    words(name)
        .last()
        .is_some_and(|word| IDENTIFYING.contains(&word.as_str()) || ABOUT.contains(&word.as_str()))
}

/// Whether it is the name of an HTTP header that carries a credential, in a list of such.
pub(super) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_own = name.starts_with("x-") && credential(&name).is_some();
    is_own || matches!(name.as_str(), "authorization" | "proxy-authorization" | "cookie" | "set-cookie")
}

/// The lower-case words of the last part of a dotted name: `camelCase`, `UPPER_SNAKE`, `APIKey`, `x-api-key2`.
fn words(name: &str) -> Vec<String> {
    let part = name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).rsplit('.').next().unwrap_or_default();
    let bytes = part.as_bytes();
    let mut words = vec![String::new()];
    for (at, &b) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        let begins = b.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && after.is_ascii_lowercase()));
        if begins || !b.is_ascii_alphabetic() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| b.is_ascii_alphabetic()) {
            word.push(char::from(b.to_ascii_lowercase()));
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_credentials_are_known_in_every_spelling() {
        let names = [
            "password",
            "PASSWD",
            "pwd",
            "secret",
            "token",
            "api_key",
            "apikey",
            "apiKey",
            "APIKey",
            "access_key",
            "client_secret",
            "clientSecret",
            "private_key",
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "credential",
            "credentials",
            "auth",
            "DB_PASSWORD",
            "PGPASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "X-Api-Key",
            "X-Auth-Token",
            "--api-key",
            "_authToken",
            "db.password",
            "GITHUB_TOKEN2",
            "passphrase",
            "auth-token",
            "AccountKey",
            "secret_id",
            "accessToken",
            "MYSQL_PWD",
            "DB_PASS",
        ];
        for name in names {
            assert!(credential(name).is_some(), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_taken_for_credentials() {
        let names = [
            "",
            "-",
            "author",
            "authority",
            "authors",
            "key",
            "keyboard",
            "monkey",
            "secretary",
            "tokenizer",
            "tokenize",
            "compass",
            "passenger",
            "path",
            "TOKEN_FILE",
            "secretName",
            "auth_type",
            "cookie-jar",
            "authorizationUrl",
            "password-stdin",
            "auth_server",
            "secret.name",
            "cookiecutter",
            "public_key",
        ];
        for name in names {
            assert_eq!(credential(name), None, "{name}");
        }
        for counted in ["max_tokens", "maxTokens", "tokens", "pass"] {
            assert_eq!(credential(counted), Some(Credential::TextOnly), "{counted}");
        }
        assert_eq!(credential("secret_tokens"), Some(Credential::Any));
    }
}
