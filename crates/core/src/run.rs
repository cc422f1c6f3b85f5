//! A stored run: who holds it, and the rules by which its journal grows.
//!
//! Owns lease, fence and append rules. What the events mean is the runner's; here they are text in order.

use crate::id::{PrincipalId, RunId};
use crate::limits::RUN_LEASE_MS;
use crate::principal::Principal;
use crate::refusal::Refusal;
use crate::time::Time;

/// Counts who has held a run. A holder with an older number is stale and can do nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// Where a run stands, as its last holder left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Somebody works on it, or was working when it died.
    Running,
    /// It waits for reviewers; nobody needs to hold it.
    Suspended,
    /// It stopped where a call's outcome is unknown. A person must look.
    Unknown,
    /// It ended well.
    Finished,
    /// It ended with an error.
    Failed,
    /// Somebody ended it from outside.
    Aborted,
}

impl RunState {
    /// Every state.
    pub const ALL: [RunState; 6] =
        [Self::Running, Self::Suspended, Self::Unknown, Self::Finished, Self::Failed, Self::Aborted];

    /// The state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Suspended => "suspended",
            RunState::Unknown => "unknown",
            RunState::Finished => "finished",
            RunState::Failed => "failed",
            RunState::Aborted => "aborted",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        RunState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the journal is closed.
    pub const fn is_final(self) -> bool {
        matches!(self, RunState::Finished | RunState::Failed | RunState::Aborted)
    }

    /// Whether a holder that leaves the run in this state keeps its lease.
    const fn keeps_lease(self) -> bool {
        matches!(self, RunState::Running)
    }
}

/// The authority's record of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id, unique over all owners.
    pub id: RunId,
    /// Who created it. Nobody else may touch it.
    pub owner: PrincipalId,
    /// The agent that runs, as its owner calls it.
    pub agent: String,
    /// Where it stands.
    pub state: RunState,
    /// The current holder's number. Zero before the first lease.
    pub fence: Fence,
    /// Until when the current holder is believed to live. `None` when nobody holds it.
    pub held_until: Option<Time>,
    /// The number of the last event of its journal. Events count from 1.
    pub last_seq: u64,
    /// When it was created.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
}

/// What a holder, or somebody who would be one, wants of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunCommand {
    /// Take it: refused while somebody else's lease is live.
    Lease,
    /// Keep it.
    Renew {
        /// The holder's number.
        fence: Fence,
    },
    /// Let it go, so that the next holder need not wait for the lease to lapse.
    Release {
        /// The holder's number.
        fence: Fence,
    },
    /// End it from outside, whoever holds it. Its journal is closed and whoever held it can do nothing more.
    Abort,
    /// Add to its journal.
    Append {
        /// The holder's number.
        fence: Fence,
        /// The last event that the holder knows of.
        after: u64,
        /// How many events are added.
        count: u64,
        /// Where the run stands with them.
        state: RunState,
    },
}

impl Run {
    /// A new run that nobody holds.
    pub fn create(id: RunId, agent: String, by: &Principal, now: Time) -> Self {
        Self {
            id,
            owner: by.id.clone(),
            agent,
            state: RunState::Running,
            fence: Fence(0),
            held_until: None,
            last_seq: 0,
            created_at: now,
            updated_at: now,
        }
    }

    /// Whether somebody's lease is live.
    pub fn is_held(&self, now: Time) -> bool {
        self.held_until.is_some_and(|until| !until.reached_at(now))
    }

    /// Applies a command. Only the owner is answered; to others the run does not exist.
    ///
    /// A lapsed lease alone does not stop its holder: as long as nobody has taken the next fence, no two
    /// processes can act, and a holder that was merely slow goes on.
    ///
    /// # Errors
    /// A [`Refusal`] says why nothing changed.
    pub fn apply(&self, command: RunCommand, by: &Principal, now: Time) -> Result<Run, Refusal> {
        let is_admins = matches!(command, RunCommand::Abort) && by.is_admin();
        if by.id != self.owner && !is_admins {
            return Err(Refusal::NotFound);
        }
        let mut next = self.clone();
        next.updated_at = now;
        match command {
            RunCommand::Lease => {
                if self.state == RunState::Aborted {
                    return Err(Refusal::RunEnded);
                }
                if let Some(until) = self.held_until.filter(|_| self.is_held(now)) {
                    return Err(Refusal::RunHeld { lapses_in_ms: until.ms_after(now) });
                }
                next.fence = Fence(self.fence.0 + 1);
                next.held_until = Some(now.plus_ms(RUN_LEASE_MS));
            }
            RunCommand::Renew { fence } => {
                self.check_fence(fence)?;
                next.held_until = Some(now.plus_ms(RUN_LEASE_MS));
            }
            RunCommand::Release { fence } => {
                self.check_fence(fence)?;
                next.held_until = None;
            }
            RunCommand::Abort if self.state == RunState::Aborted => return Ok(self.clone()),
            RunCommand::Abort if self.state.is_final() => return Err(Refusal::RunEnded),
            RunCommand::Abort => {
                next.state = RunState::Aborted;
                next.fence = Fence(self.fence.0 + 1);
                next.held_until = None;
            }
            RunCommand::Append { fence, after, count, state } => {
                self.check_fence(fence)?;
                if self.state.is_final() {
                    return Err(Refusal::RunEnded);
                }
                if after != self.last_seq {
                    return Err(Refusal::JournalMoved);
                }
                next.last_seq = self.last_seq + count;
                next.state = state;
                next.held_until = state.keeps_lease().then(|| now.plus_ms(RUN_LEASE_MS));
            }
        }
        Ok(next)
    }

