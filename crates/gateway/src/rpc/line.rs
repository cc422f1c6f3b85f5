//! What goes out over one connection: two bounded queues, one of answers and one of events, and the wish to close.
//!
//! Owns the bounds, and what a connection that does not keep up loses. Writes nothing itself: that is `socket`'s.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::frame::{self, Failure};
use crate::shares::{Exhausted, Guest};

/// How many answers may be ready and unsent. Whoever has another one waits.
const ANSWERS: usize = 16;
/// How many events may be ready and unsent, and how many bytes. A connection with more has lost what follows.
const EVENTS: usize = 256;
pub(crate) const EVENT_BYTES: usize = 4 << 20;
/// How many calls of one connection are worked on at once. It is not read from while there are as many.
const CALLS: usize = 64;
/// How many calls of one connection may wait for somebody's answer.
const WAITS: usize = 1_024;
/// How many refusals in a row a connection may collect.
const REFUSALS: u32 = 64;
/// The longest reason that a close frame can carry.
const REASON_BYTES: usize = 123;

/// Why and how a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    /// The status code.
    pub(crate) code: u16,
    /// The reason, as long as a frame can carry.
    pub(crate) reason: String,
}

impl Close {
    pub(crate) fn new(code: u16, reason: &str) -> Self {
        let mut end = reason.len().min(REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        Self { code, reason: reason[..end].to_owned() }
    }

    /// The peer broke a rule of ours.
    pub(crate) fn policy(reason: &str) -> Self {
        Self::new(1008, reason)
    }
}

/// One event on its way.
pub(crate) struct Queued {
    event: &'static str,
    payload: Arc<str>,
    seq: u64,
    /// Whether it says that others were lost.
    pub(crate) tells_of_loss: bool,
}

impl Queued {
    /// The frame. Built for each connection, because of its number; the payload is shared until here.
    pub(crate) fn frame(&self) -> String {
        let Self { event, payload, seq, .. } = self;
        format!(r#"{{"type":"event","event":"{event}","payload":{payload},"seq":{seq}}}"#)
    }
}

#[derive(Default)]
struct Events {
    queue: VecDeque<Queued>,
    bytes: usize,
    /// The number of the last event, sent or lost.
    seq: u64,
    /// Whether some were lost since the connection was last told so.
    has_lost: bool,
}

/// One answer on its way, with the room that it takes of its identity's share.
pub(crate) struct Answer {
    pub(crate) text: String,
    /// None for a refusal that there is no room.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// One connection's way out.
pub(crate) struct Line {
    /// Whose connection it is.
    guest: Guest,
    answers: mpsc::Sender<Answer>,
    events: Mutex<Events>,
    woken: Notify,
    closing: watch::Sender<Option<Close>>,
    refusals: AtomicU32,
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
}

impl Line {
    /// A way out, and the answers that come through it.
    pub(crate) fn new(guest: Guest) -> (Arc<Self>, mpsc::Receiver<Answer>) {
        let (answers, receiver) = mpsc::channel(ANSWERS);
        let line = Self {
            guest,
            answers,
            events: Mutex::default(),
            woken: Notify::new(),
            closing: watch::Sender::new(None),
            refusals: AtomicU32::new(0),
            calls: Arc::new(Semaphore::new(CALLS)),
            waits: Arc::new(Semaphore::new(WAITS)),
        };
        (Arc::new(line), receiver)
    }

    /// Queues an event. One that finds no room is lost, and so is every one after it until the queue has drained: a
    /// gap in the numbers tells clients, and `approvals.dropped` all others.
    pub(crate) fn tell(&self, event: &'static str, payload: &Arc<str>) {
        let mut events = self.events();
        events.seq += 1;
        let is_full = events.queue.len() >= EVENTS || events.bytes + payload.len() > EVENT_BYTES;
        if events.has_lost || (is_full && !events.queue.is_empty()) {
            events.has_lost = true;
        } else {
            let seq = events.seq;
            events.bytes += payload.len();
            events.queue.push_back(Queued { event, payload: Arc::clone(payload), seq, tells_of_loss: false });
        }
        drop(events);
        self.woken.notify_one();
    }

