-- `leases` has a text 'call lease' for each call. A running call has the lease token of its runner. The calls are locked in the order of
-- their ids before the first head of a log is locked, because the heads need the counts of all of them; the heads are locked in
-- the order of principals.
-- name: lock_leased_calls
WITH locked AS MATERIALIZED (
    SELECT {call in whole_calls} FROM whole_calls WHERE id = ANY(:ids::text[]) ORDER BY id
    FOR NO KEY UPDATE
),
held AS MATERIALIZED (
    SELECT * FROM locked WHERE phase = 'running' AND id || ' ' || lease_token = ANY(:leases::text[])
),
places AS (
    INSERT INTO log_heads (principal, seq, last_at)
    SELECT principal, count(*), :now::bigint FROM held GROUP BY principal ORDER BY principal
    ON CONFLICT (principal) DO UPDATE SET
        seq = log_heads.seq + excluded.seq,
        last_at = greatest(log_heads.last_at, excluded.last_at + CASE
            WHEN clock_timestamp() - transaction_timestamp() < interval '1 second' THEN 0
            ELSE (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000)::bigint
        END)
    RETURNING principal, seq, last_at
)
SELECT held.*, places.seq AS head, places.last_at FROM held JOIN places ON places.principal = held.principal;

-- As `reserve_seqs` of events, for several logs in the order of principals.
-- name: reserve_places
INSERT INTO log_heads (principal, seq, last_at)
SELECT wanted.principal, wanted.count::bigint, :now::bigint
FROM unnest(:principals::text[], :counts::text[]) AS wanted (principal, count)
ORDER BY wanted.principal COLLATE "C"
ON CONFLICT (principal) DO UPDATE SET
    seq = log_heads.seq + excluded.seq,
    last_at = greatest(log_heads.last_at, excluded.last_at + CASE
        WHEN clock_timestamp() - transaction_timestamp() < interval '1 second' THEN 0
        ELSE (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1000)::bigint
    END)
RETURNING principal, seq, last_at;

