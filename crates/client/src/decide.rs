//! Answering an approval when the acknowledgement may be lost.
//!
//! An acknowledgement counts only if it is of the record and the answer that were sent. Without one the record is
//! read back; a record that still waits is answered again, which is safe: the first answer stands. Nothing is
//! invented.

use holdgate_authority::{Authority as _, Error};
use holdgate_core::approval::Status;
use holdgate_wire::{Approval, Code, Decide, Decided, Problem};

use crate::call::Call;
use crate::patience::Attempts;
use crate::remote::Remote;

pub(crate) async fn decide(remote: &Remote, id: &str, sent: Decide) -> Result<Decided, Error> {
    let mut attempts = Attempts::within(remote.patience());
    loop {
        let error = match remote
            .http()
            .send::<Decided>(&Call::post(&["v1", "approvals", id, "decision"], &sent)?)
            .await
        {
            Ok((_, decided)) if is_of(&decided.approval, id, &sent) => return Ok(decided),
            Ok(_) => remote.http().unreachable("its acknowledgement is not of the answer that was sent"),
            Err(error) if error.is_transient() => error,
            Err(error) => return Err(error),
        };
        let approval = remote.get(id).await.map_err(|_| unknown(remote, &error))?;
        if approval.is_terminal() || is_of(&approval, id, &sent) {
            return read_back(approval, id, &sent);
        }
        attempts.again_after(error).await?;
    }
}

/// Whether a record holds the answer that was sent, for the action that was shown. Where several people are needed it
/// may still wait: then our own answer is what counts.
fn is_of(approval: &Approval, id: &str, sent: &Decide) -> bool {
    let stands = if approval.is_terminal() { approval.decision } else { approval.your_vote };
    approval.id == id && approval.digest == sent.digest && stands == Some(sent.decision)
}

/// What a record says of the answer that was sent.
fn read_back(approval: Approval, id: &str, sent: &Decide) -> Result<Decided, Error> {
    if is_of(&approval, id, sent) {
        // The same answer stands. Whether it was this call that gave it, the record does not say.
        return Ok(Decided { applied: false, approval });
    }
    let (code, detail) = match approval.status {
        _ if approval.digest != sent.digest => (Code::StaleDigest, "the digest is not the record's"),
        Status::Expired => (Code::Expired, "its time was up"),
        Status::Cancelled => (Code::Cancelled, "it was cancelled"),
        Status::Pending | Status::Allowed | Status::Denied => (Code::AlreadyDecided, "another answer stands"),
    };
    let mut problem = Problem::new(code, detail);
    problem.approval = Some(Box::new(approval));
    Err(problem.into())
}

fn unknown(remote: &Remote, lost: &Error) -> Error {
    remote.http().unreachable(format!(
        "the acknowledgement was lost ({lost}) and the record could not be read back; whether the answer counts is not known"
    ))
}
