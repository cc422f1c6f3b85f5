//! What an idle connection costs a gateway in memory. The other ends are another process's.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use holdgate_testkit::gateway::{Persona, TestGateway};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;
use crate::wire::Wire;

const CONNECTIONS: usize = 2_000;
/// Opened before anything is measured, so that what is made once is not counted.
const FIRST: usize = 100;
/// The argument that makes this program the other end.
pub const HOLD: &str = "hold";

/// As many files as may be.
pub fn raise_the_limit_of_files() -> Result<(), Failure> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Prints how much memory each takes.
pub async fn measure() -> Result<(), Failure> {
    let gateway = TestGateway::start().await;
    let url = gateway.url.clone();
    let (before, after) = tokio::task::spawn_blocking(move || -> Result<_, String> {
        let mut first = Held::open(&url, FIRST)?;
        let before = resident()?;
        let mut rest = Held::open(&url, CONNECTIONS)?;
        let after = resident()?;
        rest.close()?;
        first.close()?;
        Ok((before, after))
    })
    .await??;
    let each = (after - before) as f64 / CONNECTIONS as f64 / 1_024.0;
    println!(
        "\n{CONNECTIONS} idle WebSocket reviewers: {each:.1} KiB each of the gateway's memory (resident)"
    );
    gateway.stop().await;
    Ok(())
}

/// The other end: opens connections, says so, and keeps them until its input ends.
pub async fn hold(url: &str, count: usize) -> Result<(), Failure> {
    let mut held = Vec::new();
    // No identity gets more than half of a gateway's places.
    for persona in [Persona::Reviewer, Persona::OtherReviewer].into_iter().cycle().take(count) {
        held.push(Wire::reviewer_as(persona, url, true).await?);
    }
    println!("held");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    drop(held);
    Ok(())
}

struct Held(std::process::Child);

impl Held {
    fn open(url: &str, count: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut child = Command::new(program)
            .args([HOLD, url, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        if line.trim() == "held" { Ok(Self(child)) } else { Err(format!("not all connected: {line:?}")) }
    }

    fn close(&mut self) -> Result<(), String> {
        drop(self.0.stdin.take());
        self.0.wait().map(drop).map_err(|e| e.to_string())
    }
}

/// This process's resident memory, in bytes.
fn resident() -> Result<u64, String> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(|e| e.to_string())?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or("no resident size")? * rustix::param::page_size() as u64)
}
