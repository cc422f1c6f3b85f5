//! Why somebody is not let in, in words that clients of the protocol know.
//!
//! Owns the words and the codes. Who is refused is `credentials`'.

use std::time::Duration;

use holdgate_core::{Principal, PrincipalId};
use holdgate_store::mint;
use serde_json::{Value, json};

use super::connect::Refused;
use super::frame::Failure;
use super::line::Close;

/// What every word about a missing or wrong credential ends with.
const HINT: &str = "(use this gateway's gateway.auth.token or pair the device)";
const PAIR_ANEW: &str = "Pair the device with a code from `holdgate pair`.";

pub(crate) fn token_mismatch() -> Failure {
    let message = format!("unauthorized: gateway token mismatch {HINT}");
    unauthorized(message, "AUTH_TOKEN_MISMATCH", "token_mismatch", true, "retry_with_device_token")
}

pub(crate) fn token_missing() -> Failure {
    let message = format!("unauthorized: gateway token missing {HINT}");
    unauthorized(message, "AUTH_TOKEN_MISSING", "token_missing", false, "update_auth_configuration")
}

pub(crate) fn device_token_mismatch() -> Failure {
    let message = "unauthorized: device token mismatch (pair the device again)".to_owned();
    let next = "update_auth_credentials";
    unauthorized(message, "AUTH_DEVICE_TOKEN_MISMATCH", "device_token_mismatch", false, next)
}

pub(crate) fn code_invalid() -> Failure {
    let message = "unauthorized: bootstrap token invalid or expired (get a fresh pairing code)".to_owned();
    let (code, next) = ("AUTH_BOOTSTRAP_TOKEN_INVALID", "review_auth_configuration");
    unauthorized(message, code, "bootstrap_token_invalid", false, next)
}

pub(crate) fn scope_mismatch() -> Failure {
    let message = "unauthorized: device token scope mismatch (re-pair or approve scope upgrade)".to_owned();
    unauthorized(message, "AUTH_SCOPE_MISMATCH", "scope_mismatch", false, "review_auth_configuration")
}

fn unauthorized(message: String, code: &str, reason: &str, can_retry: bool, next: &str) -> Failure {
    Failure::invalid(message).with(json!({
        "code": code,
        "authReason": reason,
        "canRetryWithDeviceToken": can_retry,
        "recommendedNextStep": next,
    }))
}

/// A device says that it is another kind of machine than the one that was paired.
pub(crate) fn other_machine(paired: &Principal, asked: &[String]) -> Refused {
    let mut approved: Vec<&str> = paired.scopes.names().collect();
    approved.sort_unstable();
    let details = json!({ "approvedRoles": ["operator"], "approvedScopes": approved });
    let message = "pairing required: device identity changed and must be re-approved";
    pairing_required(message, "metadata-upgrade", &paired.id, asked, details)
}

/// A device that nobody paired, from where pairing takes a person.
pub(crate) fn not_paired(device: &PrincipalId, asked: &[String]) -> Refused {
    pairing_required("pairing required: device is not paired", "not-paired", device, asked, json!({}))
}

/// A device that was paired, and is not to come back by itself.
pub(crate) fn revoked(device: &PrincipalId, asked: &[String]) -> Refused {
    pairing_required("pairing required: device was revoked", "revoked", device, asked, json!({}))
}

fn pairing_required(
    message: &str,
    reason: &str,
    device: &PrincipalId,
    asked: &[String],
    more: Value,
) -> Refused {
    let request_id = mint::name("pair");
    let mut details = json!({
        "code": "PAIRING_REQUIRED",
        "reason": reason,
        "requestId": request_id,
        "remediationHint": PAIR_ANEW,
        "deviceId": device.as_str(),
        "requestedRole": "operator",
        "requestedScopes": asked,
    });
    if let (Some(details), Value::Object(more)) = (details.as_object_mut(), more) {
        details.extend(more);
    }
    let close = Close::policy(&format!("{message} (requestId: {request_id})"));
    Refused { failure: Box::new(Failure::new("NOT_PAIRED", message).with(details)), close }
}

/// Somebody who has to be a device, and shows none.
pub(crate) fn device_required() -> Refused {
    Failure::new("NOT_PAIRED", "device identity required")
        .with(json!({ "code": "DEVICE_IDENTITY_REQUIRED", "reason": "device-identity-missing" }))
        .into()
}

/// Wrong too often.
pub(crate) fn too_many(wait: Duration) -> Refused {
    let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1);
    Failure {
        retry_after_ms: Some(wait_ms),
        ..Failure::later("too many failed authentication attempts; try again later")
            .with(json!({ "code": "AUTH_RATE_LIMITED", "authReason": "rate_limited" }))
    }
    .into()
}

/// The identity has as many connections as it may.
pub(crate) fn crowded() -> Refused {
    let message = "this credential has too many connections open";
    Refused { failure: Box::new(Failure::later(message)), close: Close::new(1013, message) }
}

/// The gateway cannot tell now.
pub(crate) fn unavailable() -> Refused {
    let message = "the gateway cannot answer now";
    Refused { failure: Box::new(Failure::later(message)), close: Close::new(1013, message) }
}
