//! Secrets that the name before them gives away: `password=…`, `--token …`, `"apiKey": "…"`, `Authorization: …`.
//!
//! Owns where the value of such a field begins and ends. It ends too early rather than too late where a shell could
//! run what follows: a mask must never hide a command.

use super::Span;
use super::bare::{Unit, spelt};
use super::name::{Credential, credential, is_switch};
use super::quote::{Quotes, Role, Sign, backslashes, sign_at};
use super::value::{self, is_option};

/// Options that take a whole header, and that take `user:password` (of `curl`).
pub(super) const HEADER_OPTIONS: &[&str] = &["-H", "--header", "--proxy-header"];
pub(super) const LOGIN_OPTIONS: &[&str] = &["-u", "--user", "-U", "--proxy-user"];

/// Reads a text once, from its beginning to its end.
struct Reader<'a, 'f> {
    units: &'a [Unit],
    quotes: Quotes,
    found: &'f mut Vec<Span>,
    /// Where a quotation began right after an option that takes a header.
    header: Option<usize>,
    /// Where a word began right after such an option.
    header_word: Option<usize>,
    /// Such a quotation was never closed; another is not looked for.
    has_unclosed_header: bool,
    /// In a comment of a shell's: how many quotations were open when it began. Its own end with its line.
    comment: Option<usize>,
    /// `curl` has been named.
    is_curl: bool,
    /// From these places on, no such sign closes a quotation.
    unclosed: [usize; 2],
}

/// What is known of a value from what stands before it.
#[derive(Clone, Copy, Default)]
struct Field {
    spares_numbers: bool,
    /// It is a query parameter: `#` ends it.
    is_query: bool,
    /// More values follow, with names of their own, after `;`.
    is_cookie: bool,
    /// The quotation that is open already holds the value and nothing else.
    is_header: bool,
    /// Only what comes after a colon is secret.
    is_login: bool,
    /// What parts it from its name is not a bare `=`: it may be code.
    is_loose: bool,
}

/// Everything of the text that is a secret by its name.
pub(super) fn find(units: &[Unit], found: &mut Vec<Span>) {
    let unclosed = [units.len(); 2];
    let quotes = Quotes::default();
    Reader {
        units,
        quotes,
        found,
        header: None,
        header_word: None,
        has_unclosed_header: false,
        comment: None,
        is_curl: false,
        unclosed,
    }
    .read();
}

impl Reader<'_, '_> {
    fn read(&mut self) {
        let mut at = 0;
        while let Some(&unit) = self.units.get(at) {
            self.comment = self.comment.filter(|&depth| depth <= self.quotes.depth());
            at = match unit.c {
                b'#' if unit.raw && self.begins_word(at) => {
                    self.comment = self.comment.or(Some(self.quotes.depth()));
                    at + 1
                }
                b'\n' => {
                    if let Some(depth) = self.comment.take() {
                        self.quotes.leave_comment(depth);
                    }
                    at + 1
                }
                b'\\' | b'"' | b'\'' if unit.raw => self.sign(at),
                b'$' if unit.raw && self.is_raw(at + 1, b'(') => {
                    self.quotes.pass_bracket(b'(', true);
                    at + 2
                }
                b'(' | b')' if unit.raw => {
                    self.quotes.pass_bracket(unit.c, false);
                    at + 1
                }
                _ if unit.is_name() => {
                    let length = self.units[at..].iter().take_while(|unit| unit.is_name()).count();
                    self.name(at, at + length)
                }
                _ => at + 1,
            };
        }
    }

    fn is_raw(&self, at: usize, c: u8) -> bool {
        self.units.get(at).is_some_and(|unit| unit.is_raw(c))
    }

    /// Whether a word of a shell's can begin here, in a text of its own too.
    fn begins_word(&self, at: usize) -> bool {
        at == 0 || b" \t\n;|&()<>`\"'[,".contains(&self.units[at - 1].c)
    }

    fn blanks(&self, at: usize) -> usize {
        self.units[at..].iter().take_while(|unit| unit.is_blank()).count()
    }

    /// Goes past backslashes and the quotation sign after them.
    fn sign(&mut self, at: usize) -> usize {
        match sign_at(self.units, at) {
            Some(sign) => {
                self.quotes.pass(sign);
                sign.after
            }
            None => at + backslashes(self.units, at),
        }
    }

