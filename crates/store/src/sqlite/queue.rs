//! The writer's queue: operations of callers in one lane, the authority's own sweeps in another that gives way.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
    callers: VecDeque<Job>,
    sweeps: VecDeque<Job>,
    batches_since_sweep: u32,
    closed: bool,
}

impl Queue {
    /// Adds an operation.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after [`Queue::close`].
    pub(super) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut lanes = self.lock();
        if lanes.closed {
            return Err(StoreError::Closed);
        }
        let lane = if matches!(job.op, Op::Sweep { .. }) { &mut lanes.sweeps } else { &mut lanes.callers };
        lane.push_back(job);
        self.filled.notify_one();
        Ok(())
    }

    /// The next batch, in the order it came; waits for one. `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Vec<Job>> {
        let mut lanes = self.lock();
        while lanes.callers.is_empty() && lanes.sweeps.is_empty() {
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
        let count = self.callers.len().min(BATCH);
        let mut batch: Vec<Job> = self.callers.drain(..count).collect();
        self.batches_since_sweep += 1;
        if batch.is_empty() || self.batches_since_sweep > SWEEP_WAITS {
            batch.extend(self.sweeps.pop_front());
            self.batches_since_sweep = 0;
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &Queue, op: Op) -> Result<(), StoreError> {
        queue.push(Job { op, reply: oneshot::channel().0 })
    }

    fn renewal() -> Op {
        Op::RenewRuntime { epoch: "epo_1".parse().unwrap(), by: "agent".parse().unwrap() }
    }

    fn sweeps(batch: &[Job]) -> usize {
        batch.iter().filter(|job| matches!(job.op, Op::Sweep { .. })).count()
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
    fn a_sweep_gives_way_to_callers_but_not_for_ever() {
        let queue = Queue::default();
        push(&queue, Op::Sweep { limit: 1 }).unwrap();
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
