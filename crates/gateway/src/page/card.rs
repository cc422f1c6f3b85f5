//! The card of one approval: what would happen, who asks, and the two answers.
//!
//! Owns the order in which a reviewer reads and the words around the record. Every text of the record is already safe
//! (visible escapes); the raw content is never shown. What changes while the page is open is `approve.js`'s.

use holdgate_core::Kind;
use holdgate_core::approval::Status;
use holdgate_core::limits::REASON_CHARS;
use holdgate_core::requirement::Decision;
use holdgate_wire::Approval;
use maud::{Markup, PreEscaped, html};

use super::text::{line_count, sentence, verbatim};

/// What the status line says before the module has anything newer.
pub(super) fn status_title(approval: &Approval) -> &'static str {
    match approval.status {
        Status::Pending => "Waiting for your answer",
        Status::Allowed => "Approved",
        Status::Denied => "Denied",
        Status::Expired => "Expired",
        Status::Cancelled => "Cancelled",
    }
}

/// The whole `<main>` of an approval.
pub(super) fn card(approval: &Approval, now_ms: i64) -> Markup {
    let is_pending = approval.status == Status::Pending;
    let state = if is_pending { "loading" } else { approval.status.as_str() };
    html! {
        main id="approval" data-id=(approval.id) data-state=(state) data-digest=(approval.digest) {
            div.card {
                section.status id="status" aria-live="polite" aria-atomic="true" {
                    h2 id="status-title" tabindex="-1" { (status_title(approval)) }
                    div id="status-detail" {}
                    ol id="progress" hidden {}
                }
                div.part { h1.verbatim { (sentence(&approval.presentation.headline)) } }
                (about(approval, now_ms))
                (flags(approval))
                div.part { (action(approval)) }
                (agent_words(approval))
                (fine_print(approval, is_pending))
                @if is_pending { (decide(approval)) }
            }
        }
        script type="application/json" id="record" { (PreEscaped(record_json(approval, now_ms))) }
    }
}

/// Who asks, why it stopped, and what time is left.
fn about(approval: &Approval, now_ms: i64) -> Markup {
    let source = &approval.source;
    html! {
        dl.part.about {
            div {
                dt { "Asked by" }
                dd {
                    // Who signed in comes first and is ours; what the agent calls itself is only its word.
                    span.verbatim { (verbatim(&approval.requester.label)) }
                    @if let Some(agent) = &source.agent {
                        div.quiet { "says it is " span.verbatim { "“" (verbatim(agent)) "”" } }
                    }
                    @if let Some(session) = &source.session { div.quiet { "session " (verbatim(session)) } }
                    @if let Some(task) = &source.task_id { div.quiet { "task " (verbatim(task)) } }
                }
            }
            @if let Some(takes) = what_it_takes(approval) {
                div {
                    dt { "What it takes" }
                    dd { (takes) }
                }
            }
            div {
                dt { "Why it stopped" }
                dd { (why_it_stopped(approval.kind)) }
            }
            @if approval.status == Status::Pending {
                div.deadline {
                    dt { "Time left" }
                    dd {
                        span id="countdown" role="timer" { (time_left(approval.expires_at_ms - now_ms)) }
                        div.quiet { "No answer means no." }
                    }
                }
            }
        }
    }
}

/// What it takes beyond one reviewer's answer.
fn what_it_takes(approval: &Approval) -> Option<Markup> {
    let required = &approval.requirement;
    let lists = &required.reviewers;
    if required.approvals == 1 && required.denials == 1 && lists.is_empty() {
        return None;
    }
    Some(html! {
        @if required.approvals > 1 { div { (required.approvals) " different people must allow it." } }
        @if required.denials > 1 { div { (required.denials) " people must deny it to end it." } }
        @for list in lists {
            div.quiet { "reviewed by " span.verbatim { (verbatim(&list.join(", "))) } }
        }
        @if required.approvals > 1 && !required.requester_may_decide && approval.requester.kind != "agent" {
            div.quiet { "who asked is not one of them" }
        }
    })
}

fn why_it_stopped(kind: Kind) -> &'static str {
    match kind {
        Kind::Exec => "Commands sent through Holdgate wait for a person.",
        Kind::Plugin => "A plugin asked for a person’s decision.",
        Kind::Tool => "This tool waits for a person before each call.",
        Kind::Dispatch => "The run waits for a person before it hands out this task.",
        Kind::Round => "The run waits for a person before its next round of tasks.",
        Kind::Plan => "The run waits for a person before any of this plan runs.",
    }
}

/// The time left in words. `approve.js` says it the same way.
fn time_left(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600, seconds / 60);
    if days >= 2 {
        format!("{days} days {} h", hours % 24)
    } else if hours >= 1 {
        format!("{hours} h {} min", minutes % 60)
    } else {
        format!("{minutes}:{:02}", seconds % 60)
    }
}

