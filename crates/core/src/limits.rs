//! Every bound of the system, in one place. A request past a bound is refused, never cut.

pub use crate::presentation::{COMMAND_DISPLAY_LIMIT, DISPLAY_LIMIT};

/// Longest text a caller may give as a reason or a receipt's detail, in characters.
pub const REASON_CHARS: usize = 4_096;
/// Longest name (agent, session, task, tool, run, boundary, claim), in characters.
pub const NAME_CHARS: usize = 512;
/// Longest approval id, in characters.
pub const APPROVAL_ID_CHARS: usize = 256;
/// Most sessions that see a request and its end.
pub const AUDIENCE: usize = 64;
/// Most people that one request can require.
pub const QUORUM: u32 = 16;
/// Most entries of one list of reviewers.
pub const REVIEWERS: usize = 64;
/// Longest sanitised request that is kept for clients of the WebSocket protocol, in bytes of JSON.
pub const V4_REQUEST_BYTES: usize = 256 << 10;
/// How long a terminal record is kept, in milliseconds.
pub const RETENTION_MS: i64 = 30 * DAY_MS;
/// How long a pairing code lives, in milliseconds.
pub const PAIRING_MS: i64 = 5 * MINUTE_MS;
/// Most requests of one identity that may be pending at once, unless configured otherwise.
pub const PENDING_PER_PRINCIPAL: u32 = 20_000;
/// Most requests of one session that may be pending at once, unless configured otherwise.
pub const PENDING_PER_SESSION: u32 = 5_000;
/// Most operations of one identity that may be waiting to be written. More are refused at once.
pub const QUEUED_PER_PRINCIPAL: usize = 512;
/// Most approvals that one answer to a subscription replays.
pub const REPLAY_ITEMS: u32 = 1_000;
/// Longest boundary, in characters: a round names every task on both of its sides.
pub const BOUNDARY_CHARS: usize = 16_384;
/// Largest frozen content, in bytes of canonical JSON.
pub const CONTENT_BYTES: usize = 1 << 20;
/// Largest HTTP body, in bytes. Larger than the content it carries.
pub const BODY_BYTES: usize = 4 << 20;
/// Most connections that a gateway keeps open. Whoever comes then waits to be accepted.
pub const CONNECTIONS: usize = 4_096;
/// Largest head of an HTTP request, in bytes.
pub const HEAD_BYTES: usize = 64 << 10;
/// How long a connection may take until the head of its next request is complete, in milliseconds. Being idle counts.
pub const HEAD_MS: i64 = 15_000;
/// How long the body of a request may take to arrive, in milliseconds.
pub const BODY_MS: i64 = 30_000;
/// How long the body of a request may make no progress, in milliseconds.
pub const BODY_STALL_MS: i64 = 10_000;
/// How long a response may make no progress because its reader does not read, in milliseconds.
pub const RESPONSE_STALL_MS: i64 = 30_000;
/// Longest detail of a problem, in characters.
pub const DETAIL_CHARS: usize = 1_000;
/// Shortest and longest life of a request, in milliseconds.
pub const TIMEOUT_MS: std::ops::RangeInclusive<i64> = 1..=30 * DAY_MS;
/// How long a request of a live process waits when it names no timeout, in milliseconds.
pub const RUNTIME_TIMEOUT_MS: i64 = 10 * MINUTE_MS;
/// How long a request of a stored run waits when it names no timeout, in milliseconds.
pub const CHECKPOINT_TIMEOUT_MS: i64 = 7 * DAY_MS;
/// How long a caller's or gateway's epoch lives without renewal, in milliseconds.
pub const RUNTIME_LEASE_MS: i64 = 30_000;
/// How long a run's lease lives without renewal, in milliseconds.
pub const RUN_LEASE_MS: i64 = 10_000;
/// Longest single wait for a decision over HTTP, in milliseconds. Waiters ask again.
pub const WAIT_MS: i64 = 60_000;
/// Most approvals on one page of a list, and the default.
pub const PAGE_ITEMS: u32 = 100;
/// Most bytes of text of the approvals on one page, but always one approval.
pub const PAGE_BYTES: usize = 8 << 20;
/// Approvals on a page when the caller names no number.
pub const PAGE_ITEMS_DEFAULT: u32 = 50;
/// Most events one append may carry.
pub const APPEND_EVENTS: usize = 256;
/// Most approvals one append may open.
pub const APPEND_APPROVALS: usize = 64;
/// Largest journal event, in bytes of JSON.
pub const EVENT_BYTES: usize = 1 << 20;
/// Most events one read of a journal returns.
pub const EVENTS_PAGE: u32 = 1_000;
/// Most bytes of events that one read of a journal returns, but always one event. Readers page on until they
/// have reached the run's last event.
pub const EVENTS_PAGE_BYTES: usize = 4 << 20;
/// Longest idempotency key, in characters.
pub const IDEMPOTENCY_KEY_CHARS: usize = 255;
/// How long a reviewer stays signed in to the page, in milliseconds.
pub const PAGE_SESSION_MS: i64 = 12 * 60 * MINUTE_MS;
/// How long a paired device stays signed in to the page, in milliseconds. It can be revoked by itself.
pub const DEVICE_SESSION_MS: i64 = 30 * DAY_MS;
/// Longest name of a credential, label of a device and platform, in characters.
pub const LABEL_CHARS: usize = 64;
/// Most facts about who may act that one read returns.
pub const ADMINISTERED_PAGE: u32 = 1_000;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

const _: () = {
    assert!(BODY_BYTES > CONTENT_BYTES * 2, "a body holds content with room for escapes");
    assert!(COMMAND_DISPLAY_LIMIT <= DISPLAY_LIMIT && DISPLAY_LIMIT < CONTENT_BYTES);
    assert!(RUNTIME_TIMEOUT_MS <= CHECKPOINT_TIMEOUT_MS && CHECKPOINT_TIMEOUT_MS <= *TIMEOUT_MS.end());
    assert!(BODY_STALL_MS < BODY_MS && HEAD_BYTES < BODY_BYTES);
    assert!(RUNTIME_LEASE_MS / 3 < HEAD_MS, "a caller that renews in time keeps its connection");
    assert!(RUN_LEASE_MS < RUNTIME_LEASE_MS && RUNTIME_LEASE_MS < WAIT_MS);
    assert!(PAGE_ITEMS_DEFAULT <= PAGE_ITEMS);
    assert!(EVENT_BYTES <= EVENTS_PAGE_BYTES && EVENTS_PAGE_BYTES <= BODY_BYTES);
};
