//! What callers are told of an approval.

use holdgate_core::access::{Access, access};
use holdgate_core::approval::{self as domain, Outcome, Status, TerminalReason};
use holdgate_core::audience::session_label;
use holdgate_core::presentation::{Fact, Presentation, masked, visible};
use holdgate_core::requirement::Decision;
use holdgate_core::{Actor, Kind, Principal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// An approval as one reader sees it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its durable id.
    pub id: String,
    /// A short name for places where the id does not fit.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Where the caller stopped.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// Where it stands.
    #[schema(value_type = String)]
    pub status: Status,
    /// The action's locator within its run or caller, safe to show. Part of the digest.
    #[serde(default)]
    pub boundary: String,
    /// SHA-256 of the frozen action, 64 hex digits. Every decision and claim names it.
    pub digest: String,
    /// The reviewer page, relative to the gateway.
    pub url_path: String,
    /// The reviewer page, absolute. Only when a gateway serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it became durable, in Unix milliseconds.
    pub created_at_ms: i64,
    /// When silence becomes a deny, in Unix milliseconds.
    pub expires_at_ms: i64,
    /// Who asked, authenticated.
    pub requester: Identity,
    /// The requester's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_reason: Option<String>,
    /// The whole action, safe to show.
    pub presentation: PresentationView,
    /// The frozen content, for who may decide it, when a stored run waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub content: Option<Box<RawValue>>,
    /// What it takes.
    pub requirement: Requirement,
    /// The answers so far.
    pub votes: Vec<Vote>,
    /// The reader's own answer among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub your_vote: Option<Decision>,
    /// Where the request came from, in the requester's words.
    pub source: Source,
    /// The terminal answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub decision: Option<Decision>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub terminal_reason: Option<TerminalReason>,
    /// When it ended, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at_ms: Option<i64>,
    /// Who ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolver: Option<Identity>,
    /// That its allow was taken back before it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<Revocation>,
    /// The claim that spent its allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// What came of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}

/// An identity as records name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    /// `administrator`, `device`, `agent`, `runtime` or `authority`.
    pub kind: String,
    /// What readers call it: of a device, its person and in brackets the name that it gave itself.
    pub label: String,
}

/// What a reviewer is shown. Every text in it is safe to display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PresentationView {
    /// Where the caller stopped.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// Verb, object, blast radius.
    pub headline: String,
    /// The command line, for `exec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_text: Option<String>,
    /// The tool, for `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The whole action, piece by piece.
    pub facts: Vec<FactView>,
    /// What deserves a second look.
    pub flags: Vec<String>,
}

/// One piece of the action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactView {
    /// What it is.
    pub label: String,
    /// Its value.
    pub text: String,
}

/// What it takes to end the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// How many distinct people must allow.
    pub approvals: u32,
    /// How many distinct people must deny to end it.
    #[serde(default = "one")]
    pub denials: u32,
    /// Whether the person who asked may be one of them.
    pub requester_may_decide: bool,
    /// Whether an answer must say why.
    pub reason_required: bool,
    /// The answers that are offered.
    #[schema(value_type = Vec<String>)]
    pub allowed_decisions: Vec<Decision>,
    /// Who may decide: somebody on every one of these lists. Empty when the gateway's usual rules say who.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<Vec<String>>,
}

const fn one() -> u32 {
    1
}

/// That an allow was taken back. The answer stays what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// By whom.
    pub by: Identity,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One reviewer's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The answer.
    #[schema(value_type = String)]
    pub decision: Decision,
    /// Who gave it.
    pub voter: Identity,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a request came from, in the requester's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// The agent's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session: its key for who asked, its label for everybody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The session's id, which changes when the session is reset. Told to who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The run, as the requester calls it. Its end calls the request off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The task within the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The model's id for the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
}

/// The use of an allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The claimer's name for its attempt.
    pub claim_id: String,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// `succeeded`, `failed`, or `unknown` when its holder is gone and never said.
    #[schema(value_type = String)]
    pub outcome: Outcome,
    /// When it became known, in Unix milliseconds.
    pub at_ms: i64,
    /// More, in the claimer's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The answer to a decision.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    /// False when the same answer stood already.
    pub applied: bool,
    /// The record as it is now.
    pub approval: Approval,
}

/// One page of a list, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalPage {
    /// The approvals.
    pub items: Vec<Approval>,
    /// Where the next page begins; null on the last.
    pub next_cursor: Option<String>,
}

/// Where this gateway's pages are: an origin, if one serves them, and the path that all of them begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    origin: Option<String>,
    base_path: String,
}

