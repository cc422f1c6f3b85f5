//! What the authority tells operators: content-free logs and counters of every transition.
//!
//! Owns no decision, and nothing waits for it. Ids, kinds, reasons and times only: never an action, a reason or a name.

use std::sync::Arc;

use holdgate_core::approval::{Binding, TerminalReason};
use holdgate_core::{Event, Refusal};
use holdgate_store::{Committed, Notice, Outcome, Store};
use tokio::sync::broadcast::error::RecvError;

/// Observes every commit from now on, until the store is gone.
pub(crate) fn start(store: &Arc<dyn Store>) {
    let mut notices = store.notices();
    tokio::spawn(async move {
        loop {
            match notices.recv().await {
                Ok(Notice::Changed(committed)) => {
                    committed.events.iter().for_each(|event| transition(&committed, event));
                }
                Ok(Notice::Corrupt(id)) => {
                    metrics::counter!("holdgate_corrupt_total").increment(1);
                    tracing::error!(%id, "a record does not decode and counts as denied");
                }
                Ok(Notice::Identity(_)) => {}
                Err(RecvError::Lagged(missed)) => {
                    metrics::counter!("holdgate_transitions_unobserved_total").increment(missed);
                }
                Err(RecvError::Closed) => return,
            }
        }
    });
}

fn transition(committed: &Committed, event: &Event) {
    let approval = &committed.approval;
    let kind = approval.kind.as_str();
    match event {
        Event::Opened => {
            metrics::counter!("holdgate_requests_total", "kind" => kind).increment(1);
            #[expect(clippy::cast_precision_loss, reason = "an audience has at most 64 sessions")]
            metrics::histogram!("holdgate_audience_sessions").record(approval.audience.len() as f64);
            told(committed, "pending", "", 0);
        }
        Event::Voted { decision } => {
            metrics::counter!("holdgate_votes_total", "kind" => kind, "decision" => decision.as_str())
                .increment(1);
        }
        Event::Resolved { status, reason } => {
            let (status, reason_name) = (status.as_str(), reason.as_str());
            metrics::counter!("holdgate_terminals_total", "kind" => kind, "status" => status, "reason" => reason_name)
                .increment(1);
            let latency_ms = committed.at.ms_after(approval.created_at);
            #[expect(clippy::cast_precision_loss, reason = "30 days in milliseconds are exact")]
            metrics::histogram!("holdgate_request_to_terminal_seconds", "kind" => kind)
                .record(latency_ms as f64 / 1_000.0);
            if matches!(reason, TerminalReason::GatewayRestart | TerminalReason::CallerLost) {
                metrics::counter!("holdgate_orphans_total", "reason" => reason_name).increment(1);
            }
            told(committed, status, reason_name, latency_ms);
        }
        Event::Revoked => {
            metrics::counter!("holdgate_revocations_total", "kind" => kind).increment(1);
            told(committed, "revoked", "", committed.at.ms_after(approval.created_at));
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
fn told(committed: &Committed, status: &str, reason: &str, latency_ms: i64) {
    let approval = &committed.approval;
    let session = approval.audience.first().map_or("", String::as_str);
    let run = match &approval.binding {
        Binding::Checkpoint(run) => run.as_str(),
        Binding::Runtime(_) => "",
    };
    tracing::info!(
        target: "holdgate::transition",
        id = %approval.id, kind = approval.kind.as_str(), session, run, status, reason, latency_ms, "transition"
    );
}

/// Counts how an answer fared against others.
pub(crate) fn race(outcome: &Outcome) {
    let fared = match outcome {
        Outcome::Committed(_) => "winner",
        Outcome::Duplicate(_) => "idempotent-retry",
        Outcome::Refused(Refusal::AlreadyDecided, _) => "conflict",
        Outcome::Refused(Refusal::Expired, _) => "expired",
        Outcome::Refused(Refusal::Cancelled, _) => "cancelled",
        Outcome::Refused(..) => "refused",
    };
    metrics::counter!("holdgate_resolve_races_total", "outcome" => fared).increment(1);
}
