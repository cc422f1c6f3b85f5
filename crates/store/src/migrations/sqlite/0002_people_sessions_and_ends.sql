-- People and their devices, sessions, freezes, revocations, and what an approval's end leaves behind.
-- Foreign keys and CHECKs do not act while this runs: it rebuilds tables that others refer to, and a row that was
-- damaged before is carried over as it was found. holdgate_reference(kind, id) is the program's own.

-- Who acts. Devices, trusted runtimes; each with what its credential may do.
CREATE TABLE principals_2 (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- Several devices of one person are one voice. Agents and runtimes are nobody's.
    person TEXT,
    -- Names with a space between them.
    scopes TEXT NOT NULL,
    -- Who may review what it asks for: a JSON array.
    reviewers TEXT,
    -- The only agent whose requests a runtime may resolve.
    range_id TEXT,
    -- Ed25519, 64 lowercase hex digits.
    public_key TEXT,
    platform TEXT,
    device_family TEXT,
    revoked_at INTEGER,
    -- The authority's own name can never be a credential's.
    CHECK ((kind IN ('administrator', 'device', 'agent', 'runtime') AND id <> 'authority') IS TRUE),
    CHECK (((kind IN ('agent', 'runtime')) = (person IS NULL)) IS TRUE),
    CHECK ((reviewers IS NULL OR (json_valid(reviewers) AND json_type(reviewers) = 'array')) IS TRUE),
    CHECK ((range_id IS NULL OR kind = 'runtime') IS TRUE),
    CHECK ((kind = 'device' OR (public_key IS NULL AND platform IS NULL AND device_family IS NULL)) IS TRUE),
    CHECK ((public_key IS NULL OR (length(public_key) = 64 AND public_key NOT GLOB '*[^0-9a-f]*')) IS TRUE),
    CHECK ((revoked_at IS NULL OR revoked_at >= created_at) IS TRUE)
) STRICT, WITHOUT ROWID;
INSERT INTO principals_2 (id, kind, label, created_at, person, scopes)
    SELECT id, kind, label, created_at, iif(kind = 'administrator', id, NULL),
        iif(kind = 'administrator', 'approvals.request operator.approvals operator.admin', 'approvals.request')
    FROM principals;
DROP TABLE principals;
ALTER TABLE principals_2 RENAME TO principals;