impl Links {
    /// Pages that are served under `url`, like `https://approve.example.org/gate`.
    pub fn under(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        let after_scheme = url.find("://").map_or(0, |at| at + 3);
        let path_at = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
        Self { origin: Some(url[..path_at].to_owned()), base_path: url[path_at..].to_owned() }
    }

    /// The path that every page begins with: empty, or like `/gate`.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Everything up to the base path's end, if pages are served.
    pub fn base(&self) -> Option<String> {
        self.origin.as_ref().map(|origin| format!("{origin}{}", self.base_path))
    }

    /// The path of an approval's page.
    pub fn path(&self, id: &str) -> String {
        format!("{}/approve/{}", self.base_path, segment(id))
    }

    /// The address of an approval's page, if pages are served.
    pub fn url(&self, id: &str) -> Option<String> {
        self.origin.as_ref().map(|origin| format!("{origin}{}", self.path(id)))
    }
}

/// A text as one segment of a path, percent-encoded as ECMAScript's `encodeURIComponent` does it.
pub fn segment(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

impl Approval {
    /// What `reader` is told of `approval`: all that reviewers see, or only how it stands if it may be answered and not
    /// read.
    pub fn of(approval: &domain::Approval, reader: &Principal, links: &Links) -> Self {
        let access = access(approval, reader);
        let end = approval.end();
        let content =
            approval.content_for(reader).and_then(|c| RawValue::from_string(c.as_str().to_owned()).ok());
        let told = Self {
            id: approval.id.to_string(),
            reference: approval.reference(),
            kind: approval.kind,
            status: approval.status(),
            boundary: masked(&approval.boundary),
            digest: approval.digest.to_hex(),
            url: links.url(approval.id.as_str()),
            url_path: links.path(approval.id.as_str()),
            created_at_ms: approval.created_at.as_ms(),
            expires_at_ms: approval.expires_at.as_ms(),
            requester: (&approval.requester).into(),
            request_reason: safe(&approval.reason),
            presentation: (&approval.presentation).into(),
            content,
            requirement: (&approval.requirement).into(),
            votes: approval.votes.iter().map(Vote::from).collect(),
            your_vote: approval.vote_of(reader).map(|vote| vote.decision),
            source: Source::of(&approval.source, access),
            decision: approval.decision(),
            terminal_reason: end.map(|end| end.reason),
            resolved_at_ms: end.map(|end| end.at.as_ms()),
            resolver: end.map(|end| (&end.by).into()),
            revocation: approval.revocation().map(Revocation::from),
            claim: approval.claim().map(Claim::from),
            receipt: approval.claim().and_then(|claim| claim.receipt.as_ref()).map(Receipt::from),
        };
        if access.may_read() { told } else { told.standing() }
    }

    /// The same without the action, and without anybody's words.
    fn standing(self) -> Self {
        Self {
            boundary: String::new(),
            request_reason: None,
            presentation: PresentationView {
                kind: self.kind,
                headline: "The action is not shown to this credential".to_owned(),
                command_text: None,
                tool_name: None,
                facts: Vec::new(),
                flags: Vec::new(),
            },
            content: None,
            requirement: Requirement { reviewers: Vec::new(), ..self.requirement },
            votes: Vec::new(),
            source: Source::default(),
            revocation: None,
            claim: None,
            receipt: None,
            ..self
        }
    }

    /// What is told of a record that does not decode: nothing but that it counts as denied.
    pub fn corrupt(id: &str, links: &Links) -> Self {
        let headline = "This record cannot be read; it counts as denied";
        let authority = Actor::from(&Principal::authority());
        Self {
            id: id.to_owned(),
            reference: String::new(),
            kind: Kind::Plugin,
            status: Status::Denied,
            boundary: String::new(),
            digest: "0".repeat(64),
            url_path: links.path(id),
            url: links.url(id),
            created_at_ms: 0,
            expires_at_ms: 0,
            requester: (&authority).into(),
            request_reason: None,
            presentation: PresentationView {
                kind: Kind::Plugin,
                headline: headline.to_owned(),
                command_text: None,
                tool_name: None,
                facts: Vec::new(),
                flags: vec!["The stored row is damaged. The gateway's log says how.".to_owned()],
            },
            content: None,
            requirement: Requirement {
                approvals: 1,
                denials: 1,
                requester_may_decide: false,
                reason_required: false,
                allowed_decisions: vec![Decision::Deny],
                reviewers: Vec::new(),
            },
            votes: Vec::new(),
            your_vote: None,
            source: Source::default(),
            decision: Some(Decision::Deny),
            terminal_reason: Some(TerminalReason::StorageCorrupt),
            resolved_at_ms: None,
            resolver: Some((&authority).into()),
            revocation: None,
            claim: None,
            receipt: None,
        }
    }

    /// Whether the request has ended.
    pub fn is_terminal(&self) -> bool {
        self.status != Status::Pending
    }

    /// The reason that came with the answer, if one did.
    pub fn answer_reason(&self) -> Option<&str> {
        self.votes.last().and_then(|vote| vote.reason.as_deref())
    }
}

fn safe(text: &Option<String>) -> Option<String> {
    text.as_deref().map(masked)
}

impl From<&Actor> for Identity {
    fn from(actor: &Actor) -> Self {
        Self { kind: actor.kind.as_str().to_owned(), label: actor.name() }
    }
}

impl From<&Presentation> for PresentationView {
    fn from(shown: &Presentation) -> Self {
        Self {
            kind: shown.kind,
            headline: shown.headline.clone(),
            command_text: shown.command_text.clone(),
            tool_name: shown.tool_name.clone(),
            facts: shown.facts.iter().map(FactView::from).collect(),
            flags: shown.flags.clone(),
        }
    }
}

impl From<&Fact> for FactView {
    fn from(fact: &Fact) -> Self {
        Self { label: fact.label.clone(), text: fact.text.clone() }
    }
}

impl From<&domain::Vote> for Vote {
    fn from(vote: &domain::Vote) -> Self {
        let voter = (&vote.voter).into();
        Self { decision: vote.decision, voter, at_ms: vote.at.as_ms(), reason: safe(&vote.reason) }
    }
}

impl Source {
    fn of(source: &domain::Source, access: Access) -> Self {
        let asked = access == Access::Request;
        let label = |key: &Option<String>| key.as_deref().map(|key| masked(session_label(key)));
        Self {
            agent: safe(&source.agent),
            session: if asked { safe(&source.session) } else { label(&source.session) },
            session_id: safe(&source.session_id).filter(|_| asked),
            run_id: safe(&source.run_id),
            task_id: safe(&source.task_id),
            tool_call_id: safe(&source.tool_call_id),
            tool_name: safe(&source.tool_name),
        }
    }
}

impl From<&holdgate_core::requirement::Requirement> for Requirement {
    fn from(requirement: &holdgate_core::requirement::Requirement) -> Self {
        let lists = requirement.reviewers.iter();
        Self {
            approvals: requirement.approvals,
            denials: requirement.denials,
            requester_may_decide: requirement.requester_may_decide,
            reason_required: requirement.reason_required,
            allowed_decisions: requirement.allowed_decisions.clone(),
            reviewers: lists
                .map(|list| list.reviewers().iter().map(|r| visible(&r.to_string())).collect())
                .collect(),
        }
    }
}

impl From<&domain::Revocation> for Revocation {
    fn from(revocation: &domain::Revocation) -> Self {
        Self { at_ms: revocation.at.as_ms(), by: (&revocation.by).into(), reason: safe(&revocation.reason) }
    }
}

impl From<&domain::Claim> for Claim {
    fn from(claim: &domain::Claim) -> Self {
        Self { claim_id: claim.id.to_string(), at_ms: claim.at.as_ms() }
    }
}

impl From<&domain::Receipt> for Receipt {
    fn from(receipt: &domain::Receipt) -> Self {
        Self { outcome: receipt.outcome, at_ms: receipt.at.as_ms(), detail: safe(&receipt.detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_any_id_is_one_segment_under_the_gateways_base_path() {
        for (base, id, path, url) in [
            (None, "apr_1", "/approve/apr_1", None),
            (Some("http://127.0.0.1:1"), "apr_1", "/approve/apr_1", Some("http://127.0.0.1:1/approve/apr_1")),
            (
                Some("https://gate.example/a/b"),
                "plugin:9b",
                "/a/b/approve/plugin%3A9b",
                Some("https://gate.example/a/b/approve/plugin%3A9b"),
            ),
            (
                Some("https://g/"),
                "a b/c?.js",
                "/approve/a%20b%2Fc%3F.js",
                Some("https://g/approve/a%20b%2Fc%3F.js"),
            ),
            (Some("https://g/x/"), "é%", "/x/approve/%C3%A9%25", Some("https://g/x/approve/%C3%A9%25")),
        ] {
            let links = base.map(Links::under).unwrap_or_default();
            assert_eq!(links.path(id), path);
            assert_eq!(links.url(id).as_deref(), url);
        }
    }
}
