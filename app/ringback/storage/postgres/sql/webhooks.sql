-- name: insert
INSERT INTO webhooks {new webhook};

-- name: get
SELECT {webhook in webhooks} FROM webhooks WHERE id = :id
{lock webhooks};

-- name: by_ids
SELECT {webhook in webhooks} FROM webhooks WHERE id = ANY(:ids::text[]) ORDER BY id
{lock webhooks};

-- name: page
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- Of all principals.
-- name: page_of_all
SELECT {webhook in webhooks} FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :limit;

-- Failing webhooks are few, and have an index: those whose last attempt or challenge failed, and that are not disabled.
-- name: page_of_failing
SELECT {webhook in webhooks} FROM webhooks
WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- name: page_of_failing_of_all
SELECT {webhook in webhooks} FROM webhooks
WHERE last_error IS NOT NULL AND state <> 'disabled' AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT :limit;

-- States have no index of their own: one page visits `scan` webhooks at most. `end_of_…` returns where that scan ended.
-- name: page_of_state
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE principal = :principal AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health::text IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state
SELECT id FROM webhooks WHERE principal = :principal AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: page_of_state_of_all
SELECT {webhook in webhooks}
FROM (
    SELECT id FROM (
        SELECT id, state, last_error FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE state = :state AND (:health::text IS NULL OR (last_error IS NOT NULL AND state <> 'disabled'))
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN webhooks ON webhooks.id = found.id
ORDER BY webhooks.id DESC;

-- name: end_of_page_of_state_of_all
SELECT id FROM webhooks WHERE id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- An event is [principal, seq, name, upstream, tool, call, client session, correlation, URI, topic, outcomes, …].
--
--   sets   the sets of filters that a principal's webhooks for this event use, from one to the next of the 256 possible sets
--   keys   the keys by which events find webhooks, once each (compare `rows.webhook_matching` and the view webhook_match_keys)
--   found  registered webhooks by key, then those that belong to calls, then those that calls name
--
-- Places are texts, because the driver asks the server about `bigint[]` when a connection first sees it, which takes 10 ms.
-- Each LIMIT and OFFSET, and each empty text, keeps PostgreSQL from reading a whole table while it believes that the table is
-- empty.
-- fragment: found_by_events
happened AS MATERIALIZED (
    SELECT
        event.row ->> 0 AS principal, (event.row ->> 1)::bigint AS seq, event.row ->> 2 AS name, event.row ->> 3 AS upstream,
        event.row ->> 4 AS tool, event.row ->> 5 AS call_id, event.row ->> 6 AS client_session_id,
        event.row ->> 7 AS correlation_id, event.row ->> 8 AS uri, event.row ->> 9 AS topic, event.row -> 10 AS outcomes,
        (event.row ->> 11)::boolean AS supersedes
    FROM json_array_elements(:events::json) AS event (row)
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
    WHERE :catching_up::boolean OR (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = matching.webhook_id) IS NULL
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
        AND (
            :catching_up::boolean OR (SELECT true FROM catch_ups WHERE catch_ups.webhook_id = naming.webhook_id) IS NULL
        )
)

-- As `find_receivers` of log_appends, but without locks, for units that read, and also with webhooks that catch up.
-- name: candidates
WITH RECURSIVE
-- include: found_by_events
SELECT {webhook in webhooks}, found.principal AS log, found.seqs, found.of_call
FROM found
CROSS JOIN LATERAL (SELECT * FROM webhooks WHERE id = found.webhook_id LIMIT 1) AS webhooks;

-- One statement for each part of a webhook: the owner's settings, its health by the receiver's answers, and so on.

-- name: update_settings
UPDATE webhooks SET
    url = :url, events = :events, outcomes = :outcomes, upstream = :upstream, resource_uri = :resource_uri, tool = :tool, call_id = :call_id,
    client_session_id = :client_session_id, correlation_id = :correlation_id, match_correlation = :match_correlation,
    retries = :retries, retry_steps = :retry_steps, include_result = :include_result, "when" = :when, ordered = :ordered,
    rate_per_second = :rate_per_second, description = :description, message_ids = :message_ids,
    shown_event_name = :shown_event_name, created_at = :created_at, updated_at = :updated_at, expires_at = :expires_at
WHERE id = :id;

-- name: update_secrets
UPDATE webhooks SET secrets = coalesce(:secrets::bytea, secrets), updated_at = :updated_at WHERE id = :id;

-- name: update_state
UPDATE webhooks SET state = :state, paused_at = :paused_at, updated_at = greatest(updated_at, :updated_at) WHERE id = :id;

-- name: update_health
UPDATE webhooks SET
    last_delivery_at = :last_delivery_at, last_error = :last_error, last_error_detail = :last_error_detail,
    failing_since = :failing_since, alerted_percent = :alerted_percent, failures = :failures, openings = :openings, paused_until = :paused_until,
    counted_since = :counted_since, counted_attempts = :counted_attempts, counted_failures = :counted_failures
WHERE id = :id;

-- name: update_missed
UPDATE webhooks SET missed_from = :missed_from WHERE id = :id;

-- name: delete
DELETE FROM webhooks WHERE id = :id;

-- As `cancel_open` of webhook_deliveries, which has cancelled most.
-- name: cancel_open_deliveries
WITH waiting AS MATERIALIZED (
    SELECT id FROM deliveries WHERE webhook_id = :id AND state IN ('held', 'pending', 'leased')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'cancelled', finished_at = :now, lease_owner = NULL, lease_token = NULL, lease_until = NULL
FROM waiting WHERE deliveries.id = waiting.id;

-- Every visited webhook is a row, so that the last row is where the next scan begins. (Here and above a
-- subquery returns true instead of an EXISTS: for that, PostgreSQL may read all rows of the other table once.) The
-- locks make sure that what is deleted has still expired: a webhook that another unit changes now is skipped, and
-- PostgreSQL looks again at one that was extended before its lock.
-- name: expired
SELECT id, principal, expires_at, coalesce((
    SELECT true FROM deliveries WHERE webhook_id = webhooks.id AND state IN ('held', 'pending', 'leased') LIMIT 1
), false) AS busy
FROM webhooks
WHERE expires_at <= :now AND (expires_at, id) > (:after_instant, :after_id)
ORDER BY expires_at, id LIMIT :limit
{lock webhooks skip locked};
