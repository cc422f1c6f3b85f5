//! `approvals watch` at a gateway: a surface that shows, sends and believes only what the gateway says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use holdgate_core::approval::Status;

use crate::world::{World, exec, until};

/// A running watch: its lines as they come, and its keyboard.
struct Watch {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Watch {
    fn start(world: &World) -> Self {
        let mut command = world.command(&["approvals", "watch"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (send, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| drop(send.send(line)))
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that holds all of this.
    fn until(&mut self, parts: &[&str]) {
        until(&format!("{parts:?}"), || {
            self.seen.extend(self.lines.try_iter());
            self.seen.iter().find(|line| parts.iter().all(|part| line.contains(part))).map(drop)
        });
    }

    fn types(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

#[test]
fn a_watched_request_is_answered_from_there_or_seen_to_be_answered_elsewhere() {
    let world = World::new();
    let served = world.serve();
    let before = world.ask(&served, exec(&["before"]));
    let mut watch = Watch::start(&world);
    watch.until(&["  1  ", &before.id, "pending", "before"]);
    let after = world.ask(&served, exec(&["after", "\u{202e}txt"]));
    watch.until(&["  2  ", &after.id, "pending", "after '\\u{202E}txt'"]);

    watch.types("a 1");
    watch.until(&["  1  ", &before.id, "allowed from here"]);
    assert_eq!(world.read(&served, &before.id).status, Status::Allowed);
    assert_eq!(world.run(&["approvals", "deny", &after.id]).code, 0);
    watch.until(&["  2  ", &after.id, "denied elsewhere by operator"]);

    watch.types("q");
    assert!(watch.child.wait().unwrap().success());
}

#[test]
fn a_watch_without_a_gateway_says_so() {
    let world = World::new();
    let ended = world.run(&["approvals", "watch"]);
    assert_eq!(ended.code, 7);
    assert!(ended.stderr.contains("no gateway serves the home"), "{}", ended.stderr);
}