    /// A word that could be the name of a field; answers where to go on.
    fn name(&mut self, start: usize, end: usize) -> usize {
        self.is_curl |= self.units[start..end].iter().map(|unit| unit.c).eq(*b"curl");
        // Cheap, and true of few words.
        let follows = self.units.get(end + self.blanks(end)).map_or(b' ', |unit| unit.c);
        if self.units[start].c != b'-' && !b"=:\"'\\]".contains(&follows) {
            return end;
        }
        let name = spelt(&self.units[start..end]);
        if HEADER_OPTIONS.contains(&name.as_str()) {
            let skipped =
                self.units[end..].iter().take_while(|unit| unit.is_blank() || unit.is_raw(b'=')).count();
            let sign =
                sign_at(self.units, end + skipped).filter(|&sign| self.quotes.role(sign) == Role::Opens);
            self.header_word = Some(end + skipped);
            self.header = sign.map(|sign| sign.after);
        }
        let is_login = self.is_curl && LOGIN_OPTIONS.contains(&name.as_str());
        // In `\ntoken` the first letter may belong to the escape.
        let is_escape = start > 0 && self.is_raw(start - 1, b'\\') && name.starts_with(['n', 'r', 't']);
        let known = credential(&name).or_else(|| credential(&name[usize::from(is_escape)..]));
        if known.is_none() && !is_login {
            return end;
        }
        let before = start.checked_sub(1).map(|before| self.units[before].c);
        let lower = name.to_ascii_lowercase();
        let mut field = Field {
            spares_numbers: known == Some(Credential::TextOnly),
            is_query: matches!(before, Some(b'?' | b'&')),
            is_cookie: lower.ends_with("cookie"),
            is_login,
            ..Field::default()
        };
        let mut at = self.close_name(end);
        let is_bare = at == end;
        let blanks = self.blanks(at);
        let Some((value, sign)) = self.separator(at + blanks) else {
            let is_option = self.begins_word(start)
                && name.starts_with('-')
                && is_bare
                && blanks > 0
                && !is_switch(&name);
            if is_option && !is_option_at(self.units, at + blanks) {
                at = self.value(at + blanks, field);
            }
            return at;
        };
        let gap = self.blanks(value);
        if sign == b'=' && blanks == 0 && gap > 0 {
            // To a shell, the value is empty and a command follows.
            return value;
        }
        if name == "PWD" && self.is_raw(value, b'/') {
            // The working directory, not a password.
            return value;
        }
        if sign == b':' && gap > 0 && before == Some(b'=') && self.header_word != Some(start) {
            // Nor is `a=Cookie: rm`: to a shell, a command follows.
            return value;
        }
        field.is_loose = sign == b':' || blanks > 0;
        field.is_header = is_bare && sign == b':' && self.header == Some(start) && !self.has_unclosed_header;
        self.value(value + gap, field)
    }

    /// Goes past what closes a name: quotation signs and brackets.
    fn close_name(&mut self, mut at: usize) -> usize {
        for _ in 0..4 {
            match sign_at(self.units, at) {
                Some(sign) if self.quotes.role(sign) != Role::Opens => at = self.sign(at),
                None if self
                    .units
                    .get(at)
                    .is_some_and(|u| u.c == b']' || (!u.raw && matches!(u.c, b'"' | b'\''))) =>
                {
                    at += 1;
                }
                _ => break,
            }
        }
        at
    }

    /// The place after what parts a name from its value, and its first sign.
    fn separator(&self, at: usize) -> Option<(usize, u8)> {
        let c = |offset: usize| self.units.get(at + offset).map_or(b' ', |unit| unit.c);
        match (c(0), c(1), c(2)) {
            (b'=', b'=' | b'~', _) | (b':', b':', _) | (b':', b'/', b'/') => None,
            (b'=', b'>', _) | (b':', b'=', _) => Some((at + 2, b':')),
            (sign @ (b'=' | b':'), ..) => Some((at + 1, sign)),
            _ => None,
        }
    }

    /// Masks the value that begins here; answers where to go on.
    fn value(&mut self, at: usize, mut field: Field) -> usize {
        if field.is_header {
            if let Some(end) = self.header_value(at) {
                self.hide(at, end, field);
                return end;
            }
            self.has_unclosed_header = true;
            field.is_header = false;
        }
        if let Some(inside) = self.container(at, field) {
            return inside;
        }
        if self.is_raw(at, b'[')
            && self.units.get(at + 1).is_some_and(|unit| b" \t\n\"'\\]".contains(&unit.c))
        {
            return self.list(at, field);
        }
        let mut end = self.one_value(at, field);
        while field.is_cookie && self.is_raw(end, b';') {
            let name = end + 1 + self.blanks(end + 1);
            let length = self.units[name..].iter().take_while(|unit| unit.is_name()).count();
            if length == 0 || !self.is_raw(name + length, b'=') {
                break;
            }
            end = self.one_value(name + length + 1, field);
        }
        end
    }

