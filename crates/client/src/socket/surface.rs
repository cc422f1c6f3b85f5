//! The loop that keeps a reviewer's surface alive: connects, feeds the machine, sends what it asks, tells what to
//! show, and connects again. Owns no rule about approvals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::address::Address;
use super::connection::{Connection, Incoming, SendError};
use super::handshake::{ConnectError, Hello, Profile};
use crate::patience::Backoff;
use crate::reviewing::{Decision, Declined, Effect, Failure, Input, Reviewing, Shown, Tag, View};

/// How long a call may take. Then it counts as lost, and a reply that still comes is ignored.
const ANSWER: Duration = Duration::from_secs(30);
/// How often everything is read again: events are hints.
const REFRESH: Duration = Duration::from_secs(30);
/// Changes within this time are shown as one.
const SETTLE: Duration = Duration::from_millis(20);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How many commands may wait.
const COMMANDS: usize = 32;
const GOING_AWAY: u16 = 1000;

/// A reviewer's surface at one gateway. Dropping it ends its connection.
#[derive(Debug)]
pub struct Surface {
    commands: mpsc::Sender<Command>,
    shown: watch::Receiver<Snapshot>,
    task: JoinHandle<()>,
}

/// What there is to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// How the connection is.
    pub status: Status,
    /// The cards.
    pub view: View,
}

/// How the connection is.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// It is being made.
    Connecting,
    /// It is there. A device token in the hello is the caller's to store.
    Connected(Arc<Hello>),
    /// It is not there, and is tried again.
    Waiting {
        /// What went wrong. Outside text may be in it.
        why: String,
    },
    /// It will not be tried again: the same would happen.
    Stopped(ConnectError),
}

/// The surface has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the surface has stopped")]
pub struct Unavailable;

#[derive(Debug)]
enum Command {
    Choose { shown: Shown, decision: Decision, answer: oneshot::Sender<Result<(), Declined>> },
    Open(String),
    Refresh,
    Close,
}

impl Surface {
    /// Starts to connect, on the current runtime. Follows the approvals of these sessions besides those that are
    /// listed.
    pub fn start(address: Address, profile: Profile, sessions: Vec<String>) -> Self {
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let (show, shown) = watch::channel(Snapshot { status: Status::Connecting, view: View::default() });
        let driver =
            Driver { machine: Reviewing::new(sessions), address, profile, inbox, show, connections: 0 };
        Self { commands, shown, task: tokio::spawn(driver.run()) }
    }

    /// What there is to show, as it changes.
    pub fn snapshots(&self) -> watch::Receiver<Snapshot> {
        self.shown.clone()
    }

    /// Sends a decision on a card as it was rendered. `Ok` says that it is on its way, not what became of it: the
    /// card tells that.
    ///
    /// # Errors
    /// Why it was not sent.
    pub async fn choose(&self, shown: Shown, decision: Decision) -> Result<(), Declined> {
        let (answer, answered) = oneshot::channel();
        self.tell(Command::Choose { shown, decision, answer }).await.map_err(|_| Declined::Offline)?;
        answered.await.unwrap_or(Err(Declined::Offline))
    }

    /// Reads an approval that a person named. It becomes a card, or is told absent.
    ///
    /// # Errors
    /// The surface has stopped.
    pub async fn open(&self, id: &str) -> Result<(), Unavailable> {
        self.tell(Command::Open(id.to_owned())).await
    }

    /// Reads everything again.
    ///
    /// # Errors
    /// The surface has stopped.
    pub async fn refresh(&self) -> Result<(), Unavailable> {
        self.tell(Command::Refresh).await
    }

    /// Says goodbye and waits until that is done.
    pub async fn close(mut self) {
        if self.tell(Command::Close).await.is_ok() {
            // The task ends by itself; there is nothing to tell if it did not end well.
            let _ = (&mut self.task).await;
        }
    }

    async fn tell(&self, command: Command) -> Result<(), Unavailable> {
        self.commands.send(command).await.map_err(|_| Unavailable)
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Driver {
    machine: Reviewing,
    address: Address,
    profile: Profile,
    inbox: mpsc::Receiver<Command>,
    show: watch::Sender<Snapshot>,
    connections: u64,
}

/// Why one connection was left.
enum Left {
    /// It ended by itself.
    Lost(String),
    /// Nobody wants the surface any more.
    Done,
}

/// One connection at work.
struct Session<S> {
    connection: Connection<S>,
    number: u64,
    /// Calls by request id, and when each counts as lost.
    out: BTreeMap<String, (Tag, Instant)>,
    refresh_at: Instant,
    show_at: Option<Instant>,
}

impl Driver {
    async fn run(mut self) {
        let mut backoff = Backoff::up_to(LONGEST_PAUSE);
        loop {
            self.publish(Some(Status::Connecting));
            let (address, profile) = (self.address.clone(), self.profile.clone());
            let opening = Connection::open(&address, &profile);
            let Some(opened) = self.while_offline(opening).await else { return };
            let (why, asked) = match opened {
                Ok(connection) => {
                    let since = Instant::now();
                    let Left::Lost(why) = self.serve(connection).await else { return };
                    // A gateway that greets and closes at once is not asked at once again.
                    if since.elapsed() > LONGEST_PAUSE {
                        backoff = Backoff::up_to(LONGEST_PAUSE);
                    }
                    (why, None)
                }
                Err(error) if error.is_transient() => {
                    let asked = match &error {
                        ConnectError::Refused { retry_after, .. } => *retry_after,
                        _ => None,
                    };
                    (error.to_string(), asked)
                }
                Err(error) => return self.publish(Some(Status::Stopped(error))),
            };
            self.publish(Some(Status::Waiting { why }));
            let until = Instant::now() + backoff.next(asked.map(|asked| asked.min(LONGEST_PAUSE)));
            if self.while_offline(sleep_until(until)).await.is_none() {
                return;
            }
        }
    }

    /// Does something while there is no connection. None: nobody wants the surface any more.
    async fn while_offline<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                done = &mut what => return Some(done),
                command = self.inbox.recv() => {
                    let input = match command? {
                        Command::Choose { answer, .. } => {
                            // Who asked may have gone.
                            let _ = answer.send(Err(Declined::Offline));
                            continue;
                        }
                        Command::Open(id) => Input::Opened { id },
                        Command::Refresh => continue,
                        Command::Close => return None,
                    };
                    self.machine.apply(input);
                    self.publish(None);
                }
            }
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&mut self, connection: Connection<S>) -> Left {
        self.connections += 1;
        let number = self.connections;
        let hello = Arc::new(connection.hello().clone());
        let methods = hello.methods.clone();
        let mut session = Session {
            connection,
            number,
            out: BTreeMap::new(),
            refresh_at: Instant::now() + REFRESH,
            show_at: None,
        };
        self.publish(Some(Status::Connected(hello)));
        let gateway = self.address.name();
        self.feed(&mut session, Input::Connected { connection: number, gateway, methods }).await;
        let left = self.work(&mut session).await;
        if matches!(left, Left::Done) {
            session.connection.close(GOING_AWAY, "done").await;
        }
        self.machine.apply(Input::Disconnected { connection: number });
        left
    }

