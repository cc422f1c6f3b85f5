//! Holdgate's own methods: the shapes of HTTP, over this connection. Decisions and claims name the digest.

use std::collections::BTreeMap;
use std::time::Duration;

use holdgate_authority::{Authority, Error};
use holdgate_core::canonical::strict_value;
use holdgate_core::limits::WAIT_MS;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Call, failure};
use crate::rpc::frame::Failure;

/// Answers one of Holdgate's own methods.
pub(super) async fn call(call: &Call<'_>, method: &str) -> Result<Value, Failure> {
    let local = call.local();
    let mut params = Params::of(call, method)?;
    let answer = match method {
        "approval.request" => {
            let key: Option<String> = params.take_optional("idempotencyKey")?;
            let request = params.rest()?;
            let opening = call.session.opening();
            local.create(request, key.as_deref()).await.map(|created| {
                // What was given back is a valid id.
                if let Ok(id) = created.approval.id.parse() {
                    opening.opened(&id);
                }
                json!({ "created": created.is_new, "approval": shape(&created.approval) })
            })
        }
        "approval.wait" => {
            let id: String = params.take("id")?;
            let timeout_ms: Option<u64> = params.take_optional("timeoutMs")?;
            params.rest::<Empty>()?;
            let timeout = Duration::from_millis(timeout_ms.unwrap_or(WAIT_MS.unsigned_abs()));
            call.replies.waits()?;
            local.wait(&id, timeout).await.map(|approval| shape(&approval))
        }
        "approval.list" => {
            call.replies.reads();
            local.list(params.rest()?).await.map(|page| shape(&page))
        }
        "approval.decide" => {
            let id: String = params.take("id")?;
            local.decide(&id, params.rest()?).await.map(|decided| shape(&decided))
        }
        "approval.claim" => {
            let id: String = params.take("id")?;
            local.claim(&id, params.rest()?).await.map(|claim| json!({ "claim": shape(&claim) }))
        }
        "approval.settle" => {
            let id: String = params.take("id")?;
            local.settle(&id, params.rest()?).await.map(|approval| shape(&approval))
        }
        "approval.cancel" => {
            let id: String = params.take("id")?;
            local.cancel(&id, params.rest()?).await.map(|approval| shape(&approval))
        }
        "approval.revoke" => {
            let id: String = params.take("id")?;
            local.revoke(&id, params.rest()?).await.map(|approval| shape(&approval))
        }
        _ => return Err(Failure::invalid(format!("unknown method: {method}"))),
    };
    answer.map_err(|error| refused(&error, method.trim_start_matches("approval.")))
}

/// The refusal, with the record as it stands where there is one to see: whoever comes second is told who won.
fn refused(error: &Error, operation: &str) -> Failure {
    let mut failure = failure(error, operation);
    if let Error::Problem(problem) = error
        && let (Some(approval), Some(details)) = (&problem.approval, &mut failure.details)
    {
        details["approval"] = shape(approval);
    }
    failure
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

fn shape(value: &impl Serialize) -> Value {
    // Every shape of the API has text keys and finite numbers.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// Parameters in parts: what names the call, and the body as HTTP has it.
struct Params<'a> {
    method: &'a str,
    parts: BTreeMap<String, Box<RawValue>>,
}

impl<'a> Params<'a> {
    fn of(call: &Call<'_>, method: &'a str) -> Result<Self, Failure> {
        let params = call.params();
        let text = params.as_deref().map_or("{}", RawValue::get);
        strict_value(text).map_err(|error| Self::invalid(method, &error))?;
        let parts = serde_json::from_str(text).map_err(|error| Self::invalid(method, &error))?;
        Ok(Self { method, parts })
    }

    fn invalid(method: &str, why: &impl std::fmt::Display) -> Failure {
        Failure::invalid(format!("invalid {method} params: {why}"))
    }

    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Failure> {
        let taken = self.take_optional(name)?;
        taken.ok_or_else(|| Self::invalid(self.method, &format!("must have required property '{name}'")))
    }

    fn take_optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let Some(raw) = self.parts.remove(name) else {
            return Ok(None);
        };
        let parsed = serde_json::from_str(raw.get());
        parsed.map(Some).map_err(|error| Self::invalid(self.method, &format!("at /{name}: {error}")))
    }

    /// What is left, as a body.
    fn rest<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let body = serde_json::to_string(&self.parts).map_err(|error| Self::invalid(self.method, &error))?;
        serde_json::from_str(&body).map_err(|error| Self::invalid(self.method, &error))
    }
}
