//! The methods, by name. Each is an adapter: it reads parameters, asks the service, and says the answer in the
//! protocol's words.
//!
//! Owns which method needs which scope, and what a refusal is called. The families are in files of their own.

mod canonical;
mod exec;
mod legacy;
mod own;
mod plugin;
mod sessions;

use std::sync::{Arc, Mutex, PoisonError};

use holdgate_authority::{Error, Local};
use holdgate_core::Principal;
use holdgate_wire::Code;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Rpc;
use super::frame::{Failure, Request};
use super::session::Session;
use super::socket::Replies;

/// Every method that is served.
pub(crate) const METHODS: &[&str] = &[
    "health",
    "approval.get",
    "approval.resolve",
    "approval.history",
    "approval.list",
    "approval.request",
    "approval.wait",
    "approval.decide",
    "approval.claim",
    "approval.settle",
    "approval.cancel",
    "approval.revoke",
    "exec.approval.request",
    "exec.approval.get",
    "exec.approval.list",
    "exec.approval.waitDecision",
    "exec.approval.resolve",
    "plugin.approval.request",
    "plugin.approval.list",
    "plugin.approval.waitDecision",
    "plugin.approval.resolve",
    "openclaw.approval.list",
    "sessions.messages.subscribe",
    "sessions.messages.unsubscribe",
];

/// Every event that may come.
pub(crate) const EVENTS: &[&str] = &[
    "connect.challenge",
    "tick",
    "shutdown",
    "session.approval",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
    "approval.voted",
    "approvals.dropped",
];

/// One call on its way through a method.
pub(crate) struct Call<'a> {
    pub(crate) rpc: &'a Rpc,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) principal: Arc<Principal>,
    pub(crate) request: &'a Request,
    params: Mutex<Option<Box<RawValue>>>,
    /// How many bytes the parameters have as they were written.
    pub(crate) params_bytes: usize,
    pub(crate) replies: &'a Replies,
}

/// Answers a call.
pub(crate) async fn call(rpc: &Rpc, session: &Arc<Session>, mut request: Request, replies: &Replies) {
    let principal = session.principal();
    let params = request.params.take();
    let params_bytes = params.as_deref().map_or(0, |params| params.get().len());
    let params = Mutex::new(params);
    let call = Call { rpc, session, principal, request: &request, params, params_bytes, replies };
    if let Some(answer) = dispatch(&call).await {
        // A connection that is gone needs no answer.
        let _ = replies.send(&request.id, answer).await;
    }
}

/// `None` for a method that has sent its answers itself, because it has two.
async fn dispatch(call: &Call<'_>) -> Option<Result<Value, Failure>> {
    let method = call.request.method.as_str();
    if method == "health" {
        return Some(Ok(json!({ "ok": true, "status": "live" })));
    }
    if !METHODS.contains(&method) {
        let is_admin = call.principal.is_admin();
        return Some(Err(if is_admin {
            Failure::invalid(format!("unknown method: {method}"))
        } else {
            // Who may not administer is not told what there is.
            Failure::missing_scope("operator.admin")
        }));
    }
    if !method.starts_with("sessions.")
        && let Err(failure) = call.check_scope(method)
    {
        return Some(Err(failure));
    }
    Some(match method {
        "approval.get" => canonical::get(call).await,
        "approval.resolve" => canonical::resolve(call).await,
        "approval.history" => canonical::history(call).await,
        "exec.approval.request" => return exec::request(call).await,
        "plugin.approval.request" => return plugin::request(call).await,
        "exec.approval.get" => legacy::get(call).await,
        "exec.approval.list" => legacy::list(call, "exec").await,
        "plugin.approval.list" => legacy::list(call, "plugin").await,
        "exec.approval.waitDecision" => legacy::wait(call, "exec").await,
        "plugin.approval.waitDecision" => legacy::wait(call, "plugin").await,
        "exec.approval.resolve" => legacy::resolve(call, "exec").await,
        "plugin.approval.resolve" => legacy::resolve(call, "plugin").await,
        // Its approvals are of a kind that there is none of here.
        "openclaw.approval.list" => Ok(Value::Array(Vec::new())),
        "sessions.messages.subscribe" => sessions::subscribe(call).await,
        "sessions.messages.unsubscribe" => sessions::unsubscribe(call),
        _ => own::call(call, method).await,
    })
}

impl Call<'_> {
    /// The parameters, to whoever asks first. They are not kept: a call may wait for long after it has read them.
    fn params(&self) -> Option<Box<RawValue>> {
        self.params.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The same identity, over the same service as HTTP.
    pub(crate) fn local(&self) -> Local {
        Local::new(Arc::clone(&self.rpc.service), (*self.principal).clone())
    }

    /// Asking, waiting and the like need what agents have; answering needs a reviewer's scope.
    fn check_scope(&self, method: &str) -> Result<(), Failure> {
        let answers = method == "approval.decide" || method.ends_with("approval.resolve");
        let is_reviewer =
            self.session.has_scope("operator.approvals") || self.session.has_scope("operator.admin");
        // A runtime's right to resolve is the credential's, whatever scopes it asked for.
        let is_runtime = self.principal.kind == holdgate_core::principal::PrincipalKind::Runtime;
        let may_ask = is_reviewer || self.session.has_scope("approvals.request");
        if if answers { is_reviewer || is_runtime } else { may_ask || is_runtime } {
            Ok(())
        } else {
            Err(Failure::missing_scope("operator.approvals"))
        }
    }
}

/// A record that is not there, or not for this caller: byte for byte the same.
pub(crate) fn not_found() -> Failure {
    Failure::invalid("approval not found").with(json!({ "reason": "APPROVAL_NOT_FOUND" }))
}

/// What the service's "no" is called, where a method has no name of its own for it. `operation` is what was tried.
pub(crate) fn failure(error: &Error, operation: &str) -> Failure {
    let Error::Problem(problem) = error else {
        return Failure::new("UNAVAILABLE", format!("approval {operation} unavailable"));
    };
    let reason = problem.code.as_str().to_uppercase();
    match problem.code {
        Code::NotFound => not_found(),
        Code::Unavailable => Failure::later(format!("approval {operation} unavailable")),
        Code::RateLimited | Code::TooManyPending => Failure {
            retry_after_ms: problem.retry_after_ms,
            ..Failure::later(problem.detail.clone()).with(json!({ "reason": reason }))
        },
        Code::NotAReviewer | Code::NotTheRequester | Code::MissingScope | Code::Frozen => {
            Failure::new("FORBIDDEN", problem.detail.clone()).with(json!({ "reason": reason }))
        }
        _ => Failure::invalid(problem.detail.clone()).with(json!({ "reason": reason })),
    }
}
