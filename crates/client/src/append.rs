//! Adding to a run's journal when the reply may be lost.
//!
//! An append cannot be repeated blindly: the same events would be refused, or stand twice. After a lost reply the
//! journal is read back. Only the holder of the fence can have written what is found there.

use holdgate_authority::{Authority as _, Error};
use holdgate_core::Refusal;
use holdgate_wire::run::JournalEntry;
use holdgate_wire::{AppendEvents, Appended, Code, Problem, Run};

use crate::asked;
use crate::call::Call;
use crate::patience::Attempts;
use crate::remote::Remote;

/// What the journal says of an append whose reply was lost.
enum Found {
    /// It is there, exactly.
    Done(Run),
    /// Nothing is there.
    Nothing,
}

pub(crate) async fn append(remote: &Remote, id: &str, sent: AppendEvents) -> Result<Appended, Error> {
    let mut attempts = Attempts::within(remote.patience());
    let path = ["v1", "runs", id, "events"];
    let call = Call::post(&path, &sent)?;
    let mut lost_a_reply = false;
    loop {
        let error = match remote.http().send::<Appended>(&call).await {
            Ok((_, appended)) if is_of(&appended, id, &sent) => return Ok(appended),
            Ok(_) => remote.http().unreachable("its answer is not of what was appended"),
            Err(error) if error.is_transient() => error,
            // The lost one may have arrived before this one, and be the reason why this one is refused.
            Err(error) if lost_a_reply && is_after_an_append(&error) => error,
            Err(error) => return Err(error),
        };
        lost_a_reply = true;
        match read_back(remote, id, &sent).await? {
            Found::Done(run) => return Ok(Appended { run, approvals: opened(remote, id, &sent).await? }),
            Found::Nothing => attempts.again_after(error).await?,
        }
    }
}

fn is_of(appended: &Appended, id: &str, sent: &AppendEvents) -> bool {
    appended.run.id == id
        && appended.run.last_seq == sent.after + sent.events.len() as u64
        && appended.approvals.len() == sent.approvals.len()
}

fn is_after_an_append(error: &Error) -> bool {
    matches!(error.code(), Some(Code::JournalMoved | Code::RunEnded))
}

async fn read_back(remote: &Remote, id: &str, sent: &AppendEvents) -> Result<Found, Error> {
    let (found, last_seq) = written_after(remote, id, sent).await?;
    // Read after the journal: while the fence is still ours, nobody else has written what was found.
    let run = remote.run(id).await?;
    if run.fence != sent.fence {
        return Err(Problem::refused(&Refusal::FenceLapsed, None).into());
    }
    if found.is_empty() && last_seq == sent.after {
        return Ok(Found::Nothing);
    }
    let found = found.iter().map(|entry| entry.event.get());
    let is_exact = last_seq == sent.after + sent.events.len() as u64
        && found.eq(sent.events.iter().map(|event| event.get()));
    if is_exact { Ok(Found::Done(run)) } else { Err(Problem::refused(&Refusal::JournalMoved, None).into()) }
}

/// What stands in the journal where the append would, page by page, and the number of its last event. Reads no
/// more than decides it.
async fn written_after(
    remote: &Remote,
    id: &str,
    sent: &AppendEvents,
) -> Result<(Vec<JournalEntry>, u64), Error> {
    let mut found: Vec<JournalEntry> = Vec::new();
    loop {
        let page = remote.journal(id, sent.after + found.len() as u64).await?;
        let is_end = page.items.is_empty();
        found.extend(page.items);
        let is_all = sent.after + found.len() as u64 >= page.last_seq;
        if is_end || is_all || found.len() > sent.events.len() {
            return Ok((found, page.last_seq));
        }
    }
}

/// The requests that became durable with the events, in the order in which they were sent.
async fn opened(
    remote: &Remote,
    run: &str,
    sent: &AppendEvents,
) -> Result<Vec<holdgate_wire::Approval>, Error> {
    let mut approvals = Vec::with_capacity(sent.approvals.len());
    for request in &sent.approvals {
        let action = asked::action_of(request).ok_or_else(|| {
            remote
                .http()
                .unreachable("the events are in the journal, but what was opened with them cannot be named")
        })?;
        approvals.push(remote.get(action.id(run).as_str()).await?);
    }
    Ok(approvals)
}
