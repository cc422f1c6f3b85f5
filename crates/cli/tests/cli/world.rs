//! A home of its own, the binary on it, and a gateway that can be stopped and started.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use holdgate_authority::Authority as _;
use holdgate_client::Remote;
use holdgate_wire::{Approval, CreateApproval, CreateRun, LeaseRun, RunBinding};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long anything may take that does not wait for a person.
pub const SOON: Duration = Duration::from_secs(20);

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The one JSON document on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A home directory that does not exist yet, in a place of its own.
pub struct World {
    dir: TempDir,
    runtime: Runtime,
}

impl World {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), runtime: Runtime::new().unwrap() }
    }

    /// A place beside the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        // A space in it: whatever names it to people has to quote it.
        self.path("a home")
    }

    pub fn database(&self) -> PathBuf {
        self.home().join("holdgate.db")
    }

    pub fn token(&self, name: &str) -> String {
        std::fs::read_to_string(self.home().join(name)).unwrap().trim_end().to_owned()
    }

    /// The binary on this home, untouched by the environment of whoever runs the tests.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare();
        command.arg("--home").arg(self.home()).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.finish(&mut self.command(arguments))
    }

    /// Runs a command to its end; no credential may be anywhere in what it prints.
    pub fn finish(&self, command: &mut Command) -> Ended {
        self.checked(command.output().unwrap())
    }

    /// Waits for a command that was started with its output piped.
    pub fn wait(&self, child: Child) -> Ended {
        self.checked(child.wait_with_output().unwrap())
    }

    fn checked(&self, output: Output) -> Ended {
        let ended = Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        self.check_for_tokens(&ended.stdout);
        self.check_for_tokens(&ended.stderr);
        ended
    }

    fn check_for_tokens(&self, text: &str) {
        for name in ["operator.token", "agent.token"] {
            if let Ok(token) = std::fs::read_to_string(self.home().join(name)) {
                let token = token.trim_end();
                assert!(token.is_empty() || !text.contains(token), "a credential was printed");
            }
        }
    }

    /// Starts a gateway on a free port.
    pub fn serve(&self) -> Served<'_> {
        self.serve_with(&[])
    }

    /// Starts a gateway where an earlier one was.
    pub fn serve_at(&self, address: &str) -> Served<'_> {
        self.start(self.command(&["serve", "--listen", address]))
    }

    /// Starts a gateway on a free port, with more arguments.
    pub fn serve_with(&self, arguments: &[&str]) -> Served<'_> {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        self.start(command)
    }

    /// Starts a gateway by a whole command.
    pub fn start(&self, mut command: Command) -> Served<'_> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("listening on ").map(str::to_owned);
        let Some(url) = url else { panic!("{line:?} {:?}", self.wait(child)) };
        Served { world: self, child: Some(child), stdout, url }
    }

    /// Makes a request of a live process.
    pub fn ask(&self, served: &Served<'_>, request: Value) -> Approval {
        self.runtime.block_on(async {
            let request = serde_json::from_value(request).unwrap();
            served.agent().create(request, None).await.unwrap().approval
        })
    }

    /// Makes a request of a stored run: it outlives every process.
    pub fn ask_of_a_run(&self, served: &Served<'_>, name: &str) -> Approval {
        self.runtime.block_on(async {
            let agent = served.agent();
            let run = agent.create_run(CreateRun { id: None, agent: "deployer".to_owned() }).await.unwrap();
            let fence = agent.lease_run(&run.id, LeaseRun::default()).await.unwrap().fence;
            let request: CreateApproval = serde_json::from_value(exec(&[name])).unwrap();
            let run = Some(RunBinding { id: run.id, fence });
            agent
                .create(CreateApproval { run, boundary: Some(name.to_owned()), ..request }, None)
                .await
                .unwrap()
                .approval
        })
    }

    /// Calls a request off.
    pub fn cancel(&self, served: &Served<'_>, id: &str) {
        self.runtime.block_on(served.agent().cancel(id, holdgate_wire::Cancel::default())).unwrap();
    }

    /// How a record stands in the gateway's own words.
    pub fn read(&self, served: &Served<'_>, id: &str) -> Approval {
        self.runtime.block_on(served.agent().get(id)).unwrap()
    }
}

/// The binary without a home.
pub fn bare() -> Command {
    let mut command = holdgate_testkit::process::command(env!("CARGO_BIN_EXE_holdgate"));
    for name in ["HOLDGATE_URL", "HOLDGATE_HOME", "HOLDGATE_TOKEN", "HOLDGATE_LOG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).env("TZ", "UTC");
    command
}

/// A request for a command.
pub fn exec(argv: &[&str]) -> Value {
    json!({"kind": "exec", "content": {"argv": argv}, "source": {"agent": "deployer"}})
}

/// A gateway process.
pub struct Served<'a> {
    world: &'a World,
    child: Option<Child>,
    stdout: BufReader<std::process::ChildStdout>,
    pub url: String,
}

impl Served<'_> {
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn agent(&self) -> Remote {
        Remote::new(&self.url, &self.world.token("agent.token")).unwrap()
    }

    /// Tells it to stop, as a service manager does; answers what it printed and how long it took.
    pub fn stop(mut self) -> (Ended, Duration) {
        let mut child = self.child.take().unwrap();
        let started = now();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        let took = now().duration_since(started);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        self.world.check_for_tokens(&stderr);
        (Ended { code: status.code().unwrap_or(-1), stdout: rest, stderr }, took)
    }

    /// Sends one plain HTTP request; answers everything that came back.
    pub fn get(&self, path: &str, token: Option<&str>) -> String {
        let mut stream = self.connect(path, token);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends one plain HTTP request and leaves it open.
    pub fn connect(&self, path: &str, token: Option<&str>) -> TcpStream {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{authorization}\r\n")
            .unwrap();
        stream
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A failing test leaves no process behind; a test that stopped it by itself has nothing here.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Looks until something is so.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now().duration_since(started) < SOON, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test bounds how long it waits; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

/// The permission bits of a file.
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
