//! What the caller of a run is told of where it has come to rest.
//!
//! Owns the way from a board to an outcome. Reads nothing: the records are those that the driver has read.

use std::collections::BTreeMap;

use holdgate_wire::Approval;

use super::RunError;
use super::board::{AtRest, Board, End};
use super::driver::Rested;
use super::journal::{JournalError, TaskEnd};
use super::machine::{Effect, End as AgentEnd};
use super::outcome::{
    Finished, GateDecision, Outcome, Pending, PendingApproval, TaskState, TaskSummary, TeamOutcome,
    TeamStatus, UnknownCall,
};
use super::review::Question;

/// What came of one agent's run.
pub(super) fn outcome(rested: Rested) -> Result<Outcome, RunError> {
    let Rested { board, records } = rested;
    let (run_id, calls) = (board.run().to_owned(), board.summaries(0));
    if let Some((_, call)) = board.unknown().next() {
        return Ok(Outcome::Unknown {
            run_id,
            call_id: call.requested.id.clone(),
            tool: call.requested.tool.clone(),
            review: call.review(),
        });
    }
    match board.machine(0).map(super::machine::Machine::next) {
        Some(Effect::Stop(AgentEnd::Finished(output))) => {
            Ok(Outcome::Finished(Finished { run_id, output, calls }))
        }
        Some(Effect::Stop(AgentEnd::Failed(why))) => Ok(Outcome::Failed { run_id, why, calls }),
        Some(Effect::Suspend(_)) => Ok(Outcome::Suspended { run_id, pending: pending(&board, &records)? }),
        // The authority counts the run as ended, but its journal does not end.
        _ => Err(JournalError::Gap { expected: board.seq() + 1 }.into()),
    }
}

fn pending(board: &Board, records: &BTreeMap<String, Approval>) -> Result<Vec<Pending>, RunError> {
    let waiting = board.waiting().map(|(_, call, question)| {
        let record = record(board, records, question)?;
        Ok(Pending {
            call_id: call.requested.id.clone(),
            tool: call.requested.tool.clone(),
            approval_id: record.id.clone(),
            digest: record.digest.clone(),
            url: record.url.clone(),
            headline: record.presentation.headline.clone(),
        })
    });
    waiting.collect()
}

fn record<'a>(
    board: &Board,
    records: &'a BTreeMap<String, Approval>,
    question: &Question,
) -> Result<&'a Approval, RunError> {
    // Every question was opened or read by this process.
    records.get(&question.approval).ok_or_else(|| RunError::Mismatch {
        run: board.run().to_owned(),
        approval: question.approval.clone(),
        what: "its record was not read".to_owned(),
    })
}

/// What came of a team's run.
pub(super) fn team_outcome(rested: Rested) -> Result<TeamOutcome, RunError> {
    let Rested { board, records } = rested;
    let is_over = board.end().is_some();
    let waiting = board.questions().filter(|_| !is_over).map(|question| {
        let record = record(&board, &records, question)?;
        Ok(PendingApproval {
            approval_id: record.id.clone(),
            scope: record.kind.scope().to_owned(),
            boundary: record.boundary.clone(),
            digest: record.digest.clone(),
            url: record.url.clone(),
            headline: record.presentation.headline.clone(),
        })
    });
    let pending_approvals: Vec<PendingApproval> = waiting.collect::<Result<_, RunError>>()?;
    Ok(TeamOutcome {
        run_id: board.run().to_owned(),
        status: status(&board)?,
        output: match board.end() {
            Some(End::Finished(output)) => output.clone(),
            _ => String::new(),
        },
        tasks: (0..board.task_count()).map(|at| task(&board, at)).collect(),
        pending_approvals,
        approval_decisions: decisions(&board),
        unknown_calls: unknown(&board),
    })
}

fn status(board: &Board) -> Result<TeamStatus, RunError> {
    Ok(match (board.end(), board.at_rest()) {
        (Some(End::Finished(_)), _) => TeamStatus::Ok,
        (Some(End::Failed(why)), _) => TeamStatus::Error(why.clone()),
        (Some(End::Rejected(rejection)), _) => TeamStatus::Rejected(rejection.clone()),
        (None, AtRest::Wait { is_unknown: true, .. }) => TeamStatus::Unknown,
        (None, AtRest::Wait { .. }) => TeamStatus::Suspended,
        (None, _) => return Err(JournalError::Gap { expected: board.seq() + 1 }.into()),
    })
}

pub(super) fn task(board: &Board, at: usize) -> TaskSummary {
    let (end, output) = board.standing(at);
    let state = match end {
        Some(TaskEnd::Completed) => TaskState::Completed(output.unwrap_or_default().to_owned()),
        Some(TaskEnd::Failed(why)) => TaskState::Failed(why.clone()),
        Some(TaskEnd::Skipped(why)) => TaskState::Skipped(why.clone()),
        None if board.has_begun(at) => TaskState::InProgress,
        None => TaskState::Pending,
    };
    TaskSummary {
        task_id: board.task_id(at).to_owned(),
        agent: board.agent(at).to_owned(),
        state,
        calls: board.summaries(at),
    }
}

fn decisions(board: &Board) -> Vec<GateDecision> {
    let reviewed = board.reviewed_gates().filter_map(|(_, gate)| {
        let question = gate.question()?;
        let decision = match gate.decision()? {
            true => Ok(()),
            false => Err(gate.rejection()?.clone()),
        };
        let (approval_id, boundary) = (question.approval.clone(), gate.boundary().to_owned());
        Some(GateDecision { approval_id, boundary, decision })
    });
    reviewed.collect()
}

fn unknown(board: &Board) -> Vec<UnknownCall> {
    let unknown = board.unknown().map(|(at, call)| UnknownCall {
        task_id: board.task_id(at).to_owned(),
        call_id: call.requested.id.clone(),
        tool: call.requested.tool.clone(),
        review: call.review(),
    });
    unknown.collect()
}