    async fn work<S: AsyncRead + AsyncWrite + Unpin>(&mut self, session: &mut Session<S>) -> Left {
        loop {
            let wake_at = session.wake_at();
            tokio::select! {
                incoming = session.connection.next() => match incoming {
                    Incoming::Closed(close) => {
                        let code = close.code.map(|code| format!(" ({code})")).unwrap_or_default();
                        return Left::Lost(format!("the connection is over: {}{code}", close.reason));
                    }
                    incoming => self.take(session, incoming).await,
                },
                command = self.inbox.recv() => match command {
                    None | Some(Command::Close) => return Left::Done,
                    Some(command) => self.command(session, command).await,
                },
                () = sleep_until(wake_at) => self.wake(session).await,
            }
        }
    }

    async fn take<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        session: &mut Session<S>,
        incoming: Incoming,
    ) {
        match incoming {
            Incoming::Reply { id, outcome } => {
                if let Some((tag, _)) = session.out.remove(&id) {
                    let outcome = outcome.map_err(Failure::Refused);
                    self.feed(session, Input::Reply { tag, outcome }).await;
                }
            }
            Incoming::Event { name, payload, missed } => {
                self.feed(session, Input::Event { connection: session.number, name, payload }).await;
                if missed > 0 {
                    self.feed(session, Input::Refresh).await;
                }
            }
            Incoming::Accepted { .. } | Incoming::Closed(_) => {}
        }
    }

    async fn command<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        session: &mut Session<S>,
        command: Command,
    ) {
        match command {
            Command::Choose { shown, decision, answer } => {
                let declined = self.feed(session, Input::Chosen { shown, decision }).await;
                // Who asked may have gone.
                let _ = answer.send(declined.map_or(Ok(()), Err));
            }
            Command::Open(id) => {
                self.feed(session, Input::Opened { id }).await;
            }
            Command::Refresh => {
                self.feed(session, Input::Refresh).await;
            }
            Command::Close => {}
        }
    }

    /// A time has come: to give calls up, to read again, or to show.
    async fn wake<S: AsyncRead + AsyncWrite + Unpin>(&mut self, session: &mut Session<S>) {
        let now = Instant::now();
        let late: Vec<_> =
            session.out.iter().filter(|(_, (_, until))| *until <= now).map(|(id, _)| id.clone()).collect();
        for id in late {
            session.connection.forget(&id);
            if let Some((tag, _)) = session.out.remove(&id) {
                self.feed(session, Input::Reply { tag, outcome: Err(Failure::Lost) }).await;
            }
        }
        if session.refresh_at <= now {
            session.refresh_at = now + REFRESH;
            self.feed(session, Input::Refresh).await;
        }
        if session.show_at.is_some_and(|at| at <= now) {
            session.show_at = None;
            self.publish(None);
        }
    }

    /// Tells the machine, and does what it asks. Answers why a choice was not sent.
    async fn feed<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        session: &mut Session<S>,
        input: Input,
    ) -> Option<Declined> {
        let mut declined = None;
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.machine.apply(input) {
                match effect {
                    Effect::Declined { why, .. } => declined = Some(why),
                    Effect::Call(call) => {
                        match session.connection.send(call.method, &call.params, false).await {
                            Ok(id) => {
                                session.out.insert(id, (call.tag, Instant::now() + ANSWER));
                            }
                            Err(SendError::TooLarge { .. }) => {
                                let outcome = Err(Failure::Lost);
                                inputs.push(Input::Reply { tag: call.tag, outcome });
                            }
                            // The close is what comes in next, and loses every call.
                            Err(SendError::Closed) => {}
                        }
                    }
                }
            }
        }
        session.show_at.get_or_insert_with(|| Instant::now() + SETTLE);
        declined
    }

    fn publish(&self, status: Option<Status>) {
        let view = self.machine.view();
        self.show.send_if_modified(|shown| {
            let status = status.unwrap_or_else(|| shown.status.clone());
            let now = Snapshot { status, view };
            let modified = *shown != now;
            *shown = now;
            modified
        });
    }
}

impl<S> Session<S> {
    /// When something is to be done next.
    fn wake_at(&self) -> Instant {
        let calls = self.out.values().map(|(_, until)| *until);
        calls.chain(self.show_at).fold(self.refresh_at, Instant::min)
    }
}
