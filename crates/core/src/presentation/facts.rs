//! The list of facts of one presentation, within the display limit.
//!
//! Owns how a JSON value and its place in the content are written, and that nothing is cut: what does not fit is
//! refused while it is being written. Does not know kinds of actions; `describe` does.

use serde_json::{Map, Value};

use super::secret::{MASK, Masked, Place};
use super::visible::{Overflow, Quote, within, write_within};
use super::{DISPLAY_LIMIT, Fact, NotPresentable};

/// Deepest nesting of content. The JSON parser refuses more; a value built in memory must not exhaust the stack.
const NESTING: usize = 128;

/// Facts so far, and the characters they take.
#[derive(Default)]
pub(super) struct Facts {
    list: Vec<Fact>,
    used: usize,
}

impl Facts {
    /// Adds a fact whose size has its own bound: it does not count against the limit.
    pub(super) fn push_bounded(&mut self, label: String, text: String) {
        self.list.push(Fact { label, text });
    }

    /// Adds a fact.
    pub(super) fn push(&mut self, label: String, text: String) -> Result<(), NotPresentable> {
        self.used += label.chars().count() + text.chars().count();
        if self.used > DISPLAY_LIMIT {
            return Err(NotPresentable::TooLong { shown: self.used, limit: DISPLAY_LIMIT });
        }
        self.list.push(Fact { label, text });
        Ok(())
    }

    /// The string in double quotes, its secrets masked, if it can still fit.
    pub(super) fn quoted(&self, text: &str) -> Result<String, NotPresentable> {
        self.quoted_at(text, Place::Open)
    }

    fn quoted_at(&self, text: &str, place: Place) -> Result<String, NotPresentable> {
        within(&Masked::at(text, place), Quote::Double, self.room()).map_err(|over| self.too_long(over))
    }

    /// Adds every leaf of `value`, one fact each; an empty object or array is a leaf.
    pub(super) fn leaves(&mut self, path: &mut Path, value: &Value) -> Result<(), NotPresentable> {
        match value {
            Value::Object(object) if !object.is_empty() => {
                for (key, value) in object {
                    self.inside(path, Step::Field(object, key), |facts, path| facts.leaves(path, value))?;
                }
                Ok(())
            }
            Value::Array(items) if !items.is_empty() => {
                for (index, value) in items.iter().enumerate() {
                    self.inside(path, Step::Item(items, index), |facts, path| facts.leaves(path, value))?;
                }
                Ok(())
            }
            Value::String(text) => {
                let text = self.quoted_at(text, path.place)?;
                self.push(path.label(), text)
            }
            Value::Number(_) if path.place.hides_numbers() => self.push(path.label(), MASK.to_owned()),
            leaf => self.push(path.label(), leaf.to_string()),
        }
    }

    /// Runs `add` one step further down the path.
    pub(super) fn inside(
        &mut self,
        path: &mut Path,
        step: Step<'_>,
        add: impl FnOnce(&mut Self, &mut Path) -> Result<(), NotPresentable>,
    ) -> Result<(), NotPresentable> {
        if path.depth == NESTING {
            return Err(NotPresentable::Malformed {
                at: "content".to_owned(),
                expected: "at most 128 levels of nesting",
            });
        }
        let (outer, place) = (path.text.len(), path.place);
        path.enter(step, self.room()).map_err(|over| self.too_long(over))?;
        let added = add(self, path);
        path.text.truncate(outer);
        path.place = place;
        path.depth -= 1;
        added
    }

    pub(super) fn into_list(self) -> Vec<Fact> {
        self.list
    }

    fn room(&self) -> usize {
        DISPLAY_LIMIT - self.used
    }

    fn too_long(&self, over: Overflow) -> NotPresentable {
        NotPresentable::TooLong { shown: self.used + over.chars, limit: DISPLAY_LIMIT }
    }
}

/// One step into content.
pub(super) enum Step<'a> {
    /// A field that we know.
    Key(&'a str),
    /// A field of this object.
    Field(&'a Map<String, Value>, &'a str),
    /// An item of this list.
    Item(&'a [Value], usize),
}

/// A place in the content, as a label: `input.files[2]."odd key"`.
///
/// A key is bare only if it starts with a small letter or `_`, so that no key reads as one of our own labels, which start with a
/// capital.
#[derive(Default)]
pub(super) struct Path {
    text: String,
    depth: usize,
    /// What the way to here says of the leaf: a credential's name makes it a secret.
    place: Place,
    note: &'static str,
}

impl Path {
    /// Labels from here on carry the note after the path.
    pub(super) fn with_note(note: &'static str) -> Self {
        Self { note, ..Self::default() }
    }

    pub(super) fn label(&self) -> String {
        [self.text.as_str(), self.note].concat()
    }

    fn enter(&mut self, step: Step<'_>, room: usize) -> Result<(), Overflow> {
        match step {
            Step::Item(items, index) => {
                self.place = self.place.item(items, index);
                self.text += &format!("[{index}]");
            }
            Step::Key(key) | Step::Field(_, key) => {
                if let Step::Field(object, _) = step {
                    self.place = self.place.field(object, key);
                }
                if !self.text.is_empty() {
                    self.text.push('.');
                }
                write_key(&mut self.text, key, room)?;
            }
        }
        self.depth += 1;
        Ok(())
    }
}

/// Writes a key: bare where that cannot be misread, else quoted.
pub(super) fn write_key(out: &mut String, key: &str, room: usize) -> Result<usize, Overflow> {
    let key = Masked::of(key);
    let shown = key.as_str();
    let is_bare = shown.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && shown.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    write_within(out, &key, if is_bare { Quote::None } else { Quote::Double }, room)
}