    /// Where to go on if it is not a value that begins here but fields of their own (`{`), or code that fetches one
    /// (`os.environ[`).
    fn container(&self, at: usize, field: Field) -> Option<usize> {
        if !field.is_loose || self.is_raw(at, b'{') {
            return field.is_loose.then_some(at + 1);
        }
        let is_path =
            |unit: &&Unit| unit.raw && (unit.c.is_ascii_alphanumeric() || matches!(unit.c, b'_' | b'.'));
        let length = self.units[at..].iter().take_while(is_path).count();
        (length > 0 && self.is_raw(at + length, b'[')).then_some(at + length)
    }

    /// Masks the quoted values of a list.
    fn list(&mut self, bracket: usize, field: Field) -> usize {
        let mut at = bracket + 1;
        let mut is_first = true;
        loop {
            at += self.units[at..].iter().take_while(|unit| unit.is_blank() || unit.c == b'\n').count();
            match sign_at(self.units, at) {
                // Of a list whose first quotation never closes, the bracket may belong to the value.
                Some(sign) if self.quotes.role(sign) == Role::Opens => {
                    at = self.quoted(if is_first { bracket } else { at }, sign, field);
                }
                _ => return at,
            }
            if !self.is_raw(at, b',') {
                return at;
            }
            at += 1;
            is_first = false;
        }
    }

    fn one_value(&mut self, at: usize, field: Field) -> usize {
        let Some(sign) = sign_at(self.units, at) else {
            return self.word(at, at, field);
        };
        match self.quotes.role(sign) {
            // The sign ends what the name stood in. To a shell, the word goes on.
            Role::Closes => {
                self.quotes.pass(sign);
                self.word(sign.after, sign.after, field)
            }
            Role::Literal => self.word(at, at, field),
            Role::Opens => self.quoted(at, sign, field),
        }
    }

    /// A value that begins with a quotation. If that is none, or not all of it, the value begins at `start`.
    fn quoted(&mut self, start: usize, sign: Sign, field: Field) -> usize {
        match self.quotation(sign) {
            None => self.word(start, sign.after, field),
            Some((end, next)) if self.is_joined(end, next) => self.word(start, next, field),
            Some((end, next)) => {
                self.hide(sign.after, end, field);
                next
            }
        }
    }

    /// Whether the word goes on after the quotation that ended at `end`: `'it'\''s'`.
    fn is_joined(&self, end: usize, next: usize) -> bool {
        let goes_on = |unit: &Unit| {
            unit.c.is_ascii_alphanumeric() || (unit.raw && matches!(unit.c, b'\\' | b'\'' | b'"' | b'$'))
        };
        let is_outer = sign_at(self.units, next).is_some_and(|sign| self.quotes.role(sign) == Role::Closes);
        next > end && !is_outer && self.units.get(next).is_some_and(goes_on)
    }

    /// Goes through a quotation: where its content ends and where to go on. Both are the same if a command begins there
    /// or a quotation round it ends. Nothing if it is never closed.
    fn quotation(&mut self, sign: Sign) -> Option<(usize, usize)> {
        let unclosed = usize::from(self.is_raw(sign.after - 1, b'"'));
        if sign.after >= self.unclosed[unclosed] {
            return None;
        }
        let has_commands = self.quotes.keeps_commands(sign);
        self.quotes.pass(sign);
        let mut at = sign.after;
        while at < self.units.len() {
            if has_commands && self.is_command(at) {
                return Some((at, at));
            }
            if self.comment.is_some() && self.units[at].c == b'\n' {
                self.quotes.forget();
                return None;
            }
            match sign_at(self.units, at) {
                None => at += backslashes(self.units, at).max(1),
                Some(closing) if self.quotes.role(closing) == Role::Closes => {
                    let Some(end) = self.quotes.ends_innermost(closing) else {
                        self.quotes.forget();
                        return Some((at, at));
                    };
                    self.quotes.pass(closing);
                    return Some((end, closing.after));
                }
                Some(inner) => at = inner.after,
            }
        }
        self.quotes.forget();
        if sign.is_outermost() {
            self.unclosed[unclosed] = sign.after;
        }
        None
    }

    /// A header that fills the quotation it stands in. Nothing if that is never closed.
    fn header_value(&mut self, start: usize) -> Option<usize> {
        let mut at = start;
        while at < self.units.len() && self.units[at].c != b'\n' && !self.is_command(at) {
            match sign_at(self.units, at) {
                Some(sign) if self.quotes.role(sign) == Role::Closes => break,
                Some(sign) => at = sign.after,
                None => at += backslashes(self.units, at).max(1),
            }
        }
        (at < self.units.len()).then_some(at)
    }

    /// Whether a shell would run what begins here.
    fn is_command(&self, at: usize) -> bool {
        self.is_raw(at, b'`') || (self.is_raw(at, b'$') && self.is_raw(at + 1, b'('))
    }

