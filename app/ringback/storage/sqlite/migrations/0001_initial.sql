-- Instants are INTEGER milliseconds since 1970 UTC; JSON is TEXT; ids are TEXT and sort by the time of their making.
-- Rows that change often are kept small: what is large and never changes (arguments, results, bodies) has a table of its own,
-- because SQLite rewrites a row as a whole.

CREATE TABLE calls (
    id                TEXT PRIMARY KEY,
    principal         TEXT NOT NULL,
    upstream          TEXT NOT NULL,
    tool              TEXT NOT NULL,
    client_session_id TEXT,
    correlation_id    TEXT,
    idempotency_key   TEXT,
    request_hash      TEXT NOT NULL,
    status            TEXT NOT NULL,
    phase             TEXT NOT NULL,
    outcome           TEXT,
    progress          TEXT,
    error             TEXT,
    result_bytes      INTEGER,
    result_sha256     TEXT,
    handle            TEXT,
    input_requests    TEXT,
    input_responses   TEXT,
    input_round       INTEGER NOT NULL,
    accepts_input     INTEGER NOT NULL,
    rerun_policy      TEXT NOT NULL,
    rerun_allowed     INTEGER NOT NULL,
    cancel_requested  INTEGER NOT NULL,
    lease_owner       TEXT,
    lease_token       TEXT,
    lease_until       INTEGER,
    dispatched_at     INTEGER,
    runs              INTEGER NOT NULL,
    attended_until    INTEGER,
    token_version     INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    finished_at       INTEGER,
    deadline_at       INTEGER NOT NULL,
    expires_at        INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE inputs (
    call_id   TEXT PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    arguments TEXT NOT NULL,
    meta      TEXT NOT NULL
) STRICT;

CREATE TABLE results (
    call_id TEXT PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    body    BLOB NOT NULL
) STRICT;

CREATE VIEW whole_calls AS
SELECT calls.*, inputs.arguments, inputs.meta
FROM calls CROSS JOIN inputs ON inputs.call_id = calls.id;

CREATE INDEX calls_queued ON calls (upstream, principal, id) WHERE phase = 'queued';
CREATE INDEX calls_running ON calls (lease_until) WHERE phase = 'running';
CREATE INDEX calls_waiting_deadline ON calls (deadline_at) WHERE phase IN ('queued', 'parked');
CREATE INDEX calls_expiring ON calls (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX calls_of_principal ON calls (principal, id);
CREATE INDEX calls_of_session ON calls (principal, client_session_id, id) WHERE client_session_id IS NOT NULL;
CREATE INDEX calls_of_correlation ON calls (principal, correlation_id, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX calls_of_task ON calls (upstream, json_extract(handle, '$[1].task_id')) WHERE handle IS NOT NULL;
CREATE UNIQUE INDEX calls_idempotency ON calls (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- How many calls there are, kept up by whatever changes them: quotas are asked with every start, and counting ten thousand rows
-- each time would cost more than the start.
CREATE TABLE call_counts (
    principal    TEXT NOT NULL,
    status       TEXT NOT NULL,
    calls        INTEGER NOT NULL,
    result_bytes INTEGER NOT NULL,
    PRIMARY KEY (principal, status)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER calls_count_new AFTER INSERT ON calls
BEGIN
    INSERT INTO call_counts (principal, status, calls, result_bytes)
    VALUES (NEW.principal, NEW.status, 1, coalesce(NEW.result_bytes, 0))
    ON CONFLICT (principal, status) DO UPDATE SET calls = calls + 1, result_bytes = result_bytes + excluded.result_bytes;
END;

CREATE TRIGGER calls_count_moved AFTER UPDATE OF status, result_bytes ON calls
WHEN NEW.status <> OLD.status OR NEW.result_bytes IS NOT OLD.result_bytes
BEGIN
    UPDATE call_counts SET calls = calls - 1, result_bytes = result_bytes - coalesce(OLD.result_bytes, 0)
    WHERE principal = OLD.principal AND status = OLD.status;
    INSERT INTO call_counts (principal, status, calls, result_bytes)
    VALUES (NEW.principal, NEW.status, 1, coalesce(NEW.result_bytes, 0))
    ON CONFLICT (principal, status) DO UPDATE SET calls = calls + 1, result_bytes = result_bytes + excluded.result_bytes;
END;

CREATE TRIGGER calls_count_gone AFTER DELETE ON calls
BEGIN
    UPDATE call_counts SET calls = calls - 1, result_bytes = result_bytes - coalesce(OLD.result_bytes, 0)
    WHERE principal = OLD.principal AND status = OLD.status;
END;

-- Whose turn it is on an upstream: the principal with the lowest ticket was served longest ago.
CREATE TABLE turns (
    upstream  TEXT NOT NULL,
    principal TEXT NOT NULL,
    ticket    INTEGER NOT NULL,
    PRIMARY KEY (upstream, principal)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    call_id         TEXT PRIMARY KEY,
    principal       TEXT NOT NULL,
    idempotency_key TEXT,
    request_hash    TEXT NOT NULL,
    expired_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX tombstones_idempotency ON tombstones (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tombstones_expired ON tombstones (expired_at);

CREATE TABLE log_heads (
    principal TEXT PRIMARY KEY,
    seq       INTEGER NOT NULL,
    horizon   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    principal         TEXT NOT NULL,
    seq               INTEGER NOT NULL,
    id                TEXT NOT NULL,
    name              TEXT NOT NULL,
    call_id           TEXT,
    client_session_id TEXT,
    correlation_id    TEXT,
    upstream          TEXT,
    tool              TEXT,
    data              TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    PRIMARY KEY (principal, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_of_call ON events (call_id, seq);
CREATE INDEX events_created ON events (created_at);

CREATE TABLE webhooks (
    id                TEXT PRIMARY KEY,
    principal         TEXT NOT NULL,
    url               TEXT NOT NULL,
    events            TEXT NOT NULL,
    upstream          TEXT,
    resource_uri      TEXT,
    tool              TEXT,
    call_id           TEXT,
    client_session_id TEXT,
    correlation_id    TEXT,
    match_correlation INTEGER NOT NULL,
    secrets           BLOB NOT NULL,
    retries           TEXT NOT NULL,
    include_result    INTEGER NOT NULL,
    "when"            TEXT NOT NULL,
    ordered           INTEGER NOT NULL,
    rate_per_second   REAL,
    description       TEXT,
    state             TEXT NOT NULL,
    origin            TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    expires_at        INTEGER,
    last_delivery_at  INTEGER,
    last_error        TEXT,
    failing_since     INTEGER,
    failures          INTEGER NOT NULL,
    openings          INTEGER NOT NULL,
    paused_until      INTEGER,
    missed_from       INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX webhooks_of_principal ON webhooks (principal, id);
CREATE INDEX webhooks_registered ON webhooks (principal) WHERE origin <> 'call';
CREATE INDEX webhooks_hearing ON webhooks (principal, call_id, client_session_id);
CREATE INDEX webhooks_expiring ON webhooks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX webhooks_watching ON webhooks (principal, upstream, resource_uri)
    WHERE instr(events, '"upstream.changed"') > 0 AND upstream IS NOT NULL;

CREATE TABLE deliveries (
    id            TEXT PRIMARY KEY,
    principal     TEXT NOT NULL,
    webhook_id    TEXT NOT NULL,
    event_id      TEXT,
    kind          TEXT NOT NULL,
    call_id       TEXT,
    seq           INTEGER,
    generation    INTEGER NOT NULL,
    state         TEXT NOT NULL,
    attempts      INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    give_up_at    INTEGER NOT NULL,
    order_key     TEXT,
    lease_token   TEXT,
    lease_until   INTEGER,
    last_category TEXT,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    UNIQUE (event_id, webhook_id, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE bodies (
    delivery_id TEXT PRIMARY KEY REFERENCES deliveries (id) ON DELETE CASCADE,
    body        BLOB NOT NULL
) STRICT;

CREATE VIEW whole_deliveries AS
SELECT deliveries.*, bodies.body
FROM deliveries CROSS JOIN bodies ON bodies.delivery_id = deliveries.id;

-- The state stands in the index although it is always the same: so SQLite answers from the index alone.
CREATE INDEX deliveries_due ON deliveries (state, due_at, webhook_id) WHERE state = 'pending';
CREATE INDEX deliveries_lanes ON deliveries (state, webhook_id, due_at, seq) WHERE state = 'pending';
CREATE INDEX deliveries_leased ON deliveries (lease_until) WHERE state = 'leased';
CREATE INDEX deliveries_open ON deliveries (webhook_id, generation, seq) WHERE state IN ('held', 'pending', 'leased');
CREATE INDEX deliveries_ordered ON deliveries (webhook_id, order_key, seq)
    WHERE order_key IS NOT NULL AND state IN ('held', 'pending', 'leased');
CREATE INDEX deliveries_held ON deliveries (webhook_id, id) WHERE state = 'held';
CREATE INDEX deliveries_held_age ON deliveries (give_up_at) WHERE state = 'held';
CREATE INDEX deliveries_progress ON deliveries (call_id) WHERE kind = 'progress' AND state IN ('held', 'pending');
CREATE INDEX deliveries_dead ON deliveries (state, principal, id) WHERE state = 'dead';
CREATE INDEX deliveries_dead_of_webhook ON deliveries (state, webhook_id, id) WHERE state = 'dead';
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX deliveries_of_principal ON deliveries (principal, id);
CREATE INDEX deliveries_of_webhook ON deliveries (webhook_id, id);
CREATE INDEX deliveries_of_call ON deliveries (call_id, id);

-- Breakers of origins that have failed; one that is closed has no row.
CREATE TABLE origins (
    origin       TEXT PRIMARY KEY,
    failures     INTEGER NOT NULL,
    openings     INTEGER NOT NULL,
    paused_until INTEGER,
    changed_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX origins_changed ON origins (changed_at);

-- A webhook whose URL is to prove that it wants callbacks, and what is being done about it.
CREATE TABLE challenges (
    webhook_id TEXT PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    principal  TEXT NOT NULL,
    url        TEXT NOT NULL,
    origin     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    token      TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX challenges_due ON challenges (due_at);
CREATE INDEX challenges_at_origin ON challenges (origin, attempts);
CREATE INDEX challenges_of_principal ON challenges (principal, attempts);

-- Challenges of the last minute: what their limits are counted by.
CREATE TABLE challenges_sent (
    id        INTEGER PRIMARY KEY,
    origin    TEXT NOT NULL,
    principal TEXT NOT NULL,
    sent_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX challenges_sent_when ON challenges_sent (sent_at);
CREATE INDEX challenges_sent_to ON challenges_sent (origin, sent_at);
CREATE INDEX challenges_sent_for ON challenges_sent (principal, sent_at);

CREATE TABLE proofs (
    principal TEXT NOT NULL,
    url       TEXT NOT NULL,
    proven_at INTEGER NOT NULL,
    PRIMARY KEY (principal, url)
) STRICT, WITHOUT ROWID;

CREATE INDEX proofs_age ON proofs (proven_at);

-- How each upstream presented itself, and what it listed last, as JSON: for the time while it is away.
CREATE TABLE catalog (
    upstream   TEXT NOT NULL,
    part       TEXT NOT NULL,
    body       TEXT NOT NULL,
    fetched_at INTEGER NOT NULL,
    PRIMARY KEY (upstream, part)
) STRICT;

-- What stands at /mcp under a name that does not tell by itself what it is.
CREATE TABLE joined_names (
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    upstream TEXT NOT NULL,
    original TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    delivery_id TEXT NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    id          TEXT NOT NULL,
    number      INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    category    TEXT NOT NULL,
    status_code INTEGER,
    excerpt     TEXT,
    PRIMARY KEY (delivery_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    prefix     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    upstreams  TEXT,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