-- The credentials of each identity, numbered in the order in which they were made. An identity without one is nobody.
CREATE TABLE tokens_2 (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    hash TEXT NOT NULL UNIQUE,
    principal_id TEXT NOT NULL REFERENCES principals (id),
    created_at INTEGER NOT NULL,
    CHECK ((length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*') IS TRUE)
) STRICT;
INSERT INTO tokens_2 (hash, principal_id, created_at)
    SELECT hash, principal_id, created_at FROM tokens ORDER BY created_at, hash;
DROP TABLE tokens;
ALTER TABLE tokens_2 RENAME TO tokens;
CREATE INDEX tokens_by_principal ON tokens (principal_id, number);

-- One device may be paired with each; a code that was used is gone.
CREATE TABLE pairing_codes (
    hash TEXT NOT NULL PRIMARY KEY,
    person TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    CHECK ((length(hash) = 64 AND hash NOT GLOB '*[^0-9a-f]*') IS TRUE),
    CHECK ((created_at <= expires_at) IS TRUE)
) STRICT, WITHOUT ROWID;
CREATE INDEX pairing_codes_by_expiry ON pairing_codes (expires_at);

-- What may not ask or claim. The empty name, which no agent has, stands for everything.
CREATE TABLE freezes (
    agent TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    by TEXT NOT NULL,
    reason TEXT
) STRICT, WITHOUT ROWID;

-- By the gateway's configuration.
CREATE TABLE group_members (
    person TEXT NOT NULL,
    group_name TEXT NOT NULL,
    PRIMARY KEY (person, group_name)
) STRICT, WITHOUT ROWID;

-- Who owns a session, in the words of who registered it.
CREATE TABLE sessions (
    key TEXT NOT NULL PRIMARY KEY,
    owner_id TEXT NOT NULL,
    controller TEXT,
    requester TEXT,
    parent TEXT,
    spawned_by TEXT,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Every fact about who may act, in order.
CREATE TABLE administration_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_label TEXT NOT NULL,
    actor_person TEXT,
    CHECK (json_valid(event) IS TRUE)
) STRICT;
CREATE TRIGGER administration_events_never_change BEFORE UPDATE ON administration_events
BEGIN SELECT RAISE(ABORT, 'the trail is append-only'); END;
CREATE TRIGGER administration_events_never_go BEFORE DELETE ON administration_events
BEGIN SELECT RAISE(ABORT, 'the trail is append-only'); END;

-- A run may also be ended from outside.
CREATE TABLE runs_2 (
    id TEXT NOT NULL PRIMARY KEY,
    owner_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    fence INTEGER NOT NULL,
    held_until INTEGER,
    last_seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((state IN ('running', 'suspended', 'unknown', 'finished', 'failed', 'aborted')) IS TRUE),
    CHECK ((fence >= 0 AND last_seq >= 0 AND created_at <= updated_at) IS TRUE),
    -- Nobody holds, and nobody has written, before the first lease.
    CHECK ((fence > 0 OR (held_until IS NULL AND last_seq = 0)) IS TRUE)
) STRICT, WITHOUT ROWID;
INSERT INTO runs_2 SELECT id, owner_id, agent, state, fence, held_until, last_seq, created_at, updated_at FROM runs;
DROP TABLE runs;
ALTER TABLE runs_2 RENAME TO runs;
CREATE INDEX runs_held ON runs (held_until) WHERE held_until IS NOT NULL;

CREATE TABLE approvals_2 (
    -- Opaque: derived from what is asked, or chosen by who asks.
    id TEXT NOT NULL PRIMARY KEY,
    -- Base64url SHA-256 of kind, NUL, id. Names the approval where the id does not fit.
    reference TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    boundary TEXT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT,
    presentation TEXT NOT NULL,
    reason TEXT,
    source_agent TEXT,
    source_session TEXT,
    source_session_id TEXT,
    source_run_id TEXT,
    source_task_id TEXT,
    source_tool_call_id TEXT,
    source_tool_name TEXT,
    requester_id TEXT NOT NULL,
    requester_kind TEXT NOT NULL,
    requester_label TEXT NOT NULL,
    requester_person TEXT,
    client_id TEXT,
    -- The sessions that see it, in order: a JSON array.
    audience TEXT NOT NULL,
    -- The request as clients of the WebSocket protocol are shown it: JSON.
    v4_request TEXT,
    epoch TEXT REFERENCES runtimes (epoch),
    run_id TEXT REFERENCES runs (id),
    requirement TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,

    updated_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    decision TEXT,
    terminal_reason TEXT,
    resolved_at INTEGER,
    resolver_id TEXT,
    resolver_kind TEXT,
    resolver_label TEXT,
    resolver_person TEXT,
    claim_id TEXT,
    claimed_at INTEGER,
    claim_fence INTEGER,
    receipt_outcome TEXT,
    receipt_detail TEXT,
    settled_at INTEGER,
    revoked_at INTEGER,
    revoker_id TEXT,
    revoker_kind TEXT,
    revoker_label TEXT,
    revoker_person TEXT,
    revocation_reason TEXT,

    -- When the sweep found that this row does not decode. It counts as denied; the row stays as it was found.
    set_aside_at INTEGER,

    -- length() stops at a NUL, which an id may hold.
    CHECK ((octet_length(id) > 0 AND octet_length(id) <= 1024 AND length(id) <= 256 AND id NOT IN ('.', '..')) IS TRUE),
    CHECK ((length(reference) = 43 AND reference NOT GLOB '*[^0-9A-Za-z_-]*') IS TRUE),
    CHECK ((kind IN ('exec', 'plugin', 'tool', 'dispatch', 'round', 'plan')) IS TRUE),
    CHECK ((length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*') IS TRUE),
    CHECK ((json_valid(presentation) AND json_valid(requirement)) IS TRUE),
    CHECK ((json_valid(audience) AND json_type(audience) = 'array' AND json_array_length(audience) <= 64) IS TRUE),
    CHECK ((v4_request IS NULL OR json_valid(v4_request)) IS TRUE),
    -- A live process keeps its action itself; a stored run will run what is stored here.
    CHECK ((CASE WHEN run_id IS NULL THEN epoch IS NOT NULL AND content IS NULL
                 ELSE epoch IS NULL AND content IS NOT NULL AND json_valid(content) END) IS TRUE),
    CHECK ((created_at < expires_at AND created_at <= updated_at) IS TRUE),

    -- The answer: nothing while it is pending, and one of these tuples for good after. An agent is never who
    -- answered, and nothing is decided at or after the deadline, nor expired before it.
    CHECK ((CASE status
        WHEN 'pending' THEN decision IS NULL AND terminal_reason IS NULL AND resolved_at IS NULL
            AND resolver_id IS NULL AND resolver_kind IS NULL AND resolver_label IS NULL AND resolver_person IS NULL
        WHEN 'allowed' THEN decision IN ('allow-once', 'allow-always') AND terminal_reason = 'user'
            AND resolver_kind NOT IN ('agent', 'authority') AND resolved_at < expires_at
        WHEN 'denied' THEN decision = 'deny' AND CASE terminal_reason
            WHEN 'user' THEN resolver_kind NOT IN ('agent', 'authority') AND resolved_at < expires_at
            WHEN 'malformed-verdict' THEN resolver_kind IN ('runtime', 'authority') AND resolved_at < expires_at
            WHEN 'no-route' THEN resolver_kind = 'authority' AND resolved_at < expires_at
            WHEN 'storage-corrupt' THEN resolver_kind = 'authority' END
        WHEN 'expired' THEN decision = 'deny' AND terminal_reason = 'timeout' AND resolver_kind = 'authority'
            AND resolved_at >= expires_at
        WHEN 'cancelled' THEN decision = 'deny' AND CASE terminal_reason
            WHEN 'gateway-restart' THEN resolver_kind = 'authority'
            WHEN 'caller-lost' THEN resolver_kind = 'authority'
            WHEN 'run-aborted' THEN resolver_kind IS NOT NULL
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
                     AND claim_id IS NOT NULL AND settled_at >= claimed_at END) IS TRUE),

    -- The revocation: whole or absent, and only of an allow that nobody claimed.
    CHECK ((CASE WHEN revoked_at IS NULL THEN revoker_id IS NULL AND revoker_kind IS NULL AND revoker_label IS NULL
                     AND revoker_person IS NULL AND revocation_reason IS NULL
                 ELSE status = 'allowed' AND claim_id IS NULL AND revoked_at >= resolved_at AND revoker_id IS NOT NULL
                     AND revoker_kind IS NOT NULL AND revoker_label IS NOT NULL END) IS TRUE)
) STRICT;

INSERT INTO approvals_2 (id, reference, kind, boundary, digest, content, presentation, reason, source_agent,
        source_session, source_task_id, source_tool_call_id, source_tool_name, requester_id, requester_kind,
        requester_label, requester_person, audience, epoch, run_id, requirement, created_at, expires_at, updated_at,
        status, decision, terminal_reason, resolved_at, resolver_id, resolver_kind, resolver_label, resolver_person,
        claim_id, claimed_at, claim_fence, receipt_outcome, receipt_detail, settled_at, set_aside_at)
    SELECT id, holdgate_reference(kind, id), kind, boundary, digest, content, presentation, reason, source_agent,
        source_session, source_task_id, source_tool_call_id, source_tool_name, requester_id, requester_kind,
        requester_label, iif(requester_kind = 'administrator', requester_id, NULL), '[]', epoch, run_id, requirement,
        created_at, expires_at,
        max(created_at, coalesce(resolved_at, created_at), coalesce(claimed_at, created_at), coalesce(settled_at, created_at)),
        status, decision, terminal_reason, resolved_at, resolver_id, resolver_kind, resolver_label,
        iif(resolver_kind = 'administrator', resolver_id, NULL),
        claim_id, claimed_at, claim_fence, receipt_outcome, receipt_detail, settled_at, set_aside_at
    FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_2 RENAME TO approvals;

-- Lists, newest first.
CREATE INDEX approvals_by_age ON approvals (created_at DESC, id DESC);
CREATE INDEX approvals_by_status ON approvals (status, created_at DESC, id DESC);
CREATE INDEX approvals_by_requester ON approvals (requester_id, created_at DESC, id DESC);
-- What has ended, the last one first.
CREATE INDEX approvals_by_end ON approvals (resolved_at DESC, id DESC) WHERE status <> 'pending';
CREATE INDEX approvals_by_kind_and_end ON approvals (kind, resolved_at DESC, id DESC) WHERE status <> 'pending';
CREATE INDEX approvals_by_requester_and_end ON approvals (requester_id, resolved_at DESC, id DESC)
    WHERE status <> 'pending';
-- What time decides: deadlines, lapsed epochs, claims that nobody settles.
CREATE INDEX approvals_by_deadline ON approvals (expires_at) WHERE status = 'pending' AND set_aside_at IS NULL;
CREATE INDEX approvals_waiting_on_epoch ON approvals (epoch)
    WHERE status = 'pending' AND set_aside_at IS NULL AND epoch IS NOT NULL;
CREATE INDEX approvals_unsettled ON approvals (claimed_at)
    WHERE claim_id IS NOT NULL AND receipt_outcome IS NULL AND set_aside_at IS NULL;
-- What ends with a run, stored or told.
CREATE INDEX approvals_waiting_on_run ON approvals (run_id)
    WHERE status = 'pending' AND set_aside_at IS NULL AND run_id IS NOT NULL;
CREATE INDEX approvals_waiting_for_source ON approvals (source_run_id, requester_id)
    WHERE status = 'pending' AND set_aside_at IS NULL AND source_run_id IS NOT NULL;

-- A text that names one approval names no other.
CREATE TRIGGER approvals_names_are_distinct BEFORE INSERT ON approvals
WHEN EXISTS (SELECT 1 FROM approvals WHERE id = NEW.reference)
    OR EXISTS (SELECT 1 FROM approvals WHERE reference = NEW.id) OR NEW.id = NEW.reference
BEGIN SELECT RAISE(ABORT, 'this name is another approval''s'); END;

-- The first terminal answer is the answer, what was asked never changes, and an allow is spent once.
CREATE TRIGGER approvals_answer_is_final BEFORE UPDATE OF status, decision, terminal_reason, resolved_at, resolver_id,
    resolver_kind, resolver_label, resolver_person ON approvals
WHEN OLD.status <> 'pending' AND (NEW.status, NEW.decision, NEW.terminal_reason, NEW.resolved_at, NEW.resolver_id,
    NEW.resolver_kind, NEW.resolver_label, NEW.resolver_person) IS NOT (OLD.status, OLD.decision, OLD.terminal_reason,
    OLD.resolved_at, OLD.resolver_id, OLD.resolver_kind, OLD.resolver_label, OLD.resolver_person)
BEGIN SELECT RAISE(ABORT, 'an approval is answered once'); END;
CREATE TRIGGER approvals_claim_is_final BEFORE UPDATE OF claim_id, claimed_at ON approvals
WHEN OLD.claim_id IS NOT NULL AND (NEW.claim_id, NEW.claimed_at) IS NOT (OLD.claim_id, OLD.claimed_at)
BEGIN SELECT RAISE(ABORT, 'an allow is claimed once'); END;
CREATE TRIGGER approvals_revocation_is_final BEFORE UPDATE OF revoked_at, revoker_id, revoker_kind, revoker_label,
    revoker_person, revocation_reason ON approvals
WHEN OLD.revoked_at IS NOT NULL AND (NEW.revoked_at, NEW.revoker_id, NEW.revoker_kind, NEW.revoker_label,
    NEW.revoker_person, NEW.revocation_reason) IS NOT (OLD.revoked_at, OLD.revoker_id, OLD.revoker_kind,
    OLD.revoker_label, OLD.revoker_person, OLD.revocation_reason)
BEGIN SELECT RAISE(ABORT, 'an allow is revoked once'); END;
CREATE TRIGGER approvals_request_is_frozen BEFORE UPDATE OF id, reference, kind, boundary, digest, content,
    presentation, reason, source_agent, source_session, source_session_id, source_run_id, source_task_id,
    source_tool_call_id, source_tool_name, requester_id, requester_kind, requester_label, requester_person, client_id,
    audience, v4_request, epoch, run_id, requirement, created_at, expires_at ON approvals
BEGIN SELECT RAISE(ABORT, 'what was asked never changes'); END;

-- The pending requests that each session's stream shows, and how many there are of each requester, of each requester in
-- each first session (a JSON array of both) and of each kind. Derived: the triggers below keep both, so that neither caps nor streams cost a scan.
CREATE TABLE approval_audience (
    session_key TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    approval_id TEXT NOT NULL,
    PRIMARY KEY (session_key, created_at, approval_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX approval_audience_by_approval ON approval_audience (approval_id);
CREATE TABLE pending_tallies (
    of TEXT NOT NULL,
    name TEXT NOT NULL,
    pending INTEGER NOT NULL,
    PRIMARY KEY (of, name),
    CHECK ((of IN ('requester', 'session', 'kind')) IS TRUE)
) STRICT, WITHOUT ROWID;
INSERT INTO pending_tallies
    SELECT 'requester', requester_id, count(*) FROM approvals
        WHERE status = 'pending' AND set_aside_at IS NULL GROUP BY requester_id
    UNION ALL
    SELECT 'kind', kind, count(*) FROM approvals WHERE status = 'pending' AND set_aside_at IS NULL GROUP BY kind;

-- Ended runs that requests still wait for, until the sweep has called those off.
CREATE TABLE ended_runs (run_id TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO ended_runs SELECT DISTINCT r.id FROM runs r JOIN approvals a ON a.run_id = r.id
    WHERE r.state IN ('finished', 'failed') AND a.status = 'pending' AND a.set_aside_at IS NULL;

CREATE TRIGGER approvals_open AFTER INSERT ON approvals WHEN NEW.status = 'pending' AND NEW.set_aside_at IS NULL
BEGIN
    INSERT INTO pending_tallies VALUES ('requester', NEW.requester_id, 1), ('kind', NEW.kind, 1)
        ON CONFLICT DO UPDATE SET pending = pending + 1;
END;
CREATE TRIGGER approvals_open_in_sessions AFTER INSERT ON approvals
WHEN NEW.status = 'pending' AND NEW.set_aside_at IS NULL AND NEW.audience <> '[]'
BEGIN
    INSERT INTO pending_tallies VALUES ('session', json_array(NEW.requester_id, NEW.audience ->> 0), 1)
        ON CONFLICT DO UPDATE SET pending = pending + 1;
    INSERT INTO approval_audience SELECT DISTINCT value, NEW.created_at, NEW.id FROM json_each(NEW.audience);
END;
CREATE TRIGGER approvals_end AFTER UPDATE OF status, set_aside_at ON approvals
WHEN OLD.status = 'pending' AND OLD.set_aside_at IS NULL AND (NEW.status <> 'pending' OR NEW.set_aside_at IS NOT NULL)
BEGIN
    UPDATE pending_tallies SET pending = pending - 1
        WHERE (of, name) IN (VALUES ('requester', OLD.requester_id), ('kind', OLD.kind));
    DELETE FROM pending_tallies WHERE of = 'requester' AND name = OLD.requester_id AND pending <= 0;
    DELETE FROM ended_runs WHERE run_id = OLD.run_id AND NOT EXISTS
        (SELECT 1 FROM approvals WHERE status = 'pending' AND set_aside_at IS NULL AND run_id = OLD.run_id);
END;
CREATE TRIGGER approvals_end_in_sessions AFTER UPDATE OF status, set_aside_at ON approvals
WHEN OLD.status = 'pending' AND OLD.set_aside_at IS NULL AND (NEW.status <> 'pending' OR NEW.set_aside_at IS NOT NULL)
    AND OLD.audience <> '[]'
BEGIN
    UPDATE pending_tallies SET pending = pending - 1
        WHERE of = 'session' AND name = iif(json_valid(OLD.audience), json_array(OLD.requester_id, OLD.audience ->> 0), NULL);
    DELETE FROM pending_tallies
        WHERE of = 'session' AND name = iif(json_valid(OLD.audience), json_array(OLD.requester_id, OLD.audience ->> 0), NULL) AND pending <= 0;
    DELETE FROM approval_audience WHERE approval_id = OLD.id;
END;
-- Only what has ended is ever removed.
CREATE TRIGGER approvals_stay_while_open BEFORE DELETE ON approvals
WHEN OLD.status = 'pending' OR (OLD.claim_id IS NOT NULL AND OLD.receipt_outcome IS NULL)
BEGIN SELECT RAISE(ABORT, 'this approval has not ended'); END;
-- What was removed keeps its names, so that no old link or button leads to another request: its id in its facts, and
-- its reference here.
CREATE TABLE removed_references (reference TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TRIGGER approvals_keep_their_names AFTER DELETE ON approvals
BEGIN INSERT INTO removed_references VALUES (OLD.reference) ON CONFLICT DO NOTHING; END;

-- Votes and facts remember the person. Until now, only the administrator was one.
ALTER TABLE approval_votes ADD COLUMN voter_person TEXT;
UPDATE approval_votes SET voter_person = voter_id WHERE voter_kind = 'administrator';
DROP TRIGGER approval_events_never_change;
ALTER TABLE approval_events ADD COLUMN actor_person TEXT;
UPDATE approval_events SET actor_person = actor_id WHERE actor_kind = 'administrator';
CREATE TRIGGER approval_events_never_change BEFORE UPDATE ON approval_events
BEGIN SELECT RAISE(ABORT, 'the trail is append-only'); END;
CREATE INDEX approval_events_by_approval ON approval_events (approval_id);

-- A key goes with the approval that it made.
CREATE INDEX idempotency_keys_by_approval ON idempotency_keys (approval_id);
