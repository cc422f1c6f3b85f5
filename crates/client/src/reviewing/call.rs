//! The calls that are out, and what each reply is a reply to. Owns no rule about what a reply means.

use std::collections::{BTreeMap, BTreeSet};

use holdgate_core::requirement::Decision;

use super::card::CardKey;

/// How many records are read at once. The rest waits its turn: ten thousand cards are not ten thousand calls.
const READS_AT_ONCE: usize = 16;

/// What a call asks for.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// What waits of this kind.
    List { kind: &'static str },
    /// What waits in this session, and what becomes of it.
    Replay { session: String },
    /// One record.
    Read { id: String },
    /// A decision on a card.
    Resolve { key: CardKey, decision: Decision },
}

/// A call that is out.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// The machine's step at which it was sent.
    pub(super) at: u64,
    pub(super) asked: Asked,
    /// Ids whose end was heard since: what the reply says of them is older.
    pub(super) ended_since: BTreeSet<String>,
}

/// Every call of the current connection that is out.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    out: BTreeMap<u64, Sent>,
}

impl Calls {
    pub(super) fn add(&mut self, number: u64, at: u64, asked: Asked) {
        self.out.insert(number, Sent { at, asked, ended_since: BTreeSet::new() });
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Sent> {
        self.out.remove(&number)
    }

    /// All of them, lost with their connection.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Sent> + use<> {
        std::mem::take(&mut self.out).into_values()
    }

    /// Whether a list or replay is out: another waits for it.
    pub(super) fn is_listing(&self) -> bool {
        self.out.values().any(|sent| matches!(sent.asked, Asked::List { .. } | Asked::Replay { .. }))
    }

    pub(super) fn may_read_more(&self) -> bool {
        let reads = self.out.values().filter(|sent| matches!(sent.asked, Asked::Read { .. })).count();
        reads < READS_AT_ONCE
    }

    /// Whether a read of this id is out that was sent at `since` or later.
    pub(super) fn is_reading(&self, id: &str, since: u64) -> bool {
        self.out
            .values()
            .any(|sent| matches!(&sent.asked, Asked::Read { id: read } if read == id) && sent.at >= since)
    }

    /// The end of this id was heard: lists that are on their way may still hold it.
    pub(super) fn heard_end_of(&mut self, id: &str) {
        for sent in self.out.values_mut() {
            if matches!(sent.asked, Asked::List { .. } | Asked::Replay { .. }) {
                sent.ended_since.insert(id.to_owned());
            }
        }
    }
}
