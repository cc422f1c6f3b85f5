//! The home directory: the database file and the credential files.
//!
//! Owns where they are, who may read them and how they are written. A credential itself is minted by the store's
//! mint; the database keeps only its hash.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use etcetera::BaseStrategy as _;
use holdgate_authority::administration::credential_prefix;
use holdgate_core::Principal;
use holdgate_core::principal::PrincipalKind;
use holdgate_gateway::credential_hash;
use holdgate_store::{Credential, Op, Outcome, Store, mint};

use crate::exit::say;

/// Hex digits of a credential after its prefix.
const SECRET_DIGITS: usize = 64;
/// How the shared operator token begins, for people and secret scanners.
const SHARED_PREFIX: &str = "hgw";

/// As whom a command speaks: which of the two credential files it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The person who decides.
    Operator,
    /// Whatever asks. It can never decide.
    Agent,
}

impl Identity {
    /// Both.
    pub const BOTH: [Identity; 2] = [Identity::Operator, Identity::Agent];

    fn file_name(self) -> &'static str {
        match self {
            Identity::Operator => "operator.token",
            Identity::Agent => "agent.token",
        }
    }

    /// A new token.
    ///
    /// # Errors
    /// This machine has no randomness.
    pub fn mint(self) -> anyhow::Result<String> {
        mint::secret(self.prefix()).context("this machine has no source of randomness")
    }

    /// What to do when its file is lost.
    fn cure(self) -> &'static str {
        match self {
            Identity::Operator => "delete it, stop the gateway and run `holdgate token recover`",
            Identity::Agent => "delete it and start `holdgate serve`, which writes a new one",
        }
    }

    fn prefix(self) -> &'static str {
        credential_prefix(self.principal().kind)
    }

    /// The identity.
    pub fn principal(self) -> Principal {
        let (name, kind) = match self {
            Identity::Operator => ("operator", PrincipalKind::Administrator),
            Identity::Agent => ("agent", PrincipalKind::Agent),
        };
        Principal::new(name.parse().expect("a fixed name is a valid id"), kind, name)
    }
}

/// What a paired device shows, and to which gateway alone.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceCredential {
    /// The credential.
    pub token: String,
    /// The gateway's URL.
    pub url: String,
}

impl DeviceCredential {
    fn read(text: &str) -> Option<Self> {
        let (token, url) = text.trim_end_matches(['\n', '\r']).split_once('\n')?;
        let token = whole(token.trim_end_matches('\r'), credential_prefix(PrincipalKind::Device))?;
        Some(Self { token, url: url.to_owned() })
    }
}

