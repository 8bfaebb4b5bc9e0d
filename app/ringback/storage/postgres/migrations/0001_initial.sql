-- Instants are bigint milliseconds since 1970 UTC, as in SQLite: rows of the two stores compare as they are, and no time zone can be
-- wrong. JSON is text: jsonb refuses \u0000, sorts keys and changes numbers. Every text sorts by its bytes (COLLATE "C"), because
-- ids and positions of pages rely on that order, and because an index on such a text survives an upgrade of the system's locales.
-- What is large and never changes (arguments, results, bodies) has a table of its own: PostgreSQL writes a changed row as a whole.
--
-- `n_distinct` is set where a list selects one of many. Statements are planned once for all their parameters, and if nearly all rows
-- are one principal's, the planner would read another principal's page along the primary key, through all rows of the first one.

CREATE TABLE calls (
    id                text COLLATE "C" PRIMARY KEY,
    principal         text COLLATE "C" NOT NULL,
    upstream          text COLLATE "C" NOT NULL,
    tool              text COLLATE "C" NOT NULL,
    client_session_id text COLLATE "C",
    correlation_id    text COLLATE "C",
    idempotency_key   text COLLATE "C",
    request_hash      text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL,
    phase             text COLLATE "C" NOT NULL,
    outcome           text COLLATE "C",
    progress          text COLLATE "C",
    error             text COLLATE "C",
    result_bytes      bigint,
    result_sha256     text COLLATE "C",
    handle            text COLLATE "C",
    input_requests    text COLLATE "C",
    input_responses   text COLLATE "C",
    input_round       bigint NOT NULL,
    accepts_input     boolean NOT NULL,
    rerun_policy      text COLLATE "C" NOT NULL,
    rerun_allowed     boolean NOT NULL,
    cancel_requested  boolean NOT NULL,
    lease_owner       text COLLATE "C",
    lease_token       text COLLATE "C",
    lease_until       bigint,
    dispatched_at     bigint,
    runs              bigint NOT NULL,
    attended_until    bigint,
    token_version     bigint NOT NULL,
    created_at        bigint NOT NULL,
    updated_at        bigint NOT NULL,
    finished_at       bigint,
    not_before        bigint,
    deadline_at       bigint NOT NULL,
    expires_at        bigint
) WITH (
    -- A dispatch and progress change no indexed column. With room on its page such a version needs no new index entries.
    fillfactor = 80,
    -- Each call leaves three or four dead versions. The default waits for a fifth of all calls that retention keeps.
    autovacuum_vacuum_scale_factor = 0.02
);

ALTER TABLE calls
    ALTER principal SET (n_distinct = -0.01),
    ALTER upstream SET (n_distinct = -0.01),
    ALTER client_session_id SET (n_distinct = -0.1),
    ALTER correlation_id SET (n_distinct = -0.1);

-- inputs and results have no foreign key: checking it costs every start and every end a lookup and a lock of the call's row.
-- tombstones.delete_call deletes the three together.
CREATE TABLE inputs (
    call_id   text COLLATE "C" PRIMARY KEY,
    arguments text COLLATE "C" NOT NULL,
    meta      text COLLATE "C" NOT NULL
);

CREATE TABLE results (
    call_id text COLLATE "C" PRIMARY KEY,
    body    bytea NOT NULL
);

-- Scalar subqueries instead of a join: a lock of a row of this view locks the call, and nothing else.
CREATE VIEW whole_calls AS
SELECT
    calls.*,
    (SELECT inputs.arguments FROM inputs WHERE inputs.call_id = calls.id) AS arguments,
    (SELECT inputs.meta FROM inputs WHERE inputs.call_id = calls.id) AS meta
FROM calls;

