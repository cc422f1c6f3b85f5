-- Approvals, the runs and processes behind them, and who may act.
-- Times are milliseconds since the Unix epoch by the authority's clock. Digests and hashes are 64 lowercase hex digits.
-- A CHECK that comes out NULL passes, so every CHECK here is closed with IS TRUE.

CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- The authority's time never falls behind this.
    last_committed INTEGER NOT NULL,
    -- The last commit made while a gateway was at work, with whom others could renew their leases.
    served_until INTEGER NOT NULL,
    CHECK ((served_until <= last_committed) IS TRUE)
) STRICT;
INSERT INTO meta (id, last_committed, served_until) VALUES (1, 0, 0);

CREATE TABLE principals (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- The authority's own name can never be a credential's.
    CHECK ((kind IN ('administrator', 'agent') AND id <> 'authority') IS TRUE)
) STRICT, WITHOUT ROWID;

-- One credential for each identity. An identity without one is nobody.
CREATE TABLE tokens (
    hash TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL UNIQUE REFERENCES principals (id),
    created_at INTEGER NOT NULL,
    CHECK ((length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*') IS TRUE)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_sessions (
    hash TEXT NOT NULL PRIMARY KEY,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    CHECK ((length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*') IS TRUE),
    CHECK ((created_at <= expires_at) IS TRUE)
) STRICT, WITHOUT ROWID;
CREATE INDEX page_sessions_by_expiry ON page_sessions (expires_at);
CREATE INDEX page_sessions_by_principal ON page_sessions (principal_id);

CREATE TABLE runtimes (
    epoch TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    instance TEXT,
    owner_id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((CASE kind WHEN 'gateway' THEN instance IS NOT NULL WHEN 'caller' THEN instance IS NULL END) IS TRUE),
    CHECK ((ended_at IS NULL OR ended_at >= started_at) IS TRUE)
) STRICT, WITHOUT ROWID;
-- What a starting gateway ends or spares.
CREATE INDEX runtimes_open ON runtimes (kind, instance, lease_until) WHERE ended_at IS NULL;

CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    owner_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    fence INTEGER NOT NULL,
    held_until INTEGER,
    last_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((state IN ('running', 'suspended', 'unknown', 'finished', 'failed')) IS TRUE),
    CHECK ((fence >= 0 AND last_seq >= 0 AND created_at <= updated_at) IS TRUE),
    -- Nobody holds, and nobody has written, before the first lease.
    CHECK ((fence > 0 OR (held_until IS NULL AND last_seq = 0)) IS TRUE)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_held ON runs (held_until) WHERE held_until IS NOT NULL;

CREATE TABLE run_events (
    run_id TEXT NOT NULL REFERENCES runs (id),
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (run_id, seq),
    CHECK ((seq > 0 AND json_valid(event)) IS TRUE)
) STRICT;
CREATE TRIGGER run_events_never_change BEFORE UPDATE ON run_events
BEGIN SELECT RAISE(ABORT, 'a run''s journal is append-only'); END;
CREATE TRIGGER run_events_never_go BEFORE DELETE ON run_events
BEGIN SELECT RAISE(ABORT, 'a run''s journal is append-only'); END;

CREATE TABLE approvals (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    boundary TEXT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT,
    presentation TEXT NOT NULL,
    reason TEXT,
    source_agent TEXT,
    source_session TEXT,
    source_task_id TEXT,
    source_tool_call_id TEXT,
    source_tool_name TEXT,
    requester_id TEXT NOT NULL,
    requester_kind TEXT NOT NULL,
    requester_label TEXT NOT NULL,
    epoch TEXT REFERENCES runtimes (epoch),
    run_id TEXT REFERENCES runs (id),
    requirement TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,

    status TEXT NOT NULL,
    decision TEXT,
    terminal_reason TEXT,
    resolved_at INTEGER,
    resolver_id TEXT,
    resolver_kind TEXT,
    resolver_label TEXT,
    claim_id TEXT,
    claimed_at INTEGER,
    claim_fence INTEGER,
    receipt_outcome TEXT,
    receipt_detail TEXT,
    settled_at INTEGER,

    -- When the sweep found that this row does not decode. It counts as denied; the row stays as it was found.
    set_aside_at INTEGER,

    CHECK ((length(id) = 36 AND id GLOB 'apr_*' AND substr(id, 5) NOT GLOB '*[^0-9a-f]*') IS TRUE),
    CHECK ((kind IN ('exec', 'plugin', 'tool', 'dispatch', 'round', 'plan')) IS TRUE),
    CHECK ((length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*') IS TRUE),
    CHECK ((json_valid(presentation) AND json_valid(requirement)) IS TRUE),
    -- A live process keeps its action itself; a stored run will run what is stored here.
    CHECK ((CASE WHEN run_id IS NULL THEN epoch IS NOT NULL AND content IS NULL
                 ELSE epoch IS NULL AND content IS NOT NULL AND json_valid(content) END) IS TRUE),
    CHECK ((created_at < expires_at) IS TRUE),

    -- The answer: nothing while it is pending, and one of these tuples for good after. An agent is never who
    -- answered, and nothing is decided by a person at or after the deadline, nor expired before it.
    CHECK ((CASE status
        WHEN 'pending' THEN decision IS NULL AND terminal_reason IS NULL AND resolved_at IS NULL
            AND resolver_id IS NULL AND resolver_kind IS NULL AND resolver_label IS NULL
        WHEN 'allowed' THEN decision IN ('allow-once', 'allow-always') AND terminal_reason = 'user'
            AND resolver_kind NOT IN ('agent', 'authority') AND resolved_at < expires_at
        WHEN 'denied' THEN decision = 'deny' AND CASE terminal_reason
            WHEN 'user' THEN resolver_kind NOT IN ('agent', 'authority') AND resolved_at < expires_at
            WHEN 'storage-corrupt' THEN resolver_kind = 'authority' END
        WHEN 'expired' THEN decision = 'deny' AND terminal_reason = 'timeout' AND resolver_kind = 'authority'
            AND resolved_at >= expires_at
        WHEN 'cancelled' THEN decision = 'deny' AND CASE terminal_reason
            WHEN 'gateway-restart' THEN resolver_kind = 'authority'
            WHEN 'caller-lost' THEN resolver_kind = 'authority'
            WHEN 'withdrawn' THEN resolver_kind IS NOT NULL END
        END) IS TRUE),
    CHECK ((status = 'pending' OR (resolved_at >= created_at AND resolver_id IS NOT NULL
        AND resolver_kind IS NOT NULL AND resolver_label IS NOT NULL)) IS TRUE),

    -- The claim: whole or absent, and only of an allow. A stored run claims with its fence.
    CHECK ((CASE WHEN claim_id IS NULL THEN claimed_at IS NULL AND claim_fence IS NULL
                 ELSE status = 'allowed' AND claimed_at >= resolved_at
                     AND (run_id IS NULL OR claim_fence > 0) END) IS TRUE),

    -- The receipt: whole or absent, and only of a claim.
    CHECK ((CASE WHEN receipt_outcome IS NULL THEN settled_at IS NULL AND receipt_detail IS NULL
                 ELSE receipt_outcome IN ('succeeded', 'failed', 'unknown')
                     AND claim_id IS NOT NULL AND settled_at >= claimed_at END) IS TRUE)
) STRICT;

-- Lists, newest first.
CREATE INDEX approvals_by_age ON approvals (created_at DESC, id DESC);
CREATE INDEX approvals_by_status ON approvals (status, created_at DESC, id DESC);
CREATE INDEX approvals_by_requester ON approvals (requester_id, created_at DESC, id DESC);
-- What time decides: deadlines, lapsed epochs, claims that nobody settles.
CREATE INDEX approvals_by_deadline ON approvals (expires_at) WHERE status = 'pending' AND set_aside_at IS NULL;
CREATE INDEX approvals_waiting_on_epoch ON approvals (epoch)
    WHERE status = 'pending' AND set_aside_at IS NULL AND epoch IS NOT NULL;
CREATE INDEX approvals_unsettled ON approvals (claimed_at)
    WHERE claim_id IS NOT NULL AND receipt_outcome IS NULL AND set_aside_at IS NULL;

-- The first terminal answer is the answer, what was asked never changes, and an allow is spent once.
CREATE TRIGGER approvals_answer_is_final BEFORE UPDATE OF status, decision, terminal_reason, resolved_at, resolver_id,
    resolver_kind, resolver_label ON approvals
WHEN OLD.status <> 'pending' AND (NEW.status, NEW.decision, NEW.terminal_reason, NEW.resolved_at, NEW.resolver_id,
    NEW.resolver_kind, NEW.resolver_label) IS NOT (OLD.status, OLD.decision, OLD.terminal_reason, OLD.resolved_at,
    OLD.resolver_id, OLD.resolver_kind, OLD.resolver_label)
BEGIN SELECT RAISE(ABORT, 'an approval is answered once'); END;
CREATE TRIGGER approvals_claim_is_final BEFORE UPDATE OF claim_id, claimed_at ON approvals
WHEN OLD.claim_id IS NOT NULL AND (NEW.claim_id, NEW.claimed_at) IS NOT (OLD.claim_id, OLD.claimed_at)
BEGIN SELECT RAISE(ABORT, 'an allow is claimed once'); END;
CREATE TRIGGER approvals_request_is_frozen BEFORE UPDATE OF id, kind, boundary, digest, content, presentation, reason,
    source_agent, source_session, source_task_id, source_tool_call_id, source_tool_name, requester_id, requester_kind,
    requester_label, epoch, run_id, requirement, created_at, expires_at ON approvals
BEGIN SELECT RAISE(ABORT, 'what was asked never changes'); END;

CREATE TABLE approval_votes (
    approval_id TEXT NOT NULL REFERENCES approvals (id),
    position INTEGER NOT NULL,
    decision TEXT NOT NULL,
    voter_id TEXT NOT NULL,
    voter_kind TEXT NOT NULL,
    voter_label TEXT NOT NULL,
    at INTEGER NOT NULL,
    reason TEXT,
    PRIMARY KEY (approval_id, position),
    CHECK ((position >= 0 AND decision IN ('allow-once', 'allow-always', 'deny')) IS TRUE),
    CHECK ((voter_kind NOT IN ('agent', 'authority')) IS TRUE)
) STRICT, WITHOUT ROWID;

-- Every fact in order: outbox, audit trail and replay source. Outlives the approvals it tells of.
CREATE TABLE approval_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    approval_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_label TEXT NOT NULL,
    CHECK (json_valid(event) IS TRUE)
) STRICT;
CREATE TRIGGER approval_events_never_change BEFORE UPDATE ON approval_events
BEGIN SELECT RAISE(ABORT, 'the trail is append-only'); END;
CREATE TRIGGER approval_events_never_go BEFORE DELETE ON approval_events
BEGIN SELECT RAISE(ABORT, 'the trail is append-only'); END;

CREATE TABLE idempotency_keys (
    principal_id TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (principal_id, key),
    CHECK ((length(body) = 64 AND body NOT GLOB '*[^0-9a-f]*') IS TRUE)
) STRICT, WITHOUT ROWID;
