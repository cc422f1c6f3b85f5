//! The frames of every connection of a test, in order.

use std::sync::{Arc, Mutex, PoisonError};

/// Where a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the gateway.
    Sent,
    /// From the gateway.
    Received,
    /// The connection ended; the text says how.
    Closed,
}

impl Direction {
    /// As a trace writes it.
    pub const fn mark(self) -> &'static str {
        match self {
            Direction::Sent => ">",
            Direction::Received => "<",
            Direction::Closed => "<close",
        }
    }

    fn of_mark(mark: &str) -> Option<Self> {
        [Self::Sent, Self::Received, Self::Closed].into_iter().find(|direction| direction.mark() == mark)
    }
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The connection's name, which may hold spaces.
    pub name: String,
    /// Where the frame went.
    pub direction: Direction,
    /// The frame as it was written.
    pub text: String,
}

impl Line {
    /// Reads `name direction frame`. The name ends at the first direction mark between two spaces.
    pub fn parse(line: &str) -> Option<Self> {
        let (mut name, mut rest) = line.split_once(' ')?;
        loop {
            let (word, text) = rest.split_once(' ')?;
            if let Some(direction) = Direction::of_mark(word) {
                return Some(Self { name: name.to_owned(), direction, text: text.to_owned() });
            }
            name = &line[..name.len() + 1 + word.len()];
            rest = text;
        }
    }
}

/// A trace that several connections write to.
#[derive(Clone, Default)]
pub struct Trace {
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Trace {
    /// Everything so far, in the order it happened.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The trace as text: a line `name direction frame` for each frame.
    pub fn text(&self) -> String {
        let lines = self.lines();
        lines.iter().map(|line| format!("{} {} {}\n", line.name, line.direction.mark(), line.text)).collect()
    }

    pub(super) fn add(&self, name: &str, direction: Direction, text: &str) {
        let line = Line { name: name.to_owned(), direction, text: text.to_owned() };
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_whose_name_has_spaces_is_read() {
        let line = Line::parse(r#"bad nonce < {"a":" > "}"#).unwrap();
        assert_eq!((line.name.as_str(), line.direction), ("bad nonce", Direction::Received));
        assert_eq!(line.text, r#"{"a":" > "}"#);
    }

    #[test]
    fn a_line_without_a_direction_is_none() {
        assert_eq!(Line::parse("admin says nothing"), None);
    }
}
