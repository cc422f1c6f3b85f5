//! What every store promises, as tests that know nothing of the database behind it.
//!
//! A backend instantiates them all with [`store_contract!`](crate::store_contract). What only one database can
//! show (its files, its damage) is tested beside that backend.

#![expect(clippy::unwrap_used, reason = "these are tests, in a library so that every backend can run them")]

use std::sync::Arc;

use async_trait::async_trait;
use holdgate_core::approval::{Binding, Draft, Outcome as Came, Source};
use holdgate_core::principal::PrincipalKind;
use holdgate_core::requirement::{Decision, Requirement};
use holdgate_core::run::{RunCommand, RunState};
use holdgate_core::{
    Action, Approval, ApprovalId, Canonical, Command, Digest, EpochId, Fence, Kind, Principal, Refusal, Run,
    RunId, Time,
};
use holdgate_store::{Answer, Append, Op, Outcome, RuntimeKind, Seen, Store, StoreError, Stored};

use crate::ManualClock;

pub mod credentials;
pub mod leases;
pub mod lists;
pub mod races;
pub mod requests;
pub mod runs;
pub mod time;

/// One database that can be opened, dropped and opened again.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Opens it. The store of the opening before has been dropped.
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;
}

/// Instantiates every promise as a test against the [`Backend`] that `$backend` makes.
#[macro_export]
macro_rules! store_contract {
    ($backend:expr) => {
        $crate::store_contract!(@each $backend,
            credentials::a_new_credential_replaces_the_earlier_one,
            credentials::a_page_session_is_a_reviewers_and_lapses,
            credentials::a_page_session_ends_with_the_credential_that_opened_it,
            credentials::an_identity_without_a_credential_can_do_nothing,
            credentials::a_credential_that_another_identity_has_is_refused,
            leases::an_epoch_that_is_not_renewed_lapses,
            leases::a_renewed_epoch_lives_on,
            leases::an_epoch_is_started_once,
            leases::another_cannot_renew_or_use_an_epoch,
            leases::a_starting_gateway_ends_its_own_earlier_epoch_only,
            leases::a_starting_gateway_spares_the_living_and_revives_nobody,
            leases::a_starting_gateway_spares_no_lease_that_was_taken_without_one,
            leases::a_second_start_in_one_opening_revives_nobody,
            leases::a_claim_needs_its_live_epoch,
            leases::a_claim_whose_holder_is_gone_becomes_unknown_and_a_late_receipt_replaces_that,
            lists::a_list_is_newest_first_and_can_be_narrowed,
            lists::pages_neither_repeat_nor_miss_while_others_insert,
            races::allow_and_deny_at_once_have_one_winner_and_every_loser_is_told,
            races::many_claims_at_once_have_one_winner,
            races::two_processes_that_want_one_run_have_one_winner,
            races::many_requests_at_once_are_all_kept,
            requests::a_request_is_kept_as_it_was_opened,
            requests::the_same_request_again_is_the_same_record,
            requests::a_key_names_one_body_of_one_identity,
            requests::what_waits_for_a_live_process_keeps_no_content,
            requests::an_allow_is_claimed_once_and_settled_once,
            requests::an_agent_never_decides,
            requests::another_agent_sees_nothing,
            requests::a_stale_digest_changes_nothing,
            requests::a_withdrawn_request_cannot_be_answered,
            requests::a_change_is_hinted_after_it_is_durable,
            requests::everything_is_there_after_reopening,
            runs::a_run_is_created_once,
            runs::a_journal_keeps_its_order_and_its_place,
            runs::a_page_of_a_journal_is_bounded_in_bytes,
            runs::a_stale_fence_can_do_nothing,
            runs::a_lapsed_lease_lets_the_next_holder_in,
            runs::an_append_and_its_requests_are_one,
            runs::a_refused_append_writes_nothing,
            runs::the_same_request_twice_in_an_append_is_one,
            runs::an_ended_run_takes_no_more,
            runs::another_owner_finds_no_run,
            runs::a_request_of_a_run_needs_its_fence,
            time::a_request_ends_exactly_at_its_deadline,
            time::what_time_decided_is_written_down_by_who_comes_next,
            time::a_clock_set_back_revives_nothing,
            time::a_clock_set_forward_ends_things_for_good,
            time::a_sweep_is_bounded_and_complete,
            time::the_next_instant_is_known,
        );
    };
    (@each $backend:expr, $($module:ident::$name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let backend = $backend;
                $crate::contract::$module::$name(&backend).await;
            }
        )*
    };
}

