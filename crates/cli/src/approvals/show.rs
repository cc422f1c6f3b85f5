//! One approval as text: the headline, who asks and why, the whole action, where it stands and how to answer.
//!
//! Every text of a record is safe to display already; the requester's own words are marked as such.

use std::fmt::Write as _;

use holdgate_core::approval::{Outcome, Status, TerminalReason};
use holdgate_core::requirement::Decision;
use holdgate_wire::Approval;
use holdgate_wire::approval::Identity;

use crate::screen::{Colour, Screen, columns};
use crate::when;

/// Labels up to this width share a line with their value.
const LABEL: usize = 24;
/// Spaces before a fact.
const INDENT: usize = 2;

/// The whole record, as of `now_ms`. `ourselves` begins the commands that answer it.
pub fn text(approval: &Approval, screen: Screen, now_ms: i64, ourselves: &str) -> String {
    let shown = &approval.presentation;
    let mut text = String::new();
    block(&mut text, screen, 0, &[Row::new(">", &shown.headline)], Some(Colour::Bold));
    for flag in &shown.flags {
        block(&mut text, screen, 0, &[Row::new("!", flag)], Some(Colour::Yellow));
    }
    text.push('\n');
    block(&mut text, screen, 0, &standing(approval, now_ms), None);
    if !shown.facts.is_empty() {
        text.push_str("\nThe whole action:\n");
        let facts: Vec<_> = shown.facts.iter().map(|fact| Row::new(&fact.label, &fact.text)).collect();
        block(&mut text, screen, INDENT, &facts, None);
    }
    if approval.status == Status::Pending {
        text.push_str("\nTo answer:\n");
        for command in ["allow", "deny"] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {ourselves} approvals {command} {}", approval.id);
        }
    }
    text
}

/// How a record stands, in a few words.
pub fn status(approval: &Approval) -> String {
    match (approval.status, approval.terminal_reason, &approval.receipt) {
        (Status::Allowed, _, Some(receipt)) => match receipt.outcome {
            Outcome::Succeeded => "allowed; it ran and succeeded".to_owned(),
            Outcome::Failed => "allowed; it failed".to_owned(),
            Outcome::Unknown => "allowed; its outcome is unknown, and a person must look".to_owned(),
        },
        (Status::Allowed, _, None) if approval.claim.is_some() => {
            "allowed; it was claimed and has not reported back".to_owned()
        }
        (Status::Allowed, _, None) if approval.revocation.is_some() => {
            "allowed, then taken back; nobody can claim it".to_owned()
        }
        (Status::Allowed, _, None) => "allowed; not claimed yet".to_owned(),
        (status, Some(reason), _) if reason != TerminalReason::User => {
            format!("{} ({})", status.as_str(), reason.as_str())
        }
        (status, ..) => status.as_str().to_owned(),
    }
}

/// Who ended a record, when and why.
pub fn end(approval: &Approval) -> String {
    let by = approval.resolver.as_ref().map(|by| format!(" by {}", name(by))).unwrap_or_default();
    let at = approval.resolved_at_ms.map(|at| format!(" at {}", when::local(at))).unwrap_or_default();
    let reason = approval.answer_reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    let status = match approval.terminal_reason {
        Some(why) if why != TerminalReason::User => {
            format!("{} ({})", approval.status.as_str(), why.as_str())
        }
        _ => approval.status.as_str().to_owned(),
    };
    let taken_back =
        approval.revocation.as_ref().map(|taken| format!(", then taken back by {}", name(&taken.by)));
    format!("{status}{by}{at}{reason}{}", taken_back.unwrap_or_default())
}

/// How a record stands, in one word of a list and its colour. Of an allow: what became of it.
pub fn word(approval: &Approval) -> (&'static str, Colour) {
    let result = approval.receipt.as_ref().map(|receipt| receipt.outcome);
    match (approval.status, result) {
        (Status::Pending, _) => ("pending", Colour::Yellow),
        (Status::Allowed, Some(Outcome::Succeeded)) => ("succeeded", Colour::Green),
        (Status::Allowed, Some(Outcome::Failed)) => ("failed", Colour::Yellow),
        (Status::Allowed, Some(Outcome::Unknown)) => ("unknown", Colour::Yellow),
        (Status::Allowed, None) if approval.claim.is_some() => ("running", Colour::Green),
        (Status::Allowed, None) if approval.revocation.is_some() => ("revoked", Colour::Red),
        (Status::Allowed, None) => ("allowed", Colour::Green),
        (status @ (Status::Denied | Status::Expired | Status::Cancelled), _) => {
            (status.as_str(), Colour::Red)
        }
    }
}

/// How many of the people that it takes have allowed it, where it waits for several.
pub fn tally(approval: &Approval) -> Option<String> {
    let needed = approval.requirement.approvals;
    let has_several = approval.status == Status::Pending && needed > 1;
    has_several.then(|| format!("{}/{needed}", given(approval, Decision::AllowOnce)))
}

/// How many of the people that an answer takes have given it.
pub fn needed(approval: &Approval, decision: Decision) -> String {
    let needed = match decision {
        Decision::Deny => approval.requirement.denials,
        _ => approval.requirement.approvals,
    };
    format!("{} of {needed}", given(approval, decision))
}

fn given(approval: &Approval, decision: Decision) -> usize {
    approval.votes.iter().filter(|vote| vote.decision == decision).count()
}