    /// Whether `fence` is the current holder's, who may open requests and claim.
    ///
    /// # Errors
    /// [`Refusal::FenceLapsed`] if another process has taken the run over, or nobody ever held it.
    pub fn check_fence(&self, fence: Fence) -> Result<(), Refusal> {
        if fence == self.fence && fence.0 > 0 { Ok(()) } else { Err(Refusal::FenceLapsed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::PrincipalKind;

    fn owner() -> Principal {
        Principal::new("agent".parse().unwrap(), PrincipalKind::Agent, "agent")
    }

    fn at(ms: i64) -> Time {
        Time::from_ms(ms)
    }

    fn run() -> Run {
        Run::create("r".parse().unwrap(), "a".to_owned(), &owner(), at(0))
    }

    fn append(fence: u64, after: u64, state: RunState) -> RunCommand {
        RunCommand::Append { fence: Fence(fence), after, count: 2, state }
    }

    #[test]
    fn one_process_holds_a_run_and_a_successor_makes_it_stale() {
        let first = run().apply(RunCommand::Lease, &owner(), at(0)).unwrap();
        let held = first.apply(RunCommand::Lease, &owner(), at(RUN_LEASE_MS - 1));
        assert_eq!(held, Err(Refusal::RunHeld { lapses_in_ms: 1 }));
        let second = first.apply(RunCommand::Lease, &owner(), at(RUN_LEASE_MS)).unwrap();
        assert_eq!((first.fence, second.fence), (Fence(1), Fence(2)));
        for stale in [
            RunCommand::Renew { fence: Fence(1) },
            RunCommand::Release { fence: Fence(1) },
            append(1, 0, RunState::Running),
        ] {
            assert_eq!(second.apply(stale, &owner(), at(RUN_LEASE_MS)), Err(Refusal::FenceLapsed));
        }
    }

    #[test]
    fn a_run_that_was_let_go_can_be_taken_at_once() {
        let held = run().apply(RunCommand::Lease, &owner(), at(0)).unwrap();
        let released = held.apply(RunCommand::Release { fence: Fence(1) }, &owner(), at(1)).unwrap();
        assert!(released.apply(RunCommand::Lease, &owner(), at(1)).is_ok());
        let suspended = held.apply(append(1, 0, RunState::Suspended), &owner(), at(1)).unwrap();
        assert!(suspended.apply(RunCommand::Lease, &owner(), at(1)).is_ok());
    }

    #[test]
    fn a_slow_holder_goes_on_as_long_as_nobody_took_over() {
        let held = run().apply(RunCommand::Lease, &owner(), at(0)).unwrap();
        let late = held.apply(append(1, 0, RunState::Running), &owner(), at(10 * RUN_LEASE_MS)).unwrap();
        assert!(late.is_held(at(10 * RUN_LEASE_MS + 1)));
    }

    #[test]
    fn nobody_appends_without_a_fence_out_of_order_or_after_the_end() {
        assert_eq!(run().apply(append(0, 0, RunState::Running), &owner(), at(0)), Err(Refusal::FenceLapsed));
        let held = run().apply(RunCommand::Lease, &owner(), at(0)).unwrap();
        assert_eq!(held.apply(append(1, 1, RunState::Running), &owner(), at(0)), Err(Refusal::JournalMoved));
        let ended = held.apply(append(1, 0, RunState::Finished), &owner(), at(0)).unwrap();
        assert_eq!(ended.last_seq, 2);
        assert_eq!(ended.apply(append(1, 2, RunState::Running), &owner(), at(0)), Err(Refusal::RunEnded));
    }

    #[test]
    fn an_aborted_run_is_over_for_whoever_held_it() {
        let held = run().apply(RunCommand::Lease, &owner(), at(0)).unwrap();
        let aborted = held.apply(RunCommand::Abort, &owner(), at(1)).unwrap();
        assert_eq!((aborted.state, aborted.held_until), (RunState::Aborted, None));
        assert_eq!(
            aborted.apply(append(1, 0, RunState::Running), &owner(), at(1)),
            Err(Refusal::FenceLapsed)
        );
        assert_eq!(aborted.apply(RunCommand::Lease, &owner(), at(1)), Err(Refusal::RunEnded));
        assert_eq!(aborted.apply(RunCommand::Abort, &owner(), at(2)), Ok(aborted.clone()));
        let ended = held.apply(append(1, 0, RunState::Finished), &owner(), at(1)).unwrap();
        assert_eq!(ended.apply(RunCommand::Abort, &owner(), at(2)), Err(Refusal::RunEnded));
    }

    #[test]
    fn to_anybody_but_its_owner_a_run_does_not_exist() {
        let other = Principal { id: "other".parse().unwrap(), ..owner() };
        assert_eq!(run().apply(RunCommand::Lease, &other, at(0)), Err(Refusal::NotFound));
    }
}
