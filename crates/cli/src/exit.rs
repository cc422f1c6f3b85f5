//! How a command ends: its exit code, and what it says on the error stream when it could not do what was asked.

use std::process::ExitCode;

use holdgate_authority::Error;
use holdgate_wire::{Code, Problem};

/// A command's exit code. Scripts rely on these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or allowed.
    Done = 0,
    /// Something went wrong.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Denied.
    Denied = 3,
    /// Another answer stands.
    AnsweredOtherwise = 4,
    /// No such approval, or none that this credential may see.
    NotFound = 5,
    /// It expired or was cancelled.
    Over = 6,
    /// No gateway can be reached.
    Unreachable = 7,
    /// Still pending.
    Pending = 8,
    /// Another process holds the run.
    Held = 9,
    /// The command was not run.
    NotRun = 77,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what was asked, for people, and its exit code, for scripts.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What, where, and what to do.
    pub why: anyhow::Error,
    /// The authority's own words, when it said no.
    pub problem: Option<Box<Problem>>,
}

impl Failure {
    /// Ends with `exit`, saying `why`.
    pub fn new(exit: Exit, why: impl Into<String>) -> Self {
        Self { exit, why: anyhow::Error::msg(why.into()), problem: None }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(why: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, why, problem: None }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        anyhow::Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.code() {
            None => Exit::Unreachable,
            Some(Code::AlreadyDecided) => Exit::AnsweredOtherwise,
            Some(Code::NotFound) => Exit::NotFound,
            Some(Code::Expired | Code::Cancelled) => Exit::Over,
            Some(_) => Exit::Failed,
        };
        let problem = match &error {
            Error::Problem(problem) => Some(problem.clone()),
            Error::Unreachable { .. } => None,
        };
        Self { exit, why: error.into(), problem }
    }
}

/// Says something to whoever watches: progress, warnings, errors. Never on standard output.
pub fn say(text: &str) {
    use std::io::Write as _;
    // Nobody may be listening any more; the exit code still says how it ended.
    let _ = writeln!(std::io::stderr().lock(), "holdgate: {text}");
}
