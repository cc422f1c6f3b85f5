//! An authority in this process, with an agent's voice and a reviewer's. What `holdgate serve` keeps for everybody, an
//! example keeps for itself.

use std::path::Path;
use std::sync::Arc;

use holdgate_authority::{Authority, Local, Role, Service};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::Decision;
use holdgate_core::{Digest, Principal};
use holdgate_store::clock::SystemClock;
use holdgate_store::sqlite::{OpenOptions, SqliteStore};
use holdgate_store::{Op, Store as _};
use holdgate_wire::Decide;

/// Whatever goes wrong in an example ends it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Both voices.
pub struct Desk {
    /// Asks, waits and claims. It can never decide.
    pub agent: Arc<dyn Authority>,
    reviewer: Arc<dyn Authority>,
    store: Arc<SqliteStore>,
}

impl Desk {
    /// Opens the database in a directory, which no other process may have open.
    pub async fn open(dir: &Path) -> Result<Self> {
        let options = OpenOptions { path: dir.join("holdgate.db"), clock: Arc::new(SystemClock::new()) };
        let store = SqliteStore::open(options)?;
        let service = Service::start(store.clone(), Role::Embedded).await?;
        let voice = async |name: &str, kind: PrincipalKind| -> Result<Arc<dyn Authority>> {
            let principal = Principal::new(name.parse()?, kind, name);
            let hash = Digest::of(name.as_bytes());
            let put = Op::PutCredential { hash, principal: principal.clone(), recovers: false };
            store.execute(put).await?;
            let voice: Arc<dyn Authority> = Arc::new(Local::new(Arc::clone(&service), principal));
            Ok(voice)
        };
        let agent = voice("agent", PrincipalKind::Agent).await?;
        let reviewer = voice("reviewer", PrincipalKind::Administrator).await?;
        Ok(Self { agent, reviewer, store })
    }

    /// Shows an action as a reviewer sees it, and allows exactly that.
    pub async fn allow(&self, approval: &str) -> Result<()> {
        let record = self.reviewer.get(approval).await?;
        println!("  reviewer: {}", record.presentation.headline);
        for fact in &record.presentation.facts {
            println!("    {}: {}", fact.label, fact.text);
        }
        let allow = Decide { decision: Decision::AllowOnce, digest: record.digest, reason: None };
        self.reviewer.decide(approval, allow).await?;
        println!("  reviewer: allowed once");
        Ok(())
    }

    /// Lets go of the database, as a process that exits does.
    pub async fn close(self) {
        self.store.close().await;
    }
}
