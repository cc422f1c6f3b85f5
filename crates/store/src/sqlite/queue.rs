//! The writer's queue: operations of callers in one lane, in turn, and the authority's own maintenance in another that
//! gives way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use holdgate_core::limits::QUEUED_PER_PRINCIPAL;
use holdgate_core::{Principal, PrincipalId};
use tokio::sync::oneshot;

use crate::{Op, Outcome, StoreError};

/// Most operations of one transaction: past this, checkpoints make everybody wait longer than they save.
const BATCH: usize = 256;

/// After so many batches a sweep goes along, even if callers keep the writer busy.
const SWEEP_WAITS: u32 = 16;

/// An operation and where its answer goes.
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) reply: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// What waits to be written.
#[derive(Default)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    filled: Condvar,
}

#[derive(Default)]
struct Lanes {
    callers: Turns,
    maintenance: VecDeque<Job>,
    batches_since_sweep: u32,
    closed: bool,
}

/// Who an operation is of; `None` is the authority.
type Issuer = Option<PrincipalId>;

/// Operations by issuer. Each issuer's are in the order in which they came, and issuers take turns: who has much
/// waiting waits for it, and others do not.
#[derive(Default)]
struct Turns {
    waiting: HashMap<Issuer, VecDeque<Job>>,
    /// Who has something waiting, each once; the first is next.
    next: VecDeque<Issuer>,
}

impl Queue {
    /// Adds an operation.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after [`Queue::close`]; [`StoreError::Flooded`] if its issuer has too many waiting.
    pub(super) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut lanes = self.lock();
        if lanes.closed {
            return Err(StoreError::Closed);
        }
        if matches!(job.op, Op::Sweep { .. } | Op::Prune { .. }) {
            lanes.maintenance.push_back(job);
        } else {
            lanes.callers.push(job)?;
        }
        self.filled.notify_one();
        Ok(())
    }

    /// The next batch; waits for one. `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Vec<Job>> {
        let mut lanes = self.lock();
        while lanes.callers.next.is_empty() && lanes.maintenance.is_empty() {
            if lanes.closed {
                return None;
            }
            lanes = self.filled.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
        Some(lanes.take())
    }

    /// Lets nothing more in. What is queued is still handed out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    /// Lets nothing more in and drops what is queued; those who wait for it are told that nobody will answer.
    pub(super) fn abandon(&self) {
        let mut lanes = self.lock();
        *lanes = Lanes { closed: true, ..Lanes::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lanes {
    fn take(&mut self) -> Vec<Job> {
        let mut batch = self.callers.take(BATCH);
        self.batches_since_sweep += 1;
        if batch.is_empty() || self.batches_since_sweep > SWEEP_WAITS {
            batch.extend(self.maintenance.pop_front());
            self.batches_since_sweep = 0;
        }
        batch
    }
}

impl Turns {
    fn push(&mut self, job: Job) -> Result<(), StoreError> {
        // What the authority does for its own sake is not held up by how much it does for others.
        let issuer = job.op.issuer().filter(|id| **id != Principal::authority().id).cloned();
        let is_bounded = issuer.is_some();
        let queue = self.waiting.entry(issuer.clone()).or_default();
        if is_bounded && queue.len() >= QUEUED_PER_PRINCIPAL {
            return Err(StoreError::Flooded(queue.len()));
        }
        if queue.is_empty() {
            self.next.push_back(issuer);
        }
        queue.push_back(job);
        Ok(())
    }

    fn take(&mut self, most: usize) -> Vec<Job> {
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(issuer) = self.next.pop_front()
        {
            let Some(queue) = self.waiting.get_mut(&issuer) else {
                continue;
            };
            batch.extend(queue.pop_front());
            if queue.is_empty() {
                self.waiting.remove(&issuer);
            } else {
                self.next.push_back(issuer);
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use holdgate_core::Scopes;

    use super::*;
    use crate::By;

    fn push(queue: &Queue, op: Op) -> Result<(), StoreError> {
        queue.push(Job { op, reply: oneshot::channel().0 })
    }

    fn renewal_by(issuer: &str, epoch: usize) -> Op {
        let by = By { id: issuer.parse().unwrap(), scopes: Scopes::ALL };
        Op::RenewRuntime { epoch: format!("epo_{epoch}").parse().unwrap(), by }
    }

    fn renewal() -> Op {
        renewal_by("agent", 1)
    }

    fn sweeps(batch: &[Job]) -> usize {
        batch.iter().filter(|job| matches!(job.op, Op::Sweep { .. } | Op::Prune { .. })).count()
    }

    #[test]
    fn a_batch_is_bounded() {
        let queue = Queue::default();
        for _ in 0..BATCH + 1 {
            push(&queue, renewal()).unwrap();
        }
        assert_eq!(queue.next().unwrap().len(), BATCH);
        assert_eq!(queue.next().unwrap().len(), 1);
    }

    #[test]
    fn a_flood_is_refused_and_holds_nobody_else_up() {
        let queue = Queue::default();
        for n in 0..QUEUED_PER_PRINCIPAL {
            push(&queue, renewal_by("flood", n)).unwrap();
        }
        assert_eq!(push(&queue, renewal_by("flood", 0)), Err(StoreError::Flooded(QUEUED_PER_PRINCIPAL)));
        for n in 0..3 {
            push(&queue, renewal_by("other", n)).unwrap();
        }
        for n in 0..QUEUED_PER_PRINCIPAL + 1 {
            push(&queue, renewal_by("authority", n)).unwrap();
        }
        let first = queue.next().unwrap();
        let of = |who: &str| -> Vec<String> {
            let id: PrincipalId = who.parse().unwrap();
            let epochs = first.iter().filter(|job| job.op.issuer() == Some(&id)).map(|job| match &job.op {
                Op::RenewRuntime { epoch, .. } => epoch.to_string(),
                other => panic!("{other:?}"),
            });
            epochs.collect()
        };
        assert_eq!(of("other"), ["epo_0", "epo_1", "epo_2"], "all of it, in its order");
        assert_eq!(of("flood")[..3], ["epo_0", "epo_1", "epo_2"], "each issuer's in its order");
        assert_eq!(first.len(), BATCH);
        assert!(push(&queue, renewal_by("flood", 0)).is_ok(), "what was taken makes room");
    }

    #[test]
    fn maintenance_gives_way_to_callers_but_not_for_ever() {
        let queue = Queue::default();
        push(&queue, Op::Prune { before: holdgate_core::Time::from_ms(0), limit: 1 }).unwrap();
        push(&queue, renewal()).unwrap();
        assert_eq!(sweeps(&queue.next().unwrap()), 0, "callers go first");
        assert_eq!(sweeps(&queue.next().unwrap()), 1, "an idle writer sweeps");

        push(&queue, Op::Sweep { limit: 1 }).unwrap();
        let mut batches = 0;
        loop {
            push(&queue, renewal()).unwrap();
            batches += 1;
            if sweeps(&queue.next().unwrap()) == 1 {
                break;
            }
            assert!(batches <= SWEEP_WAITS, "the sweep starves");
        }
    }

    #[test]
    fn a_closed_queue_hands_out_what_it_has_and_takes_no_more() {
        let queue = Queue::default();
        push(&queue, renewal()).unwrap();
        queue.close();
        assert_eq!(push(&queue, renewal()), Err(StoreError::Closed));
        assert_eq!(queue.next().unwrap().len(), 1);
        assert!(queue.next().is_none());
    }
}
