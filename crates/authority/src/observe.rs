//! What the authority tells operators: content-free logs and counters of every transition.
//!
//! Owns no decision, and nothing waits for it. Ids, kinds, reasons and times only: never an action, a reason or a name.
//! Every label is a name out of a closed list.

use std::sync::Arc;

use holdgate_core::approval::{Binding, TerminalReason};
use holdgate_core::presentation::masked;
use holdgate_core::{Approval, Event, Refusal, Time};
use holdgate_store::{Answer, Notice, Outcome, Store, StoreError, Stored};
use tokio::sync::broadcast::error::RecvError;

/// How many facts are read back together.
const CATCH_UP: u32 = 256;

/// Observes every commit from now on, until the store is gone. Start it before the first commit of a gateway.
pub(crate) fn start(store: &Arc<dyn Store>) {
    let mut notices = store.notices();
    let store = Arc::downgrade(store);
    tokio::spawn(async move {
        // The number of the last fact that was observed.
        let mut seen = None;
        loop {
            match notices.recv().await {
                // It was read back already.
                Ok(Notice::Changed(committed)) if seen.is_some_and(|seen| committed.seq <= seen) => {}
                Ok(Notice::Changed(committed)) => {
                    for event in &committed.events {
                        transition(&committed.approval, event, committed.at);
                    }
                    seen = Some(committed.seq);
                }
                Ok(Notice::Corrupt(id)) => {
                    metrics::counter!("holdgate_corrupt_total").increment(1);
                    tracing::error!(%id, "a record does not decode and counts as denied");
                }
                Ok(Notice::Identity(_)) => {}
                Err(RecvError::Lagged(missed)) => {
                    let Some(store) = store.upgrade() else { return };
                    if !matches!(catch_up(&*store, &mut seen).await, Ok(true)) {
                        metrics::counter!("holdgate_unobserved_notices_total").increment(missed);
                        tracing::warn!(missed, "counters have missed some transitions");
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    });
}

/// Observes what was missed, as the store has it. False if nobody knows where to begin.
async fn catch_up(store: &dyn Store, seen: &mut Option<u64>) -> Result<bool, StoreError> {
    let Some(after) = seen else { return Ok(false) };
    loop {
        let page = store.events(*after, CATCH_UP).await?;
        for recorded in &page {
            // One that is gone or does not decode has nothing to tell; the latter is counted as corrupt.
            if let Some(found) = store.approval(recorded.approval.as_str()).await?
                && let Stored::Sound(approval) = found.stored
            {
                transition(&approval, &recorded.event, recorded.at);
            }
            *after = recorded.seq;
        }
        if page.len() < CATCH_UP as usize {
            return Ok(true);
        }
    }
}

fn transition(approval: &Approval, event: &Event, at: Time) {
    let kind = approval.kind.as_str();
    match event {
        Event::Opened => {
            metrics::counter!("holdgate_requests_total", "kind" => kind).increment(1);
            #[expect(clippy::cast_precision_loss, reason = "an audience has at most 64 sessions")]
            metrics::histogram!("holdgate_audience_sessions").record(approval.audience.len() as f64);
            told(approval, "pending", "", at);
        }
        Event::Voted { decision } => {
            metrics::counter!("holdgate_votes_total", "kind" => kind, "decision" => decision.as_str())
                .increment(1);
        }
        Event::Resolved { status, reason } => {
            let (status, reason_name) = (status.as_str(), reason.as_str());
            metrics::counter!("holdgate_terminals_total", "kind" => kind, "status" => status, "reason" => reason_name)
                .increment(1);
            let latency_ms = at.ms_after(approval.created_at);
            #[expect(clippy::cast_precision_loss, reason = "30 days in milliseconds are exact")]
            metrics::histogram!("holdgate_request_to_terminal_seconds", "kind" => kind)
                .record(latency_ms as f64 / 1_000.0);
            match reason {
                TerminalReason::GatewayRestart | TerminalReason::CallerLost => {
                    metrics::counter!("holdgate_orphans_total", "reason" => reason_name).increment(1);
                }
                TerminalReason::NoRoute => metrics::counter!("holdgate_no_route_total").increment(1),
                _ => {}
            }
            told(approval, status, reason_name, at);
        }
        Event::Revoked => {
            metrics::counter!("holdgate_revocations_total", "kind" => kind).increment(1);
            told(approval, "revoked", "", at);
        }
        Event::Claimed | Event::ClaimTaken => {
            metrics::counter!("holdgate_claims_total", "kind" => kind).increment(1);
        }
        Event::Settled { outcome } => {
            metrics::counter!("holdgate_receipts_total", "kind" => kind, "outcome" => outcome.as_str())
                .increment(1);
        }
    }
}

/// One line for each transition.
fn told(approval: &Approval, status: &str, reason: &str, at: Time) {
    // The source's session is the first that sees the request. Its key is the requester's words.
    let session = approval.audience.first().map(|key| masked(key)).unwrap_or_default();
    let (at_ms, latency_ms) = (at.as_ms(), at.ms_after(approval.created_at));
    let run = match &approval.binding {
        Binding::Checkpoint(run) => run.as_str(),
        Binding::Runtime(_) => "",
    };
    tracing::info!(
        target: "holdgate::transition",
        id = %approval.id, kind = approval.kind.as_str(), session, run, status, reason, at_ms, latency_ms,
        "transition"
    );
}

/// Counts how an answer fared against others.
pub(crate) fn race(outcome: &Outcome) {
    let fared = match outcome {
        // It takes more answers to end this one.
        Outcome::Committed(Answer::Approval(approval)) if approval.end().is_none() => "counted",
        Outcome::Committed(_) => "winner",
        Outcome::Duplicate(_) => "idempotent-retry",
        Outcome::Refused(Refusal::AlreadyDecided, _) => "conflict",
        Outcome::Refused(Refusal::Expired, _) => "expired",
        Outcome::Refused(Refusal::Cancelled, _) => "cancelled",
        Outcome::Refused(..) => "refused",
    };
    metrics::counter!("holdgate_resolve_races_total", "outcome" => fared).increment(1);
}

#[cfg(test)]
mod tests {
    use holdgate_core::Principal;
    use holdgate_core::principal::PrincipalKind;
    use holdgate_store::clock::SystemClock;
    use holdgate_store::sqlite::{OpenOptions, SqliteStore};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::{Authority as _, Local, Role, Service};

    #[tokio::test]
    async fn what_was_missed_is_counted_from_the_store_and_nothing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let options =
            OpenOptions { path: dir.path().join("holdgate.db"), clock: Arc::new(SystemClock::new()) };
        let store = SqliteStore::open(options).unwrap();
        let principal = Principal::new("agent".parse().unwrap(), PrincipalKind::Administrator, "agent");
        let hash = holdgate_core::Digest::of(b"token");
        let put = holdgate_store::Op::PutCredential { hash, principal: principal.clone(), recovers: false };
        store.execute(put).await.unwrap();
        let role = Role::Gateway { instance: "default".to_owned(), url: "http://127.0.0.1:1".to_owned() };
        let service = Service::start(store.clone(), role).await.unwrap();
        let agent = Local::new(service, principal);
        // More than one page of facts.
        for n in 0..CATCH_UP {
            let request = serde_json::json!({ "kind": "exec", "content": { "argv": ["ls", n.to_string()] } });
            let asked = agent.create(serde_json::from_value(request).unwrap(), None).await.unwrap();
            if n < 100 {
                let id = asked.approval.id;
                agent.cancel(&id, serde_json::from_str("{}").unwrap()).await.unwrap();
            }
        }
        let facts = store.events(0, 10_000).await.unwrap();
        assert!(facts.len() > CATCH_UP as usize);

        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let mut seen = Some(0);
        assert_eq!(catch_up(&*store, &mut seen).await, Ok(true));
        assert_eq!(seen, facts.last().map(|fact| fact.seq));
        assert_eq!(catch_up(&*store, &mut seen).await, Ok(true));
        let text = metrics.render();
        for expected in [
            format!(r#"holdgate_requests_total{{kind="exec"}} {CATCH_UP}"#),
            r#"holdgate_terminals_total{kind="exec",status="cancelled",reason="withdrawn"} 100"#.to_owned(),
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}: {text}");
        }
        assert_eq!(catch_up(&*store, &mut None).await, Ok(false), "nobody knows where to begin");
    }
}