    /// Something was missed before it could be queued.
    pub(crate) fn lose(&self) {
        let mut events = self.events();
        events.seq += 1;
        events.has_lost = true;
        drop(events);
        self.woken.notify_one();
    }

    /// The next event to send. Cancelled, it takes none.
    pub(crate) async fn next_event(&self) -> Queued {
        loop {
            let woken = self.woken.notified();
            if let Some(queued) = self.take() {
                return queued;
            }
            woken.await;
        }
    }

    /// The next event to send, if one is ready.
    pub(crate) fn take(&self) -> Option<Queued> {
        let mut events = self.events();
        if let Some(queued) = events.queue.pop_front() {
            events.bytes -= queued.payload.len();
            return Some(queued);
        }
        if !events.has_lost {
            return None;
        }
        events.has_lost = false;
        events.seq += 1;
        Some(Queued {
            event: "approvals.dropped",
            payload: "{}".into(),
            seq: events.seq,
            tells_of_loss: true,
        })
    }

    /// Closes the connection; the first reason counts.
    pub(crate) fn close(&self, close: Close) {
        self.closing.send_if_modified(|closing| {
            let is_first = closing.is_none();
            closing.get_or_insert(close);
            is_first
        });
    }

    /// Completes when the connection is to be closed.
    pub(crate) async fn closed(&self) -> Close {
        let mut closing = self.closing.subscribe();
        match closing.wait_for(Option::is_some).await.map(|close| close.clone()) {
            Ok(Some(close)) => close,
            // The sender lives as long as this does.
            _ => std::future::pending().await,
        }
    }

    /// Room for one more call.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.calls).acquire_owned().await.expect("nobody closes the semaphore")
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, answer: &Result<Value, Failure>) {
        let is_refused = matches!(answer, Err(failure) if failure.code == "FORBIDDEN");
        if !is_refused {
            self.refusals.store(0, Ordering::Relaxed);
        } else if self.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS {
            self.close(Close::policy("repeated unauthorized calls"));
        }
    }
}

/// The connection is gone: nobody hears an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The way back of one call: one answer, or first that it was accepted and then its end.
pub(crate) struct Replies {
    line: Arc<Line>,
    /// Among the calls that are worked on, or those that wait.
    place: Mutex<OwnedSemaphorePermit>,
    /// Among all that wait of its identity.
    wait: Mutex<Option<OwnedSemaphorePermit>>,
    waiting: Notify,
}

impl Replies {
    pub(crate) fn new(line: Arc<Line>, place: OwnedSemaphorePermit) -> Self {
        Self { line, place: Mutex::new(place), wait: Mutex::default(), waiting: Notify::new() }
    }

    /// Sends an answer to the call of that id, as soon as there is room for it.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) async fn send(&self, id: &str, answer: Result<Value, Failure>) -> Result<(), Gone> {
        self.line.count(&answer);
        let outcome = answer.as_ref().map_or_else(|failure| failure.code, |_| "ok");
        tracing::Span::current().record("outcome", outcome);
        let mut text = frame::response(id, &answer);
        let room = self.line.guest.room_for(text.len()).ok();
        if room.is_none() {
            let unread = "this credential has not read what it was answered; read it, and try again";
            text = frame::response(id, &Err(Failure::later(unread)));
        }
        self.line.answers.send(Answer { text, room }).await.map_err(|_| Gone)
    }

    /// Says that this call waits for somebody's answer from now on. It makes room for other calls of the connection,
    /// and ends without one when the connection does. Call it before any long wait.
    ///
    /// # Errors
    /// As many calls of this connection wait as may.
    pub(crate) fn waits(&self) -> Result<(), Failure> {
        let place = Arc::clone(&self.line.waits).try_acquire_owned();
        let place = place
            .map_err(|_| Failure::later(format!("{WAITS} calls of this connection are waiting already")))?;
        let shared = self.line.guest.wait();
        let shared =
            shared.map_err(|Exhausted| Failure::later("too many calls of this credential are waiting"))?;
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared);
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        self.waiting.notify_one();
        Ok(())
    }