/// A store with the identities that the promises are about.
struct Stage<'b> {
    backend: &'b dyn Backend,
    clock: Arc<ManualClock>,
    opened: Option<Arc<dyn Store>>,
    agent: Principal,
    other: Principal,
    reviewer: Principal,
}

/// How long a request on the stage lives.
const LIFE_MS: i64 = 600_000;

impl<'b> Stage<'b> {
    async fn set(backend: &'b dyn Backend) -> Self {
        let clock = ManualClock::at(Time::from_ms(1_700_000_000_000));
        let opened = Some(backend.open(Arc::clone(&clock)).await);
        let identity =
            |id: &str, kind| Principal { id: id.parse().unwrap(), kind, label: format!("The {id}") };
        let stage = Self {
            backend,
            clock,
            opened,
            agent: identity("agent", PrincipalKind::Agent),
            other: identity("other", PrincipalKind::Agent),
            reviewer: identity("reviewer", PrincipalKind::Administrator),
        };
        for who in [&stage.agent, &stage.other, &stage.reviewer] {
            stage.admit(who, &format!("token of {}", who.id)).await;
        }
        stage
    }

    /// Drops the store and opens the database again.
    async fn reopen(&mut self) {
        self.opened = None;
        self.opened = Some(self.backend.open(Arc::clone(&self.clock)).await);
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.opened.as_ref().expect("the stage is open")
    }

    async fn execute(&self, op: Op) -> Outcome {
        self.store().execute(op).await.unwrap()
    }

    async fn admit(&self, who: &Principal, token: &str) {
        let op = Op::PutCredential { hash: Digest::of(token.as_bytes()), principal: who.clone() };
        assert_eq!(self.execute(op).await, Outcome::Committed(Answer::Done));
    }

    async fn caller(&self, by: &Principal) -> EpochId {
        let epoch = holdgate_store::mint::epoch();
        self.start(epoch.clone(), RuntimeKind::Caller, by).await;
        epoch
    }

    async fn gateway(&self, instance: &str) -> EpochId {
        let epoch = holdgate_store::mint::epoch();
        self.start(epoch.clone(), RuntimeKind::Gateway { instance: instance.to_owned() }, &self.agent).await;
        epoch
    }

    async fn start(&self, epoch: EpochId, kind: RuntimeKind, by: &Principal) {
        let outcome = self.execute(Op::StartRuntime { epoch, kind, by: by.id.clone() }).await;
        assert!(matches!(outcome, Outcome::Committed(Answer::Runtime(_))), "{outcome:?}");
    }

    async fn renew(&self, epoch: &EpochId, by: &Principal) -> Outcome {
        self.execute(Op::RenewRuntime { epoch: epoch.clone(), by: by.id.clone() }).await
    }

    /// Opens a request of the agent behind a live process.
    async fn ask(&self, epoch: &EpochId, boundary: &str) -> Approval {
        approval(self.open(draft(boundary, Binding::Runtime(epoch.clone())), None, &self.agent).await)
    }

    async fn open(&self, draft: Draft, fence: Option<Fence>, by: &Principal) -> Outcome {
        self.execute(Op::Open { draft: Box::new(draft), fence, by: by.id.clone(), key: None }).await
    }

    async fn apply(&self, id: &ApprovalId, command: Command, by: &Principal) -> Outcome {
        self.execute(Op::Apply { id: id.clone(), command, by: by.id.clone() }).await
    }

    async fn vote(&self, on: &Approval, decision: Decision) -> Outcome {
        self.apply(&on.id, vote(on, decision), &self.reviewer).await
    }

    async fn claim(&self, on: &Approval, claim_id: &str, fence: Option<Fence>) -> Outcome {
        let command = Command::Claim { claim_id: claim_id.parse().unwrap(), digest: on.digest, fence };
        self.apply(&on.id, command, &self.agent).await
    }

    async fn settle(&self, on: &Approval, claim_id: &str, outcome: Came) -> Outcome {
        let command = Command::Settle { claim_id: claim_id.parse().unwrap(), outcome, detail: None };
        self.apply(&on.id, command, &self.agent).await
    }

    async fn seen(&self, id: &ApprovalId) -> Seen {
        self.store().approval(id).await.unwrap().expect("the approval exists")
    }

    /// The record as it is stored, whatever time has decided since.
    async fn stored(&self, id: &ApprovalId) -> Approval {
        sound(self.seen(id).await)
    }