/// A home directory. It need not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// The named directory, or else the platform's place for a program's data.
    ///
    /// # Errors
    /// The platform names no such place.
    pub fn at(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let dir = match named {
            Some(dir) => dir,
            None => {
                let places = etcetera::choose_base_strategy()
                    .context("this user has no home directory; name one with --home DIR")?;
                places.data_dir().join("holdgate")
            }
        };
        // Absolute, because messages and other processes name it.
        Ok(Self {
            dir: std::path::absolute(&dir)
                .with_context(|| format!("{} is no directory name", dir.display()))?,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The database that this home uses unless another is named.
    pub fn database(&self) -> PathBuf {
        self.dir.join("holdgate.db")
    }

    /// Where the identity's token is kept.
    pub fn token_file(&self, identity: Identity) -> PathBuf {
        self.dir.join(identity.file_name())
    }

    /// Makes the directory, readable by its owner only.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn create(&self) -> anyhow::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.dir).with_context(|| {
            format!("cannot make the home directory {}; name another with --home DIR", self.dir.display())
        })?;
        if mode(&self.dir).is_some_and(|mode| mode & 0o022 != 0) {
            let dir = self.dir.display();
            say(&format!("warning: other users can replace files in {dir}; run chmod 700 on it"));
        }
        Ok(())
    }

    /// The identity's token.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, or what is in it is no token. The text is not repeated.
    pub fn token(&self, identity: Identity) -> anyhow::Result<String> {
        let path = self.token_file(identity);
        match fs::read_to_string(&path) {
            Ok(text) => token_in(&text, identity).with_context(|| {
                format!("{} holds no token of this kind; {}", path.display(), identity.cure())
            }),
            Err(e) if e.kind() == ErrorKind::NotFound => bail!(
                "there is no {}; `holdgate serve` writes it when it starts in this home; if it was lost, stop the gateway \
                 and run `holdgate token recover`, or set HOLDGATE_TOKEN",
                path.display()
            ),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Sees to it that both token files exist and that the store knows them. Called by whoever owns the store.
    ///
    /// A file that is gone is written anew. One that the store does not know any more was replaced or revoked
    /// elsewhere: it is not made good again by starting.
    ///
    /// # Errors
    /// A file that cannot be written or read, holds no token, or holds one of another identity; an operator's that
    /// the store does not know.
    pub async fn provision(&self, store: &dyn Store) -> anyhow::Result<()> {
        let is_known_here = store.identity(&Identity::Operator.principal().id).await?.is_some();
        for identity in Identity::BOTH {
            let path = self.token_file(identity);
            let mut is_new =
                !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))?;
            if is_new {
                self.put_token(identity, &identity.mint()?)?;
            }
            warn_if_open(&path);
            let mut hash = credential_hash(&self.token(identity)?);
            let principal = identity.principal();
            match store.credential(Credential::Token(hash)).await? {
                Some(known) if known.id == principal.id => continue,
                Some(known) => bail!(
                    "{} holds the token of {}; delete the file and start again",
                    path.display(),
                    known.label
                ),
                None if is_new || !is_known_here => {}
                None if identity == Identity::Operator => bail!(
                    "{} is not the operator token that this database knows; put the right one there, or run \
                     `holdgate token recover`",
                    path.display()
                ),
                None => {
                    let secret = identity.mint()?;
                    self.put_token(identity, &secret)?;
                    say(&format!("{} was revoked or replaced; it holds a new token now", path.display()));
                    hash = credential_hash(&secret);
                    is_new = true;
                }
            }
            let recovers = is_new && is_known_here && identity == Identity::Operator;
            let outcome = store.execute(Op::PutCredential { hash, principal, recovers }).await?;
            if !matches!(outcome, Outcome::Committed(_)) {
                bail!("the database does not take the token in {}", path.display());
            }
        }
        Ok(())
    }

    /// Replaces an identity's token file.
    ///
    /// # Errors
    /// It cannot be written; then the earlier one is still there.
    pub fn put_token(&self, identity: Identity, secret: &str) -> anyhow::Result<()> {
        let path = self.token_file(identity);
        write_private(&path, secret).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where the credential of this machine as a paired device is kept.
    pub fn device_file(&self) -> PathBuf {
        self.dir.join("device.token")
    }

    /// The credential of this machine as a device, if it was paired and there is no operator token, which may do more.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else. Its text is not repeated.
    pub fn device(&self) -> anyhow::Result<Option<DeviceCredential>> {
        let operator = self.token_file(Identity::Operator);
        if operator.try_exists().with_context(|| format!("cannot look for {}", operator.display()))? {
            return Ok(None);
        }
        let path = self.device_file();
        match fs::read_to_string(&path) {
            Ok(text) => {
                let device = DeviceCredential::read(&text);
                let why = || format!("{} holds no device's token; pair this machine again", path.display());
                device.with_context(why).map(Some)
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Keeps the credential of this machine as a device.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_device(&self, device: &DeviceCredential) -> anyhow::Result<()> {
        let path = self.device_file();
        let text = format!("{}\n{}", device.token, device.url);
        write_private(&path, &text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The one operator token for everybody, of a gateway that takes one. Written when it is first asked for.
    ///
    /// # Errors
    /// The file cannot be written or read, or holds no token.
    pub fn shared_token(&self) -> anyhow::Result<String> {
        let path = self.dir.join("shared.token");
        if !path.try_exists().with_context(|| format!("cannot look for {}", path.display()))? {
            let secret = mint::secret(SHARED_PREFIX).context("this machine has no source of randomness")?;
            write_private(&path, &secret).with_context(|| format!("cannot write {}", path.display()))?;
        }
        warn_if_open(&path);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let token = text.trim_end_matches(['\n', '\r']);
        if token.strip_prefix(SHARED_PREFIX).is_none_or(|rest| rest.len() != SECRET_DIGITS + 1) {
            bail!("{} holds no shared operator token; delete it and start again", path.display());
        }
        Ok(token.to_owned())
    }

    /// Whether this process's user can read both token files: then an agent with a shell under that user can as well.
    pub fn is_separation_advisory(&self) -> bool {
        Identity::BOTH.iter().all(|identity| fs::File::open(self.token_file(*identity)).is_ok())
    }
}

/// The token in the text of a file, if there is exactly one of the identity's kind.
fn token_in(text: &str, identity: Identity) -> Option<String> {
    whole(text.trim_end_matches(['\n', '\r']), identity.prefix())
}

fn whole(token: &str, prefix: &str) -> Option<String> {
    let digits = token.strip_prefix(prefix)?.strip_prefix('_')?;
    let is_whole =
        digits.len() == SECRET_DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_whole.then(|| token.to_owned())
}

/// Writes a file that only its owner can read: under its name it is whole or not there.
fn write_private(path: &Path, secret: &str) -> std::io::Result<()> {
    let draft = path.with_extension(format!("token.{}", std::process::id()));
    // Left by a process of this number that was killed here.
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    if let Some(dir) = path.parent() {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn warn_if_open(path: &Path) {
    if let Some(mode) = mode(path).filter(|mode| mode & 0o077 != 0) {
        let path = path.display();
        say(&format!("warning: {path} can be read by other users (mode {mode:03o}); run chmod 600 on it"));
    }
}

/// The permission bits of a file, if there is one.
pub fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|metadata| metadata.permissions().mode() & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(prefix: &str) -> String {
        format!("{prefix}_{}", "0f".repeat(32))
    }

    #[test]
    fn a_token_is_only_taken_for_what_it_is() {
        assert_eq!(token_in(&format!("{}\n", secret("hgo")), Identity::Operator), Some(secret("hgo")));
        for bad in [
            "",
            "\n",
            "hgo_",
            "hgo_0f",
            &secret("hga"),
            &format!(" {}", secret("hgo")),
            &secret("hgo").to_uppercase(),
        ] {
            assert_eq!(token_in(bad, Identity::Operator), None, "{bad:?}");
        }
    }

    #[test]
    fn a_devices_token_goes_with_its_gateway_and_gives_way_to_the_operators() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(Some(dir.path().to_owned())).unwrap();
        assert!(home.device().unwrap().is_none());
        let device = DeviceCredential { token: secret("hgd"), url: "http://127.0.0.1:1".to_owned() };
        home.put_device(&device).unwrap();
        assert!(home.device().unwrap().is_some_and(|kept| kept == device));
        assert_eq!(mode(&home.device_file()), Some(0o600));
        for bad in ["", &secret("hgd"), &format!("{}\nx", secret("hga"))] {
            fs::write(home.device_file(), bad).unwrap();
            assert!(home.device().is_err(), "{bad:?}");
        }
        home.put_token(Identity::Operator, &secret("hgo")).unwrap();
        assert!(home.device().unwrap().is_none());
    }

    #[test]
    fn a_written_token_is_private_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(Some(dir.path().join("a/b"))).unwrap();
        home.create().unwrap();
        let path = home.token_file(Identity::Agent);
        write_private(&path, &secret("hga")).unwrap();
        assert_eq!(home.token(Identity::Agent).unwrap(), secret("hga"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(home.dir()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 1, "no draft stays behind");
    }

    #[test]
    fn a_garbled_file_is_named_but_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(Some(dir.path().to_owned())).unwrap();
        fs::write(home.token_file(Identity::Operator), "hgo_half-a-secret").unwrap();
        let error = format!("{:#}", home.token(Identity::Operator).unwrap_err());
        assert!(error.contains("operator.token") && !error.contains("half-a-secret"), "{error}");
    }
}
