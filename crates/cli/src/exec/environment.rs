//! The environment that a command will be given.
//!
//! Owns the stripping of our own variables and the digest. Values are digested and handed to the child;
//! they are never shown, stored or sent. Reading the process's variables is not done here.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::digest::hex;

/// Every variable with this prefix is ours and may hold a credential or lead to one.
const OURS: &[u8] = b"HOLDGATE_";

/// What the child sees: names are unique, none of them is ours.
#[derive(Clone)]
pub struct Environment(Vec<(OsString, OsString)>);

/// How an environment is named in a frozen action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnvironmentDigest {
    /// Lowercase hex SHA-256 over the sorted, length-delimited names and values.
    pub sha256: String,
    /// How many variables there are.
    pub count: usize,
    /// Names of those that can make programs load or run something else, sorted. Values are never named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<String>,
}

/// Variables that dynamic loaders, shells, interpreters and git obey before the command's own arguments.
const STEERING: [&str; 21] = [
    "BASH_ENV",
    "CLASSPATH",
    "EDITOR",
    "ENV",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "LESSOPEN",
    "NODE_OPTIONS",
    "PAGER",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "RUBYLIB",
    "RUBYOPT",
    "SHELLOPTS",
];
const STEERING_PREFIXES: [&str; 4] = ["BASH_FUNC_", "DYLD_", "LD_", "PYTHON"];

fn is_steering(name: &str) -> bool {
    STEERING.contains(&name) || STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl Environment {
    /// Keeps what a child may see. Of two variables with one name the first stays: it is the one `getenv` returns.
    pub fn for_child(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut seen = HashSet::new();
        Self(
            variables
                .into_iter()
                .filter(|(name, _)| !name.as_bytes().starts_with(OURS))
                .filter(|(name, _)| seen.insert(name.clone()))
                .collect(),
        )
    }

    /// The value of one variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
    }

    /// Every name with its value.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The digest. Each name and value is preceded by its length, so that no two environments share their bytes;
    /// the order in which variables were set does not matter.
    pub fn digest(&self) -> EnvironmentDigest {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort();
        let mut hasher = Sha256::new();
        for (name, value) in sorted {
            for part in [name.as_bytes(), value.as_bytes()] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
        }
        let names = self.0.iter().filter_map(|(name, _)| name.to_str());
        let mut steering: Vec<_> = names.filter(|name| is_steering(name)).map(str::to_owned).collect();
        steering.sort();
        EnvironmentDigest { sha256: hex(&hasher.finalize()), count: self.0.len(), steering }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::for_child(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn our_own_variables_are_not_for_the_child() {
        let stripped = environment(&[("HOLDGATE_TOKEN", "s3cret"), ("HOME", "/h"), ("HOLDGATE_", "x")]);
        assert_eq!(stripped.variables().collect::<Vec<_>>(), [("HOME".as_ref(), "/h".as_ref())]);
        assert_eq!(stripped.digest(), environment(&[("HOME", "/h")]).digest());
    }

    #[test]
    fn the_first_of_two_equal_names_stays() {
        let doubled = environment(&[("A", "1"), ("A", "2")]);
        assert_eq!(doubled.get("A"), Some("1".as_ref()));
        assert_eq!(doubled.digest().count, 1);
    }

    #[test]
    fn order_is_no_difference_and_every_byte_is_one() {
        let digest = |pairs: &[(&str, &str)]| environment(pairs).digest().sha256;
        let plain = digest(&[("A", "1"), ("B", "2")]);
        assert_eq!(plain, digest(&[("B", "2"), ("A", "1")]));
        assert_ne!(plain, digest(&[("A", "1B"), ("", "2")]));
        assert_ne!(digest(&[("A", "B=1")]), digest(&[("A=B", "1")]));
        assert_ne!(digest(&[("A", "")]), digest(&[]));
    }

    #[test]
    fn variables_that_make_programs_run_something_else_are_named_without_their_values() {
        let digest = environment(&[("LD_PRELOAD", "/x.so"), ("HOME", "/h"), ("BASH_ENV", "./x")]).digest();
        assert_eq!(digest.steering, ["BASH_ENV", "LD_PRELOAD"]);
        assert!(!serde_json::to_string(&digest).unwrap().contains("x.so"));
    }
}