/// What it takes to end a request, in words.
fn takes(approval: &Approval) -> String {
    let requirement = &approval.requirement;
    let decisions: Vec<_> = requirement.allowed_decisions.iter().map(|decision| decision.as_str()).collect();
    let decisions = decisions.join(" or ");
    let people = match (requirement.approvals, requirement.denials) {
        (1, 1) => format!("one reviewer: {decisions}"),
        (allow, deny) => format!("{allow} people to allow, {deny} to deny: {decisions}"),
    };
    let reason = if requirement.reason_required { ", with a reason" } else { "" };
    let other = if requirement.requester_may_decide { "" } else { "; not the person who asked" };
    format!("{people}{reason}{other}")
}

fn name(identity: &Identity) -> String {
    // A device's label says whose it is already.
    match identity.kind.as_str() {
        "device" => identity.label.clone(),
        kind => format!("{} ({kind})", identity.label),
    }
}

/// Everything but the action: where it stands, who asked, what it takes, what became of it.
fn standing(approval: &Approval, now_ms: i64) -> Vec<Row> {
    let mut rows = Rows::default();
    rows.push("Status", Some(status(approval)));
    if approval.status == Status::Pending {
        rows.push(
            "Time left",
            Some(format!("{}; silence denies", when::left(approval.expires_at_ms, now_ms))),
        );
    }
    rows.push("Kind", Some(approval.kind.as_str().to_owned()));
    // A record that does not decode knows neither its times nor its requester.
    if approval.terminal_reason != Some(TerminalReason::StorageCorrupt) {
        rows.push("Asked by", Some(name(&approval.requester)));
        rows.push("Asked at", Some(when::local(approval.created_at_ms)));
        rows.push("Expires at", Some(when::local(approval.expires_at_ms)));
    }
    let source = &approval.source;
    let quoted = |text: &Option<String>| text.as_ref().map(|text| format!("\"{text}\""));
    rows.push("Agent says it is", quoted(&source.agent));
    rows.push("Session", source.session.clone());
    rows.push("Task", source.task_id.clone());
    rows.push("Tool call", source.tool_call_id.clone());
    rows.push("Agent's reason", quoted(&approval.request_reason));
    rows.push("Takes", Some(takes(approval)));
    for reviewers in &approval.requirement.reviewers {
        rows.push("Decided by one of", Some(reviewers.join(", ")));
    }
    for vote in &approval.votes {
        let reason = vote.reason.as_ref().map(|reason| format!(": \"{reason}\"")).unwrap_or_default();
        let at = when::local(vote.at_ms);
        rows.push(
            "Answer",
            Some(format!("{} by {} at {at}{reason}", vote.decision.as_str(), name(&vote.voter))),
        );
    }
    if approval.is_terminal() && approval.votes.is_empty() {
        rows.push("Ended", Some(end(approval)));
    }
    rows.push(
        "Taken back",
        approval.revocation.as_ref().map(|revoked| {
            let reason = revoked.reason.as_ref().map(|reason| format!(": \"{reason}\"")).unwrap_or_default();
            format!("by {} at {}{reason}", name(&revoked.by), when::local(revoked.at_ms))
        }),
    );
    rows.push(
        "Claimed",
        approval.claim.as_ref().map(|claim| format!("{} as {}", when::local(claim.at_ms), claim.claim_id)),
    );
    rows.push(
        "Receipt",
        approval.receipt.as_ref().map(|receipt| {
            let detail = receipt.detail.as_ref().map(|detail| format!(": \"{detail}\"")).unwrap_or_default();
            format!("{} at {}{detail}", receipt.outcome.as_str(), when::local(receipt.at_ms))
        }),
    );
    rows.push("Place", Some(approval.boundary.clone()).filter(|boundary| !boundary.is_empty()));
    rows.push_whole("Id", Some(&approval.id));
    rows.push_whole("Digest", Some(&approval.digest));
    rows.push_whole("Page", approval.url.as_ref());
    rows.0
}

/// A label and what stands beside it.
struct Row {
    label: String,
    text: String,
    /// Whether it keeps within its column. What people copy is our own and stays in one piece.
    is_wrapped: bool,
}

impl Row {
    fn new(label: &str, text: &str) -> Self {
        Self { label: label.to_owned(), text: text.to_owned(), is_wrapped: true }
    }
}

#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn push(&mut self, label: &str, text: Option<String>) {
        self.0.extend(text.map(|text| Row::new(label, &text)));
    }

    fn push_whole(&mut self, label: &str, text: Option<&String>) {
        self.0.extend(text.map(|text| Row { is_wrapped: false, ..Row::new(label, text) }));
    }
}

/// Labels in one column, values in the next; what does not fit goes on below its own value.
fn block(out: &mut String, screen: Screen, indent: usize, rows: &[Row], colour: Option<Colour>) {
    let widths = rows.iter().map(|row| columns(&row.label)).filter(|width| *width <= LABEL);
    let width = widths.max().unwrap_or_default();
    let gap = if width == 0 { 0 } else { width + 2 };
    for Row { label, text, is_wrapped } in rows {
        let is_long = columns(label) > LABEL;
        if is_long {
            for line in screen.lines(label, indent) {
                line_of(out, indent, "", 0, &line);
            }
        }
        let lines = if *is_wrapped { screen.lines(text, indent + gap) } else { vec![text.clone()] };
        for (at, line) in lines.into_iter().enumerate() {
            let label = if at == 0 && !is_long { label.as_str() } else { "" };
            let line = colour.map_or(line.clone(), |colour| screen.paint(colour, &line));
            line_of(out, indent, label, gap, &line);
        }
    }
}

fn line_of(out: &mut String, indent: usize, label: &str, gap: usize, text: &str) {
    let padding = gap.saturating_sub(columns(label));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}{label}{}{text}", " ".repeat(indent), " ".repeat(padding));
}