    async fn create_run(&self, id: &str) -> RunId {
        let id: RunId = id.parse().unwrap();
        let op = Op::CreateRun { id: id.clone(), agent: "releaser".to_owned(), by: self.agent.id.clone() };
        assert!(matches!(self.execute(op).await, Outcome::Committed(Answer::Run(_))));
        id
    }

    async fn hold(&self, id: &RunId, command: RunCommand) -> Result<Run, Refusal> {
        match self.execute(Op::HoldRun { id: id.clone(), command, by: self.agent.id.clone() }).await {
            Outcome::Committed(Answer::Run(run)) => Ok(run),
            Outcome::Refused(why, _) => Err(why),
            other => panic!("a hold was answered {other:?}"),
        }
    }

    /// A run that the agent holds, and the fence it holds it with.
    async fn held_run(&self, id: &str) -> (RunId, Fence) {
        let id = self.create_run(id).await;
        let run = self.hold(&id, RunCommand::Lease).await.unwrap();
        (id, run.fence)
    }

    async fn append(&self, append: Append) -> Outcome {
        self.execute(Op::Append { append, by: self.agent.id.clone() }).await
    }

    async fn sweep(&self, limit: u32) -> u32 {
        match self.execute(Op::Sweep { limit }).await {
            Outcome::Committed(Answer::Swept(count)) => count,
            other => panic!("a sweep was answered {other:?}"),
        }
    }
}

/// A request to call a tool.
fn draft(boundary: &str, binding: Binding) -> Draft {
    let content =
        Canonical::parse(r#"{"toolName":"deploy","input":{"stage":"production","replicas":3}}"#).unwrap();
    let presentation = holdgate_core::presentation::present(Kind::Tool, &content.to_value()).unwrap();
    Draft {
        action: Action::freeze(Kind::Tool, boundary, content).unwrap(),
        presentation,
        reason: Some("the tests passed".to_owned()),
        source: Source {
            agent: Some("releaser".to_owned()),
            tool_name: Some("deploy".to_owned()),
            ..Source::default()
        },
        binding,
        requirement: Requirement::default(),
        timeout_ms: LIFE_MS,
    }
}

fn entry(run: &RunId, fence: Fence, after: u64, events: &[&str]) -> Append {
    Append {
        run: run.clone(),
        fence,
        after,
        events: events.iter().map(|&event| event.to_owned()).collect(),
        state: RunState::Running,
        opens: Vec::new(),
    }
}

fn vote(on: &Approval, decision: Decision) -> Command {
    Command::Vote { decision, digest: on.digest, reason: None }
}

/// The approval of a change that was made.
fn approval(outcome: Outcome) -> Approval {
    match outcome {
        Outcome::Committed(Answer::Approval(approval)) => *approval,
        other => panic!("not a committed approval: {other:?}"),
    }
}

/// The approval of a change that had been made before.
fn duplicate(outcome: Outcome) -> Approval {
    match outcome {
        Outcome::Duplicate(Answer::Approval(approval)) => *approval,
        other => panic!("not a duplicate approval: {other:?}"),
    }
}

/// Why nothing was changed.
fn refusal(outcome: Outcome) -> Refusal {
    refused(outcome).0
}

/// Why nothing was changed, and the record as it stands.
fn refused(outcome: Outcome) -> (Refusal, Option<Approval>) {
    match outcome {
        Outcome::Refused(why, winner) => (why, winner.map(|winner| *winner)),
        other => panic!("not refused: {other:?}"),
    }
}

fn sound(seen: Seen) -> Approval {
    match seen.stored {
        Stored::Sound(approval) => *approval,
        Stored::Corrupt { id, why } => panic!("{id} does not decode: {why}"),
    }
}

#[cfg(test)]
mod tests {
    /// A promise that is written but not listed would never be kept.
    #[test]
    fn every_promise_is_listed() {
        let list = include_str!("contract.rs");
        let modules = [
            ("credentials", include_str!("contract/credentials.rs")),
            ("leases", include_str!("contract/leases.rs")),
            ("lists", include_str!("contract/lists.rs")),
            ("races", include_str!("contract/races.rs")),
            ("requests", include_str!("contract/requests.rs")),
            ("runs", include_str!("contract/runs.rs")),
            ("time", include_str!("contract/time.rs")),
        ];
        let mut promises = 0;
        for (module, text) in modules {
            assert!(list.contains(&format!("\npub mod {module};")));
            for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = line.split('(').next().unwrap();
                assert!(list.contains(&format!(" {module}::{name},")), "{module}::{name}");
                promises += 1;
            }
        }
        assert!(promises > 40, "{promises}");
    }
}
