-- `leases` has a text 'call lease' for each call. A running call has the lease token of its runner. The calls are locked in the order of
-- their ids before the first head of a log is locked, because the heads need the counts of all of them; the heads are locked in
-- the order of principals.
-- name: lock_leased_calls
WITH locked AS MATERIALIZED (
    SELECT {call in calls} FROM calls WHERE id = ANY(:ids::text[]) ORDER BY id
    FOR NO KEY UPDATE
),
held AS MATERIALIZED (
    SELECT * FROM locked WHERE phase = 'running' AND id || ' ' || lease_token = ANY(:leases::text[])
),
places AS (
    INSERT INTO log_heads (principal, seq, last_at)
    SELECT principal, count(*), :now::bigint FROM held GROUP BY principal ORDER BY principal
    -- include: advance_head of events
    RETURNING principal, seq, last_at
)
SELECT held.*, places.seq AS head, places.last_at FROM held JOIN places ON places.principal = held.principal;

-- As `reserve_seqs` of events, for several logs in the order of principals.
-- name: reserve_places
INSERT INTO log_heads (principal, seq, last_at)
SELECT wanted.principal, wanted.count::bigint, :now::bigint
FROM unnest(:principals::text[], :counts::text[]) AS wanted (principal, count)
ORDER BY wanted.principal COLLATE "C"
-- include: advance_head of events
RETURNING principal, seq, last_at;

-- An event is a row as `found_by_events` reads it, and whether it supersedes progress.
--
--   cancelled  deliveries of progress that an event supersedes; here, so that the lowest open ones are counted without them
--
-- The places of events are texts, and LIMIT and OFFSET are there, for the reasons that `found_by_events` has.
-- name: find_receivers
WITH RECURSIVE
-- include: found_by_events of webhooks
,
logs AS MATERIALIZED (
    SELECT principal, min(seq) AS first_seq FROM happened GROUP BY principal
),
waiting AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE call_id = ANY(ARRAY(SELECT call_id FROM happened WHERE supersedes)) AND kind = 'progress' AND state IN ('held', 'pending')
    FOR NO KEY UPDATE SKIP LOCKED
),
cancelled AS (
    UPDATE deliveries SET state = 'cancelled', finished_at = :now
    FROM waiting WHERE deliveries.id = waiting.id AND deliveries.state IN ('held', 'pending')
    RETURNING deliveries.id
)
SELECT
    {webhook in webhooks}, found.principal AS log, found.seqs, found.of_call, lowest.seq AS lowest_seq,
    least(lowest.seq, logs.first_seq) - 1 AS earlier_seq, (
        SELECT id FROM events WHERE events.principal = found.principal AND events.seq = least(lowest.seq, logs.first_seq) - 1
    ) AS earlier_id
FROM found
JOIN logs ON logs.principal = found.principal
CROSS JOIN LATERAL (SELECT * FROM webhooks WHERE id = found.webhook_id LIMIT 1) AS webhooks
LEFT JOIN LATERAL (
    SELECT seq FROM deliveries
    WHERE webhook_id = found.webhook_id AND generation = 1 AND seq >= 0 AND state IN ('held', 'pending', 'leased')
        AND kind <> 'gap' AND id <> ALL(ARRAY(SELECT id FROM cancelled))
    ORDER BY seq LIMIT 1
) AS lowest ON true;

-- `ends` as in `end_many` of call_completions, `deliveries` as in `insert` of deliveries; the other rows are arrays of columns.
-- name: write
WITH ended AS (
    -- include: end_calls of call_completions
),
stored_results AS (
    INSERT INTO results (call_id, body, key_id)
    SELECT * FROM unnest(:result_calls::text[], :result_bodies::bytea[], :result_keys::text[])
),
appended AS (
    INSERT INTO events (
        id, principal, seq, name, call_id, client_session_id, correlation_id, upstream, tool, data, created_at, occurred_at, topic
    )
    SELECT * FROM unnest(
        :event_ids::text[], :event_principals::text[], :event_seqs::bigint[], :event_names::text[], :event_calls::text[],
        :event_sessions::text[], :event_correlations::text[], :event_upstreams::text[], :event_tools::text[],
        :event_data::text[], :event_times::bigint[], :event_occurrences::bigint[], :event_topics::text[]
    )
),
delivered AS (
    INSERT INTO deliveries (
        id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
        lease_owner, lease_token, lease_until, last_category, created_at, finished_at, traceparent
    )
    SELECT
        new.row ->> 0, new.row ->> 1, new.row ->> 2, new.row ->> 3, new.row ->> 4, new.row ->> 5, (new.row ->> 6)::bigint,
        (new.row ->> 7)::bigint, new.row ->> 8, (new.row ->> 9)::bigint, (new.row ->> 10)::bigint, (new.row ->> 11)::bigint,
        new.row ->> 12, new.row ->> 13, new.row ->> 14, (new.row ->> 15)::bigint, new.row ->> 16, (new.row ->> 17)::bigint,
        (new.row ->> 18)::bigint, new.row ->> 19
    FROM json_array_elements(:deliveries::json) AS new (row)
),
stored_bodies AS (
    INSERT INTO bodies (delivery_id, body, principal)
    SELECT * FROM unnest(:body_deliveries::text[], :bodies::bytea[], :body_principals::text[])
)
SELECT id FROM ended;