CREATE INDEX calls_queued ON calls (upstream, principal, id) WHERE phase = 'queued';
CREATE INDEX calls_scheduled ON calls (not_before) WHERE phase = 'scheduled';
CREATE INDEX calls_running ON calls (lease_until) WHERE phase = 'running';
CREATE INDEX calls_waiting_deadline ON calls (deadline_at) WHERE phase IN ('queued', 'parked');
CREATE INDEX calls_expiring ON calls (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX calls_of_principal ON calls (principal, id);
CREATE INDEX calls_of_session ON calls (principal, client_session_id, id) WHERE client_session_id IS NOT NULL;
CREATE INDEX calls_of_correlation ON calls (principal, correlation_id, id) WHERE correlation_id IS NOT NULL;
CREATE INDEX calls_of_status ON calls (principal, status, id) WHERE status <> 'completed';
CREATE UNIQUE INDEX calls_idempotency ON calls (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The task id as JSON text. PostgreSQL refuses U+0000 in any string of a JSON text that it takes apart, so that is replaced first.
-- The hash is indexed, because a task id may be longer than an index entry.
CREATE INDEX calls_of_task ON calls (
    upstream, hashtextextended((replace(handle, '\u0000', '\ufffd')::json #> '{1,task_id}')::text COLLATE "C", 0)
) WHERE handle IS NOT NULL;

-- How many calls there are, kept up by a trigger: quotas are checked at every start. A principal has several rows, whose sums are
-- the counts: a transaction changes any row that no other transaction holds, so it never waits for one. There are about as many
-- rows as transactions that ever counted for the principal at the same time. A single row's counts may be negative.
CREATE TABLE call_counts (
    principal      text COLLATE "C" NOT NULL,
    part           bigint GENERATED ALWAYS AS IDENTITY,
    working        bigint NOT NULL,
    input_required bigint NOT NULL,
    completed      bigint NOT NULL,
    failed         bigint NOT NULL,
    cancelled      bigint NOT NULL,
    result_bytes   bigint NOT NULL,
    PRIMARY KEY (principal, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION count_call() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted text := coalesce(NEW.principal, OLD.principal);
    new_status text := coalesce(NEW.status, '');
    old_status text := coalesce(OLD.status, '');
    more_bytes bigint := coalesce(NEW.result_bytes, 0) - coalesce(OLD.result_bytes, 0);
BEGIN
    UPDATE call_counts SET
        working = working + (new_status = 'working')::int - (old_status = 'working')::int,
        input_required = input_required + (new_status = 'input_required')::int - (old_status = 'input_required')::int,
        completed = completed + (new_status = 'completed')::int - (old_status = 'completed')::int,
        failed = failed + (new_status = 'failed')::int - (old_status = 'failed')::int,
        cancelled = cancelled + (new_status = 'cancelled')::int - (old_status = 'cancelled')::int,
        result_bytes = result_bytes + more_bytes
    WHERE principal = counted AND part = (
        SELECT part FROM call_counts WHERE principal = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    );
    IF NOT FOUND THEN
        INSERT INTO call_counts (principal, working, input_required, completed, failed, cancelled, result_bytes)
        VALUES (
            counted,
            (new_status = 'working')::int - (old_status = 'working')::int,
            (new_status = 'input_required')::int - (old_status = 'input_required')::int,
            (new_status = 'completed')::int - (old_status = 'completed')::int,
            (new_status = 'failed')::int - (old_status = 'failed')::int,
            (new_status = 'cancelled')::int - (old_status = 'cancelled')::int,
            more_bytes
        );
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER calls_count_new AFTER INSERT ON calls FOR EACH ROW EXECUTE FUNCTION count_call();
CREATE TRIGGER calls_count_moved AFTER UPDATE OF status, result_bytes ON calls FOR EACH ROW
WHEN (NEW.status <> OLD.status OR NEW.result_bytes IS DISTINCT FROM OLD.result_bytes)
EXECUTE FUNCTION count_call();
CREATE TRIGGER calls_count_gone AFTER DELETE ON calls FOR EACH ROW EXECUTE FUNCTION count_call();

-- The principal with the lowest ticket was served longest ago on the upstream. Tickets come from a sequence: the highest one of a
-- table would be the same for two transactions. One value of the sequence is a thousand tickets, for a lease of many principals.
CREATE TABLE turns (
    upstream  text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    ticket    bigint NOT NULL,
    PRIMARY KEY (upstream, principal)
) WITH (fillfactor = 50);

CREATE SEQUENCE turn_tickets INCREMENT BY 1000;

CREATE TABLE tombstones (
    call_id         text COLLATE "C" PRIMARY KEY,
    principal       text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C",
    request_hash    text COLLATE "C" NOT NULL,
    expired_at      bigint NOT NULL
);

CREATE UNIQUE INDEX tombstones_idempotency ON tombstones (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tombstones_expired ON tombstones (expired_at);

-- One row for each principal, changed with every event and locked until the commit: so `seq` is the order of the commits.
CREATE TABLE log_heads (
    principal text COLLATE "C" PRIMARY KEY,
    seq       bigint NOT NULL,
    horizon   bigint NOT NULL DEFAULT 0
) WITH (
    -- Versions of a head stay on its page, where the next change removes the dead ones.
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);

-- Not partitioned by day: a position in a log is looked up by principal and seq, without a date, and would be searched in every
-- partition. Retention deletes in small batches along events_created.
CREATE TABLE events (
    principal         text COLLATE "C" NOT NULL,
    seq               bigint NOT NULL,
    id                text COLLATE "C" NOT NULL,
    name              text COLLATE "C" NOT NULL,
    call_id           text COLLATE "C",
    client_session_id text COLLATE "C",
    correlation_id    text COLLATE "C",
    upstream          text COLLATE "C",
    tool              text COLLATE "C",
    data              text COLLATE "C" NOT NULL,
    created_at        bigint NOT NULL,
    PRIMARY KEY (principal, seq)
);

ALTER TABLE events ALTER principal SET (n_distinct = -0.01), ALTER call_id SET (n_distinct = -0.1);

CREATE INDEX events_of_call ON events (call_id, seq);
CREATE INDEX events_created ON events (created_at);

CREATE TABLE webhooks (
    id                text COLLATE "C" PRIMARY KEY,
    principal         text COLLATE "C" NOT NULL,
    url               text COLLATE "C" NOT NULL,
    events            text COLLATE "C" NOT NULL,
    outcomes          text COLLATE "C",
    upstream          text COLLATE "C",
    resource_uri      text COLLATE "C",
    tool              text COLLATE "C",
    call_id           text COLLATE "C",
    client_session_id text COLLATE "C",
    correlation_id    text COLLATE "C",
    match_correlation boolean NOT NULL,
    secrets           bytea NOT NULL,
    retries           text COLLATE "C" NOT NULL,
    include_result    boolean NOT NULL,
    "when"            text COLLATE "C" NOT NULL,
    ordered           boolean NOT NULL,
    rate_per_second   double precision,
    description       text COLLATE "C",
    name              text COLLATE "C",
    idempotency_key   text COLLATE "C",
    request_hash      text COLLATE "C",
    state             text COLLATE "C" NOT NULL,
    origin            text COLLATE "C" NOT NULL,
    created_at        bigint NOT NULL,
    updated_at        bigint NOT NULL,
    expires_at        bigint,
    last_delivery_at  bigint,
    last_error        text COLLATE "C",
    failing_since     bigint,
    failures          bigint NOT NULL,
    openings          bigint NOT NULL,
    paused_until      bigint,
    missed_from       bigint
) WITH (
    -- The health changes with the deliveries, and no index has its columns.
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02
);

ALTER TABLE webhooks
    ALTER principal SET (n_distinct = -0.01),
    ALTER secrets SET STORAGE EXTERNAL;  -- sealed bytes cannot be compressed

-- URLs and the resources of an upstream may be longer than an index entry: indexes have their hashes, or leave them out. An absent
-- filter is U+001F in `webhooks_of_target`, which no label contains, because an index does not find `IS NOT DISTINCT FROM`.
CREATE INDEX webhooks_of_principal ON webhooks (principal, id);
CREATE INDEX webhooks_of_call ON webhooks (call_id) WHERE origin = 'call';
CREATE INDEX webhooks_of_target ON webhooks (
    principal, hashtextextended(url, 0), coalesce(client_session_id, E'\x1f'), coalesce(call_id, E'\x1f'), id
) WHERE origin <> 'call' OR call_id IS NULL;
CREATE INDEX webhooks_expiring ON webhooks (expires_at, id) WHERE expires_at IS NOT NULL;
CREATE INDEX webhooks_watching ON webhooks (expires_at)
    WHERE position('"upstream.changed"' IN events) > 0 AND upstream IS NOT NULL AND state <> 'disabled';
CREATE UNIQUE INDEX webhooks_by_name ON webhooks (principal, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX webhooks_idempotency ON webhooks (principal, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- One row for each event name that a registered webhook asks for, as in SQLite. `match_key` is the hash of the joined values. Two
-- keys with one hash match a webhook too many, which `domain.webhook.matches_event` then leaves out.
CREATE TABLE webhook_matches (
    principal  text COLLATE "C" NOT NULL,
    event_name text COLLATE "C" NOT NULL,
    fields     bigint NOT NULL,
    match_key  bigint NOT NULL,
    ends_at    bigint NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (principal, event_name, fields, match_key, ends_at, webhook_id)
);

CREATE INDEX webhook_matches_of_webhook ON webhook_matches (webhook_id);

-- The one place that says which rows a webhook has. A disabled webhook has none.
CREATE VIEW webhook_match_keys AS
SELECT
    webhooks.principal,
    names.name AS event_name,
    (upstream IS NOT NULL)::int
        + 2 * (tool IS NOT NULL)::int
        + 4 * (call_id IS NOT NULL)::int
        + 8 * (client_session_id IS NOT NULL)::int
        + 16 * (match_correlation AND correlation_id IS NOT NULL)::int
        + 32 * (names.name = 'upstream.changed' AND resource_uri IS NOT NULL)::int
        + 64 * (names.name = 'call.finished' AND outcomes IS NOT NULL)::int AS fields,
    hashtextextended((
        coalesce(upstream || E'\x1f', '')
        || coalesce(tool || E'\x1f', '')
        || coalesce(call_id || E'\x1f', '')
        || coalesce(client_session_id || E'\x1f', '')
        || coalesce(CASE WHEN match_correlation THEN correlation_id END || E'\x1f', '')
        || coalesce(CASE WHEN names.name = 'upstream.changed' THEN resource_uri END || E'\x1f', '')
        || coalesce(accepted.outcome || E'\x1f', '')
    ) COLLATE "C", 0) AS match_key,
    coalesce(expires_at, 9223372036854775807) AS ends_at,
    webhooks.id AS webhook_id
FROM webhooks
CROSS JOIN LATERAL json_array_elements_text(webhooks.events::json) AS names (name)
LEFT JOIN LATERAL json_array_elements_text(
    CASE WHEN names.name = 'call.finished' THEN webhooks.outcomes END::json
) AS accepted (outcome) ON true
WHERE state <> 'disabled' AND origin <> 'call';

CREATE FUNCTION match_webhook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM webhook_matches WHERE webhook_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO webhook_matches (principal, event_name, fields, match_key, ends_at, webhook_id)
        SELECT principal, event_name, fields, match_key, ends_at, webhook_id FROM webhook_match_keys
        WHERE webhook_id = NEW.id
        ON CONFLICT DO NOTHING;  -- two outcomes with one hash
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER webhooks_match_new AFTER INSERT ON webhooks FOR EACH ROW WHEN (NEW.origin <> 'call')
EXECUTE FUNCTION match_webhook();
CREATE TRIGGER webhooks_match_changed
AFTER UPDATE OF events, outcomes, upstream, resource_uri, tool, call_id, client_session_id, correlation_id, match_correlation, state,
    expires_at
ON webhooks FOR EACH ROW
WHEN (OLD.origin <> 'call' AND (
    (OLD.events, OLD.outcomes, OLD.upstream, OLD.resource_uri, OLD.tool, OLD.call_id, OLD.client_session_id, OLD.correlation_id,
        OLD.match_correlation, OLD.state, OLD.expires_at)
    IS DISTINCT FROM
    (NEW.events, NEW.outcomes, NEW.upstream, NEW.resource_uri, NEW.tool, NEW.call_id, NEW.client_session_id, NEW.correlation_id,
        NEW.match_correlation, NEW.state, NEW.expires_at)
))
EXECUTE FUNCTION match_webhook();
CREATE TRIGGER webhooks_match_gone AFTER DELETE ON webhooks FOR EACH ROW WHEN (OLD.origin <> 'call')
EXECUTE FUNCTION match_webhook();

CREATE TABLE catch_ups (
    webhook_id text COLLATE "C" PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    principal  text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    delivered  bigint NOT NULL
);

CREATE INDEX catch_ups_of_principal ON catch_ups (principal, webhook_id);

CREATE FUNCTION end_catch_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM catch_ups WHERE webhook_id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER webhooks_disabled AFTER UPDATE OF state ON webhooks FOR EACH ROW
WHEN (NEW.state = 'disabled' AND OLD.state <> 'disabled') EXECUTE FUNCTION end_catch_up();

CREATE TABLE call_webhooks (
    call_id    text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (call_id, webhook_id)
);

CREATE INDEX call_webhooks_of_webhook ON call_webhooks (webhook_id);

-- Open deliveries change several times within seconds, and are few. Those that are over stay for two weeks, and never change. Each
-- kind has a partition: vacuum visits the small one often, and its indexes stay small. A delivery that ends moves to the other.
-- Measured beside 200,000 deliveries that are over: the same bytes of log as in one table, 0.6 of the time, and a vacuum reads 2 MB
-- of indexes instead of 75 MB. Not partitioned by day, too: a delivery is looked up by its id, its call or its webhook, without a
-- date, and would be searched in every partition; retention deletes in small batches along deliveries_finished.
-- A partitioned table has no unique index without `state`, so each partition has its own, and no table refers to deliveries:
-- deliveries.remove deletes bodies and attempts, too.
CREATE TABLE deliveries (
    id            text COLLATE "C" NOT NULL,
    principal     text COLLATE "C" NOT NULL,
    webhook_id    text COLLATE "C" NOT NULL,
    event_id      text COLLATE "C",
    kind          text COLLATE "C" NOT NULL,
    call_id       text COLLATE "C",
    seq           bigint,
    generation    bigint NOT NULL,
    state         text COLLATE "C" NOT NULL,
    attempts      bigint NOT NULL,
    due_at        bigint NOT NULL,
    give_up_at    bigint NOT NULL,
    order_key     text COLLATE "C",
    lease_owner   text COLLATE "C",
    lease_token   text COLLATE "C",
    lease_until   bigint,
    last_category text COLLATE "C",
    created_at    bigint NOT NULL,
    finished_at   bigint
) PARTITION BY LIST (state);

CREATE TABLE open_deliveries PARTITION OF deliveries FOR VALUES IN ('held', 'pending', 'leased')
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE ended_deliveries PARTITION OF deliveries FOR VALUES IN ('delivered', 'dead', 'cancelled');

ALTER TABLE open_deliveries
    ALTER principal SET (n_distinct = -0.01),
    ALTER webhook_id SET (n_distinct = -0.01),
    ALTER call_id SET (n_distinct = -0.1);

ALTER TABLE ended_deliveries
    ALTER principal SET (n_distinct = -0.01),
    ALTER webhook_id SET (n_distinct = -0.01),
    ALTER call_id SET (n_distinct = -0.1);

CREATE UNIQUE INDEX open_deliveries_id ON open_deliveries (id);
CREATE UNIQUE INDEX ended_deliveries_id ON ended_deliveries (id);
CREATE UNIQUE INDEX open_deliveries_generation ON open_deliveries (event_id, webhook_id, generation);
CREATE UNIQUE INDEX ended_deliveries_generation ON ended_deliveries (event_id, webhook_id, generation);

CREATE INDEX deliveries_of_principal ON deliveries (principal, id);
CREATE INDEX deliveries_of_webhook ON deliveries (webhook_id, id);
CREATE INDEX deliveries_of_call ON deliveries (call_id, id);

CREATE INDEX deliveries_due ON open_deliveries (due_at) WHERE state = 'pending';
CREATE INDEX deliveries_lanes ON open_deliveries (webhook_id, due_at, seq) WHERE state = 'pending';
CREATE INDEX deliveries_pending_age ON open_deliveries (webhook_id, give_up_at) WHERE state = 'pending';
CREATE INDEX deliveries_without_key ON open_deliveries (webhook_id, due_at) WHERE order_key IS NULL AND state = 'pending';
CREATE INDEX deliveries_leased ON open_deliveries (lease_until) WHERE state = 'leased';
CREATE INDEX deliveries_leased_to ON open_deliveries (webhook_id, order_key) WHERE state = 'leased';
CREATE INDEX deliveries_open ON open_deliveries (webhook_id, generation, seq);
CREATE INDEX deliveries_ordered ON open_deliveries (webhook_id, order_key, seq) WHERE order_key IS NOT NULL;
CREATE INDEX deliveries_held ON open_deliveries (webhook_id, id) WHERE state = 'held';
CREATE INDEX deliveries_held_age ON open_deliveries (give_up_at) WHERE state = 'held';
CREATE INDEX deliveries_waiting_of_call ON open_deliveries (call_id, kind) WHERE state IN ('held', 'pending');

CREATE INDEX deliveries_dead ON ended_deliveries (principal, id) WHERE state = 'dead';
CREATE INDEX deliveries_dead_of_webhook ON ended_deliveries (webhook_id, id) WHERE state = 'dead';
CREATE INDEX deliveries_finished ON ended_deliveries (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE bodies (
    delivery_id text COLLATE "C" PRIMARY KEY,
    body        bytea NOT NULL
);

ALTER TABLE bodies ALTER body SET STORAGE EXTERNAL;  -- sealed bytes cannot be compressed

CREATE VIEW whole_deliveries AS
SELECT deliveries.*, (SELECT bodies.body FROM bodies WHERE bodies.delivery_id = deliveries.id) AS body
FROM deliveries;

CREATE TABLE attempts (
    delivery_id text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    started_at  bigint NOT NULL,
    duration_ms bigint NOT NULL,
    category    text COLLATE "C" NOT NULL,
    status_code bigint,
    excerpt     text COLLATE "C",
    PRIMARY KEY (delivery_id, id)
);

-- How many deliveries are held for each webhook: the sum of its rows, for the reason of `call_counts`.
CREATE TABLE held_counts (
    webhook_id text COLLATE "C" NOT NULL,
    part       bigint GENERATED ALWAYS AS IDENTITY,
    held       bigint NOT NULL,
    PRIMARY KEY (webhook_id, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION count_held() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counted text := coalesce(NEW.webhook_id, OLD.webhook_id);
    more bigint := coalesce((NEW.state = 'held')::int, 0) - coalesce((OLD.state = 'held')::int, 0);
    counted_part bigint;
    counts bigint;
BEGIN
    UPDATE held_counts SET held = held + more
    WHERE webhook_id = counted AND part = (
        SELECT part FROM held_counts WHERE webhook_id = counted ORDER BY part LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING part, held INTO counted_part, counts;
    IF NOT FOUND THEN
        INSERT INTO held_counts (webhook_id, held) VALUES (counted, more);
    ELSIF counts = 0 THEN
        DELETE FROM held_counts WHERE webhook_id = counted AND part = counted_part;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER deliveries_held_new AFTER INSERT ON open_deliveries FOR EACH ROW WHEN (NEW.state = 'held')
EXECUTE FUNCTION count_held();
CREATE TRIGGER deliveries_held_changed AFTER UPDATE OF state ON open_deliveries FOR EACH ROW
WHEN ((NEW.state = 'held') <> (OLD.state = 'held')) EXECUTE FUNCTION count_held();
CREATE TRIGGER deliveries_held_gone AFTER DELETE ON open_deliveries FOR EACH ROW WHEN (OLD.state = 'held')
EXECUTE FUNCTION count_held();

CREATE TABLE origins (
    origin       text COLLATE "C" PRIMARY KEY,
    failures     bigint NOT NULL,
    openings     bigint NOT NULL,
    paused_until bigint,
    changed_at   bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX origins_changed ON origins (changed_at);

CREATE TABLE challenges (
    webhook_id text COLLATE "C" PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    principal  text COLLATE "C" NOT NULL,
    url        text COLLATE "C" NOT NULL,
    origin     text COLLATE "C" NOT NULL,
    attempts   bigint NOT NULL,
    due_at     bigint NOT NULL,
    token      text COLLATE "C"
);

CREATE INDEX challenges_due ON challenges (due_at);
CREATE INDEX challenges_at_origin ON challenges (origin, attempts);
CREATE INDEX challenges_of_principal ON challenges (principal, attempts);

CREATE TABLE challenges_sent (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin    text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    sent_at   bigint NOT NULL
);

ALTER TABLE challenges_sent ALTER origin SET (n_distinct = -0.1), ALTER principal SET (n_distinct = -0.1);

CREATE INDEX challenges_sent_when ON challenges_sent (sent_at);
CREATE INDEX challenges_sent_to ON challenges_sent (origin, sent_at);
CREATE INDEX challenges_sent_for ON challenges_sent (principal, sent_at);

-- Unique by the hash of the URL, which may be longer than an index entry. Of two URLs with one hash, the later one replaces the
-- earlier one, whose owner then proves it again.
CREATE TABLE proofs (
    principal text COLLATE "C" NOT NULL,
    url       text COLLATE "C" NOT NULL,
    proven_at bigint NOT NULL
);

CREATE UNIQUE INDEX proofs_of_url ON proofs (principal, hashtextextended(url, 0));
CREATE INDEX proofs_age ON proofs (proven_at);

CREATE TABLE catalog (
    upstream   text COLLATE "C" NOT NULL,
    part       text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    fetched_at bigint NOT NULL,
    PRIMARY KEY (upstream, part)
);

CREATE TABLE joined_names (
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    upstream text COLLATE "C" NOT NULL,
    original text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE api_keys (
    id         text COLLATE "C" PRIMARY KEY,
    principal  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    hash       text COLLATE "C" NOT NULL UNIQUE,
    prefix     text COLLATE "C" NOT NULL,
    scopes     text COLLATE "C" NOT NULL,
    upstreams  text COLLATE "C",
    created_at bigint NOT NULL,
    revoked_at bigint
);

CREATE TABLE scheduling_time (
    id      bigint PRIMARY KEY CHECK (id = 1),
    instant bigint NOT NULL
);

CREATE TABLE write_probe (
    id     bigint PRIMARY KEY CHECK (id = 1),
    filler bytea NOT NULL
);

ALTER TABLE write_probe ALTER filler SET STORAGE EXTERNAL;  -- written as it is, as a sealed body

-- `check_value` says which key the id means. NULL until a service that has the key starts.
CREATE TABLE sealing_keys (
    key_id      text COLLATE "C" PRIMARY KEY,
    lost_at     bigint,
    check_value bytea
);

CREATE TABLE mcp_sessions (
    id         text COLLATE "C" PRIMARY KEY,
    principal  text COLLATE "C" NOT NULL,
    upstreams  text COLLATE "C",
    endpoint   text COLLATE "C" NOT NULL,
    state      bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

ALTER TABLE mcp_sessions
    ALTER principal SET (n_distinct = -0.01),
    ALTER state SET STORAGE EXTERNAL;  -- sealed bytes cannot be compressed

CREATE INDEX mcp_sessions_of_principal ON mcp_sessions (principal, endpoint, expires_at);
CREATE INDEX mcp_sessions_expiring ON mcp_sessions (expires_at);

-- Duties that one node has at a time, for example to watch the upstreams for changes.
CREATE TABLE leaders (
    duty  text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    until bigint NOT NULL
);

-- The rate limits of webhooks, shared by all nodes: when each is full again, in microseconds since 1970.
CREATE TABLE webhook_rates (
    webhook_id text COLLATE "C" PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    full_at    bigint NOT NULL
);