    /// Says that this call only reads: it ends when its connection does. Call it before any long read.
    pub(crate) fn reads(&self) {
        self.waiting.notify_one();
    }

    /// Completes once the call waits or reads and its connection is gone. Any other call is never cut short: what it
    /// does takes effect, heard or not.
    pub(crate) async fn abandoned(&self) {
        self.waiting.notified().await;
        self.line.answers.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Shares;

    fn guest() -> Guest {
        Shares::of(8).enter(&"somebody".parse().unwrap()).unwrap()
    }

    fn payload(text: &str) -> Arc<str> {
        text.into()
    }

    #[tokio::test]
    async fn a_line_that_is_full_loses_what_follows_and_is_told_once_it_has_drained() {
        let (line, _answers) = Line::new(guest());
        for _ in 0..EVENTS + 3 {
            line.tell("tick", &payload("{}"));
        }
        for seq in 1..=EVENTS {
            let queued = line.next_event().await;
            assert_eq!((queued.seq, queued.tells_of_loss), (seq as u64, false));
        }
        let told = line.next_event().await;
        assert_eq!(
            (told.event, told.seq, told.tells_of_loss),
            ("approvals.dropped", EVENTS as u64 + 4, true)
        );
        line.tell("tick", &payload("{}"));
        assert_eq!(line.next_event().await.seq, EVENTS as u64 + 5, "and goes on");
    }

    #[tokio::test]
    async fn an_event_that_is_larger_than_the_bound_goes_alone() {
        let (line, _answers) = Line::new(guest());
        let large = payload(&format!("\"{}\"", "x".repeat(EVENT_BYTES)));
        line.tell("large", &large);
        line.tell("lost", &payload("{}"));
        assert_eq!(line.next_event().await.event, "large");
        assert!(line.next_event().await.tells_of_loss);
    }

    #[tokio::test]
    async fn refusals_in_a_row_close_the_connection_and_an_answer_in_between_does_not() {
        let (line, mut answers) = Line::new(guest());
        tokio::spawn(async move { while answers.recv().await.is_some() {} });
        let replies = Replies::new(Arc::clone(&line), line.place().await);
        for round in 0..2 * REFUSALS {
            let answer = if round % 10 == 9 { Ok(Value::Null) } else { Err(Failure::missing_scope("s")) };
            replies.send("1", answer).await.unwrap();
        }
        assert_eq!(*line.closing.borrow(), None);
        for _ in 0..=REFUSALS {
            replies.send("1", Err(Failure::missing_scope("s"))).await.unwrap();
        }
        assert_eq!(line.closed().await, Close::policy("repeated unauthorized calls"));
    }

    #[tokio::test]
    async fn an_answer_for_which_there_is_no_room_is_refused_and_not_kept() {
        let (line, mut answers) = Line::new(guest());
        let replies = Replies::new(Arc::clone(&line), line.place().await);
        let large = || Ok(Value::from("x".repeat(20 << 20)));
        replies.send("1", large()).await.unwrap();
        replies.send("2", large()).await.unwrap();
        let first = answers.recv().await.unwrap();
        let second = answers.recv().await.unwrap();
        assert!(second.text.contains("UNAVAILABLE") && second.text.contains("\"retryable\":true"));
        assert!(second.text.len() < 1_000);
        drop(first);
        replies.send("3", large()).await.unwrap();
        assert!(answers.recv().await.unwrap().room.is_some(), "once the first is sent there is room again");
    }

    #[tokio::test]
    async fn a_wait_makes_room_and_ends_with_its_connection() {
        let (line, answers) = Line::new(guest());
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            calls.push(Replies::new(Arc::clone(&line), line.place().await));
        }
        assert_eq!(line.calls.available_permits(), 0);
        calls[0].waits().unwrap();
        assert_eq!(line.calls.available_permits(), 1);
        drop(answers);
        calls[0].abandoned().await;
        assert_eq!(calls[1].send("1", Ok(Value::Null)).await, Err(Gone));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let close = Close::policy(&"ä".repeat(100));
        assert_eq!(close.reason, "ä".repeat(61));
    }
}
