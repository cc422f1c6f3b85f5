//! A home with a gateway process that can be killed and started again, and the binary to speak to it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A home directory and the gateway process that serves it.
pub struct World {
    dir: TempDir,
    address: String,
    gateway: Mutex<Option<Child>>,
}

impl World {
    /// A new home, served.
    pub fn start() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        // The port must survive a restart, so it is chosen here; the moment between is the only risk.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let world = Arc::new(Self { dir, address, gateway: Mutex::new(None) });
        world.serve();
        world
    }

    /// Starts the gateway; returns once it listens.
    pub fn serve(&self) {
        let mut command = self.holdgate(None, &["serve", "--listen", &self.address]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on "), "{line:?}");
        *self.gateway.lock().unwrap() = Some(child);
    }

    /// kill -9 of the gateway.
    pub fn kill_gateway(&self) {
        let mut gateway = self.gateway.lock().unwrap().take().expect("a gateway runs");
        gateway.kill().unwrap();
        gateway.wait().unwrap();
    }

    /// Where the gateway listens, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The home directory.
    pub fn home(&self) -> &Path {
        self.dir.path()
    }

    /// A path within the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The binary on this home, through `url` if given.
    pub fn holdgate(&self, url: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdgate"));
        command.arg("--home").arg(self.home());
        if let Some(url) = url {
            command.arg("--url").arg(url);
        }
        command.args(arguments).stdin(Stdio::null()).env_remove("HOLDGATE_URL").env_remove("HOLDGATE_TOKEN");
        command
    }

    /// Runs a reviewer's command against the gateway, again while the gateway is away.
    pub fn review(&self, arguments: &[&str]) -> Output {
        // The URL is named so that the command never opens the database itself while the gateway is down.
        let url = format!("http://{}", self.address);
        until("an answer of the gateway", || {
            let output = self.holdgate(Some(&url), arguments).output().unwrap();
            (output.status.code() != Some(7)).then_some(output)
        })
    }

    /// What `approvals show` says of an approval.
    pub fn approval(&self, id: &str) -> Value {
        let output = self.review(&["--json", "approvals", "show", id]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// Every approval there is.
    pub fn approvals(&self) -> Vec<Value> {
        let output = self.review(&["--json", "approvals", "list", "--all", "--limit", "100"]);
        let page: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        page["items"].as_array().unwrap().clone()
    }

    /// Allows an approval, as a reviewer would.
    pub fn allow(&self, id: &str) {
        let output = self.review(&["approvals", "allow", id]);
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut gateway) = self.gateway.lock().unwrap().take() {
            // It may be dead already.
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
    }
}

/// A process that a proxy can kill as soon as it exists.
#[derive(Clone, Default)]
pub struct Victim(Arc<Mutex<Option<u32>>>);

impl Victim {
    /// Names the process.
    pub fn is(&self, child: &Child) {
        *self.0.lock().unwrap() = Some(child.id());
    }

    /// kill -9.
    pub fn kill(&self) {
        let pid = loop {
            match *self.0.lock().unwrap() {
                Some(pid) => break pid,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
}

/// How many lines a log of side effects has. No log: none.
pub fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Waits until `condition` gives something, a minute at most.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_200 {
        if let Some(value) = condition() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} did not happen within a minute");
}

/// Runs every case, a few at a time, and names the one that failed.
pub fn each<T: Copy + Send + Sync + std::fmt::Debug>(cases: &[T], at_once: usize, run: impl Fn(T) + Sync) {
    for chunk in cases.chunks(at_once) {
        std::thread::scope(|scope| {
            for case in chunk {
                let run = &run;
                std::thread::Builder::new()
                    .name(format!("{case:?}"))
                    .spawn_scoped(scope, move || run(*case))
                    .unwrap();
            }
        });
    }
}