fn flags(approval: &Approval) -> Markup {
    html! {
        @if !approval.presentation.flags.is_empty() {
            div.part {
                ul.flags aria-label="Warnings" {
                    @for flag in &approval.presentation.flags {
                        li {
                            svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2"
                                stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" {
                                path d="M12 3.5 22 20.5H2Z M12 10v4.5 M12 17.4v.1" {}
                            }
                            span.verbatim { (sentence(flag)) }
                        }
                    }
                }
            }
        }
    }
}

/// The whole action. Its last element is what must have been on screen before it can be approved.
fn action(approval: &Approval) -> Markup {
    let shown = &approval.presentation;
    let title = match shown.kind {
        Kind::Exec => "The whole command",
        Kind::Tool => "The whole tool call",
        Kind::Plugin | Kind::Dispatch | Kind::Round | Kind::Plan => "The whole action",
    };
    let command = shown.command_text.as_deref();
    // The command is also the first of the facts; once is enough. Only that one: another may say the same words.
    let facts = match (command, shown.facts.split_first()) {
        (Some(command), Some((first, rest))) if first.text == command => rest,
        _ => &shown.facts[..],
    };
    html! {
        section id="action" aria-labelledby="action-title" {
            header {
                h3 id="action-title" { (title) }
                @if let Some(command) = command { (lines(command)) }
            }
            @if let Some(command) = command {
                div.command.verbatim { (verbatim(command)) }
            }
            dl.facts {
                @for fact in facts {
                    div {
                        dt.verbatim { (verbatim(&fact.label)) (lines(&fact.text)) }
                        dd.verbatim { (verbatim(&fact.text)) }
                    }
                }
            }
            div id="action-end" {}
        }
    }
}

/// How many lines to expect, where there are several: a long gap must not hide the last.
fn lines(text: &str) -> Markup {
    let lines = line_count(text);
    html! { @if lines > 1 { span.count { (lines) " lines" } } }
}

fn agent_words(approval: &Approval) -> Markup {
    html! {
        @if let Some(words) = &approval.request_reason {
            div.part {
                blockquote.words {
                    div.label { "In the agent’s own words, not checked" }
                    p { (verbatim(words)) }
                }
            }
        }
    }
}

fn fine_print(approval: &Approval, is_pending: bool) -> Markup {
    html! {
        @if is_pending {
            div.part.field.reason {
                label for="reason" {
                    "Reason "
                    @if approval.requirement.reason_required { span { "(required)" } }
                    @else { span { "(optional, kept with the answer)" } }
                }
                textarea #reason rows="1" maxlength=(REASON_CHARS) required[approval.requirement.reason_required] {}
            }
        }
        div.part.fine.last {
            p {
                @if is_pending { "Your answer counts for exactly this action: " } @else { "Digest of the action: " }
                code { (approval.digest) }
            }
            p { "Approval " code.verbatim { (verbatim(&approval.id)) } }
            p { "Place in its run or caller " code.verbatim { (verbatim(&approval.boundary)) } }
        }
        @if is_pending {
            noscript {
                div.box {
                    "Deciding on this page needs JavaScript. In a terminal:"
                    code { "holdgate approvals allow " (approval.id) }
                    code { "holdgate approvals deny " (approval.id) }
                }
            }
        }
    }
}

fn decide(approval: &Approval) -> Markup {
    let may_allow = approval.requirement.allowed_decisions.contains(&Decision::AllowOnce);
    html! {
        div.decide {
            p #now aria-hidden="true" {}
            p #note role="alert" {}
            @if may_allow { p #hint hidden { "Scroll to the end of the action to approve." } }
            div.pair {
                button #deny type="button" disabled { "Deny" }
                @if may_allow { button.go #allow-once type="button" disabled aria-describedby="hint" { "Approve once" } }
            }
        }
    }
}

/// What the module starts from: the record without its content and its presentation, both of which are on the page.
/// `<` is written as an escape, so that no text in it can end the element.
fn record_json(approval: &Approval, now_ms: i64) -> String {
    let record = serde_json::json!({
        "nowMs": now_ms,
        "approval": {
            "id": approval.id,
            "status": approval.status,
            "digest": approval.digest,
            "expiresAtMs": approval.expires_at_ms,
            "requirement": approval.requirement,
            "votes": approval.votes,
            "yourVote": approval.your_vote,
            "decision": approval.decision,
            "terminalReason": approval.terminal_reason,
            "resolvedAtMs": approval.resolved_at_ms,
            "resolver": approval.resolver,
            "revocation": approval.revocation,
            "claim": approval.claim,
            "receipt": approval.receipt,
        },
    });
    record.to_string().replace('<', "\\u003c")
}