    /// A value without quotation signs round it, or of several parts; `at` is where it has been read to.
    fn word(&mut self, start: usize, mut at: usize, field: Field) -> usize {
        while let Some(&unit) = self.units.get(at) {
            if let Some(sign) = sign_at(self.units, at) {
                match self.quotes.role(sign) {
                    Role::Closes => break,
                    Role::Literal => at = sign.after,
                    Role::Opens => match self.quotation(sign) {
                        Some((end, next)) if end == next => {
                            // The sign stays: it is needed to read what follows.
                            self.hide(start, at, field);
                            self.hide(sign.after, end, field);
                            return end;
                        }
                        Some((_, next)) => at = next,
                        None => at = sign.after,
                    },
                }
                continue;
            }
            let escapes = backslashes(self.units, at);
            if escapes > 0 {
                let escaped = self.units.get(at + escapes).filter(|_| !escapes.is_multiple_of(2));
                let is_break = escaped.is_some_and(|unit| matches!(unit.c, b'n' | b'r' | b't'));
                if is_break && self.quotes.is_double() {
                    break;
                }
                let is_taken = escaped.is_some_and(|unit| unit.c != b'\n');
                at += escapes + usize::from(is_taken);
                continue;
            }
            if self.is_command(at) || self.ends_word(at, unit, field) {
                break;
            }
            at += 1;
        }
        self.end_word(start, at, field)
    }

    fn end_word(&mut self, start: usize, end: usize, field: Field) -> usize {
        let word = &self.units[start..end];
        if self.is_raw(end, b'(') && value::is_path(word) {
            return end;
        }
        if !value::is_scheme(word) {
            self.hide(start, end, field);
            return end;
        }
        let next = end + self.blanks(end);
        let is_credential = |unit: &Unit| unit.c.is_ascii_alphanumeric() || b"._~+/=".contains(&unit.c);
        let length = self.units[next..].iter().take_while(|unit| !unit.is_blank()).count();
        let has_more = next > end && self.units.get(next).is_some_and(is_credential);
        let after = &self.units[next..next + length];
        // To a shell, what comes after `x=Bearer` is a command.
        let is_command = !field.is_loose && value::is_like_a_program(after);
        if !has_more || is_command || spelt(after).contains("://") {
            return end;
        }
        self.credentials(next, field)
    }

    /// What comes after an authentication scheme: one word, or several with commas between them.
    fn credentials(&mut self, start: usize, field: Field) -> usize {
        let mut end = start;
        loop {
            end += self.units[end..].iter().take_while(|unit| !self.stops_credentials(unit)).count();
            let next = end + self.blanks(end);
            let goes_on = next > end
                && self.units[end - 1].c == b','
                && self.units.get(next).is_some_and(Unit::is_name);
            if !goes_on {
                break;
            }
            end = next;
        }
        self.hide(start, end, field);
        end
    }

    fn stops_credentials(&self, unit: &Unit) -> bool {
        let is_sign =
            unit.is_raw(b'\'') || unit.is_raw(b'\\') || (unit.is_raw(b'"') && self.quotes.is_double());
        is_sign || value::ends(unit)
    }

    fn ends_word(&self, at: usize, unit: Unit, field: Field) -> bool {
        // A comma belongs to the value unless another field or another element comes after it.
        let is_comma = unit.is_raw(b',') && {
            let name = self.units[at + 1..].iter().take_while(|unit| unit.is_name()).count();
            let after = self.units.get(at + 1 + name);
            let follows: &[u8] = if name > 0 { b"=:" } else { b" \t\n\"'\\" };
            after.map_or(name == 0, |unit| follows.contains(&unit.c))
        };
        // In JSON and code, so does a closing bracket if the field ends there.
        let is_bracket = field.is_loose && (unit.is_raw(b'}') || unit.is_raw(b']')) && {
            let after = self.units.get(at + 1);
            after.is_none_or(|unit| b" \t\n,;)}]\"'\\".contains(&unit.c))
        };
        value::ends(&unit) || is_comma || is_bracket || (field.is_query && unit.is_raw(b'#'))
    }

    /// Masks a value, without the authentication scheme that it begins with.
    fn hide(&mut self, start: usize, end: usize, field: Field) {
        let units = &self.units[start..end];
        let units = if field.is_login {
            let colon = units.iter().position(|unit| unit.c == b':');
            colon.map_or(&units[..0], |colon| &units[colon + 1..])
        } else {
            value::without_scheme(units)
        };
        let is_spared = field.spares_numbers && units.iter().all(|unit| unit.c.is_ascii_digit());
        if !is_spared && !value::is_plain(units) {
            let span = Span::unless_open(units);
            self.found.extend(span.map(|span| if field.is_header { span.in_header() } else { span }));
        }
    }
}

fn is_option_at(units: &[Unit], at: usize) -> bool {
    let length = units[at..].iter().take_while(|unit| !unit.is_blank() && unit.c != b'\n').count();
    is_option(&spelt(&units[at..at + length]))
}
