//! Which quotations of a text are open at a place, as a shell and the texts nested in its arguments have them.
//!
//! Owns the rules for quotation signs, backslashes and `$(`. They are strict so that a value never seems to be quoted
//! where a shell has ended the quotation: what comes after would run and not be seen.

use super::bare::Unit;

/// Most backslashes before a sign that opens a quotation: four texts in each other.
const ESCAPES: usize = 15;

/// What is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// A quotation, whose sign stood behind that many backslashes.
    Quote { sign: u8, escapes: usize, is_ansi: bool },
    /// `$(`: quotations begin anew in it.
    Group,
}

/// A quotation sign with the backslashes before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    sign: u8,
    escapes: usize,
    /// `$'`: in such a quotation a backslash keeps the sign from closing.
    is_ansi: bool,
    /// The place after it.
    pub(super) after: usize,
}

/// What a sign does where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Opens,
    Closes,
    /// It is part of the text.
    Literal,
}

/// The open quotations, outermost first.
#[derive(Default)]
pub(super) struct Quotes(Vec<Open>);

/// Backslashes from here on.
pub(super) fn backslashes(units: &[Unit], at: usize) -> usize {
    units[at..].iter().take_while(|unit| unit.is_raw(b'\\')).count()
}

/// The quotation sign here, with the backslashes before it.
pub(super) fn sign_at(units: &[Unit], at: usize) -> Option<Sign> {
    let escapes = backslashes(units, at);
    let unit = units.get(at + escapes).filter(|unit| unit.is_raw(b'"') || unit.is_raw(b'\''))?;
    let is_ansi = unit.c == b'\'' && escapes == 0 && at > 0 && units[at - 1].is_raw(b'$');
    Some(Sign { sign: unit.c, escapes, is_ansi, after: at + escapes + 1 })
}

impl Sign {
    /// Whether no backslash stands before it.
    pub(super) fn is_outermost(self) -> bool {
        self.escapes == 0
    }

    /// Whether it ends the quotation that `open` began.
    fn ends(self, open: Open) -> bool {
        let Open::Quote { sign, escapes, is_ansi } = open else {
            return false;
        };
        // No backslash keeps an ordinary single quotation sign from closing.
        let is_level = self.escapes == escapes
            || (self.escapes > escapes && (self.escapes - escapes).is_multiple_of(2 * (escapes + 1)));
        sign == self.sign && (is_level || (sign == b'\'' && !is_ansi))
    }
}

impl Quotes {
    /// What the sign does.
    pub(super) fn role(&self, sign: Sign) -> Role {
        let here = self.here();
        if here.iter().any(|&open| sign.ends(open)) {
            return Role::Closes;
        }
        let is_nested =
            |open: &Open| matches!(open, Open::Quote { sign: b'"', escapes, .. } if *escapes < sign.escapes);
        let is_escaped = !sign.escapes.is_multiple_of(2);
        let is_nested = is_escaped && sign.escapes <= ESCAPES && here.iter().any(is_nested);
        // An escaped sign quotes only for whoever reads what an outer quotation holds.
        if is_escaped && (sign.sign == b'\'' || !is_nested) {
            return Role::Literal;
        }
        Role::Opens
    }

    /// Goes past the sign.
    pub(super) fn pass(&mut self, sign: Sign) -> Role {
        let role = self.role(sign);
        match role {
            Role::Opens => {
                let escapes = if sign.escapes.is_multiple_of(2) { 0 } else { sign.escapes };
                let is_ansi = sign.is_ansi && !self.is_double();
                self.0.push(Open::Quote { sign: sign.sign, escapes, is_ansi });
            }
            Role::Closes => {
                let here = self.0.len() - self.here().len();
                let ended = self.here().iter().rposition(|&open| sign.ends(open)).unwrap_or(0);
                self.0.truncate(here + ended);
            }
            Role::Literal => {}
        }
        role
    }

    /// Goes past a raw bracket; `is_command` if a `$` stood before it.
    pub(super) fn pass_bracket(&mut self, c: u8, is_command: bool) {
        let is_quoted = self.here().iter().any(|open| matches!(open, Open::Quote { sign: b'\'', .. }));
        let in_group = self.0.last() == Some(&Open::Group);
        match c {
            b'(' if in_group || (is_command && !is_quoted) => self.0.push(Open::Group),
            b')' if in_group => self.0.truncate(self.0.len() - 1),
            _ => {}
        }
    }

    /// Where the innermost quotation's content ends, if this sign ends it and none round it.
    pub(super) fn ends_innermost(&self, sign: Sign) -> Option<usize> {
        let (&last, outer) = self.here().split_last()?;
        let Open::Quote { escapes, .. } = last else {
            return None;
        };
        let is_own = sign.ends(last) && !outer.iter().any(|&open| sign.ends(open));
        is_own.then(|| (sign.after - 1).saturating_sub(escapes))
    }

    /// Leaves the innermost quotation: it is none, or one round it ends here.
    pub(super) fn forget(&mut self) {
        self.0.pop();
    }

    /// How many are open.
    pub(super) fn depth(&self) -> usize {
        self.0.len()
    }

    /// Forgets all but the outermost ones: what opened since then was in a comment.
    pub(super) fn leave_comment(&mut self, depth: usize) {
        self.0.truncate(depth);
    }

    /// Whether a shell that reads the text takes `$(` and backticks in a quotation of this sign for what they are.
    pub(super) fn keeps_commands(&self, sign: Sign) -> bool {
        !(self.0.is_empty() && sign.sign == b'\'')
    }

    /// Whether a double quotation is open, in which `\n` may be a line break.
    pub(super) fn is_double(&self) -> bool {
        self.here().iter().any(|open| matches!(open, Open::Quote { sign: b'"', .. }))
    }

    /// What is open since the innermost `$(`.
    fn here(&self) -> &[Open] {
        let group = self.0.iter().rposition(|open| *open == Open::Group);
        &self.0[group.map_or(0, |group| group + 1)..]
    }
}