-- An event is [principal, seq, name, upstream, tool, call, client session, correlation, URI, topic, outcomes, supersedes progress].
--
--   sets       the sets of filters that a principal's webhooks for this event use, from one to the next of the 256 possible sets
--   keys       the keys by which events find webhooks, once each (compare `rows.webhook_matching` and the view webhook_match_keys)
--   found      registered webhooks by key, then those that belong to calls, then those that calls name
--   cancelled  deliveries of progress that an event supersedes; here, so that the lowest open ones are counted without them
--
-- Places are texts, because the driver asks the server about `bigint[]` when a connection first sees it, which takes 10 ms.
-- Each LIMIT and OFFSET, and each empty text, keeps PostgreSQL from reading a whole table while it believes that the table is
-- empty.
-- name: find_receivers
WITH RECURSIVE happened AS MATERIALIZED (
    SELECT
        event.row ->> 0 AS principal, (event.row ->> 1)::bigint AS seq, event.row ->> 2 AS name, event.row ->> 3 AS upstream,
        event.row ->> 4 AS tool, event.row ->> 5 AS call_id, event.row ->> 6 AS client_session_id,
        event.row ->> 7 AS correlation_id, event.row ->> 8 AS uri, event.row ->> 9 AS topic, event.row -> 10 AS outcomes,
        (event.row ->> 11)::boolean AS supersedes
    FROM json_array_elements(:events::json) AS event (row)
),
logs AS MATERIALIZED (
    SELECT principal, min(seq) AS first_seq FROM happened GROUP BY principal
),
sets (principal, event_name, fields) AS (
    SELECT names.principal, names.name, (
        SELECT fields FROM webhook_matches
        WHERE webhook_matches.principal = names.principal AND webhook_matches.event_name = names.name
        ORDER BY fields LIMIT 1
    )
    FROM (SELECT DISTINCT principal, name FROM happened) AS names
    UNION ALL
    SELECT sets.principal, sets.event_name, (
        SELECT fields FROM webhook_matches
        WHERE webhook_matches.principal = sets.principal AND webhook_matches.event_name = sets.event_name
            AND webhook_matches.fields > sets.fields
        ORDER BY fields LIMIT 1
    )
    FROM sets WHERE sets.fields IS NOT NULL
),
keys AS MATERIALIZED (
    SELECT principal, event_name, fields, match_key, array_agg(seq::text) AS seqs
    FROM (
        SELECT happened.seq, happened.principal, sets.event_name, sets.fields, hashtextextended((
            CASE WHEN sets.fields & 1 > 0 THEN upstream || E'\x1f' ELSE '' END
            || CASE WHEN sets.fields & 2 > 0 THEN tool || E'\x1f' ELSE '' END
            || CASE WHEN sets.fields & 4 > 0 THEN call_id || E'\x1f' ELSE '' END
            || CASE WHEN sets.fields & 8 > 0 THEN client_session_id || E'\x1f' ELSE '' END
            || CASE WHEN sets.fields & 16 > 0 THEN correlation_id || E'\x1f' ELSE '' END
            || coalesce(uri || E'\x1f', '') || coalesce(accepted.outcome || E'\x1f', '') || coalesce(topic || E'\x1f', '')
        ) COLLATE "C", 0) AS match_key
        FROM sets
        JOIN happened ON happened.principal = sets.principal AND happened.name = sets.event_name
        LEFT JOIN LATERAL json_array_elements_text(
            CASE WHEN sets.fields & 64 > 0 THEN happened.outcomes END
        ) AS accepted (outcome) ON true
        WHERE (sets.fields & 32 > 0) = (uri IS NOT NULL) AND (sets.fields & 128 > 0) = (topic IS NOT NULL)
    ) AS key
    WHERE match_key IS NOT NULL  -- an event without one of the values matches none of these webhooks
    GROUP BY principal, event_name, fields, match_key
),
of_calls AS MATERIALIZED (
    SELECT principal, call_id, array_agg(seq::text) AS seqs FROM happened WHERE call_id IS NOT NULL GROUP BY principal, call_id
),
found AS MATERIALIZED (
    SELECT keys.principal, keys.seqs, NULL AS of_call, matching.webhook_id
    FROM keys
    CROSS JOIN LATERAL (
        SELECT webhook_id FROM webhook_matches
        WHERE webhook_matches.principal = keys.principal AND webhook_matches.event_name = keys.event_name
            AND webhook_matches.fields = keys.fields AND webhook_matches.match_key = keys.match_key AND ends_at > :now
        OFFSET 0
    ) AS matching
    WHERE (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = matching.webhook_id) IS NULL
    UNION ALL
    SELECT of_calls.principal, of_calls.seqs, of_calls.call_id, own.id
    FROM of_calls
    CROSS JOIN LATERAL (
        SELECT id FROM webhooks
        WHERE principal || '' = of_calls.principal AND call_id = of_calls.call_id AND origin = 'call' AND state <> 'disabled'
        OFFSET 0
    ) AS own
    UNION ALL
    SELECT of_calls.principal, of_calls.seqs, of_calls.call_id, named.id
    FROM of_calls
    CROSS JOIN LATERAL (SELECT webhook_id FROM call_webhooks WHERE call_id = of_calls.call_id OFFSET 0) AS naming
    CROSS JOIN LATERAL (SELECT id, state FROM webhooks WHERE id = naming.webhook_id LIMIT 1) AS named
    WHERE named.state <> 'disabled'
        AND (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = naming.webhook_id) IS NULL
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
    UPDATE calls SET
        status = ended.row ->> 1, phase = ended.row ->> 2, outcome = ended.row ->> 3, progress = ended.row ->> 4,
        error = ended.row ->> 5, result_bytes = (ended.row ->> 6)::bigint, result_sha256 = ended.row ->> 7,
        handle = ended.row ->> 8, input_requests = ended.row ->> 9, input_responses = ended.row ->> 10,
        cancel_requested = cancel_requested OR (ended.row ->> 11)::boolean, lease_owner = NULL, lease_token = NULL,
        lease_until = NULL, updated_at = (ended.row ->> 12)::bigint, finished_at = (ended.row ->> 13)::bigint,
        expires_at = (ended.row ->> 14)::bigint
    FROM json_array_elements(:ends::json) AS ended (row)
    WHERE calls.id = ended.row ->> 0 AND calls.status = ended.row ->> 15
        AND (ended.row ->> 16 IS NULL OR lease_token = ended.row ->> 16)
    RETURNING calls.id
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
    INSERT INTO bodies (delivery_id, body) SELECT * FROM unnest(:body_deliveries::text[], :bodies::bytea[])
)
SELECT id FROM ended;
