-- Rows that are newer than the request stay: `until` is its instant.

-- Up to `bytes_max` of arguments and results, but at least one call.
-- name: calls_of_session
SELECT id FROM (
    SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM (
        SELECT id, coalesce(argument_bytes, 0) + coalesce(result_bytes, 0) AS bytes FROM calls
        WHERE principal = :principal AND client_session_id = :client_session_id AND created_at <= :until
        ORDER BY id LIMIT :limit
    ) AS found
) AS summed
WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes ORDER BY id;

-- name: calls_of_principal
SELECT id FROM (
    SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM (
        SELECT id, coalesce(argument_bytes, 0) + coalesce(result_bytes, 0) AS bytes FROM calls
        WHERE principal = :principal AND created_at <= :until
        ORDER BY id LIMIT :limit
    ) AS found
) AS summed
WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes ORDER BY id;

-- A principal has few open calls beside those that have ended (its quota); the index leaves out the completed ones.
-- Those whose cancellation was not requested yet are first: the others may go on for days.
-- name: open_calls
SELECT id FROM calls
WHERE principal = :principal AND status IN ('working', 'input_required') AND status <> 'completed'
    AND (:client_session_id::text IS NULL OR client_session_id = :client_session_id) AND created_at <= :until
ORDER BY cancel_requested LIMIT :limit;

-- name: webhooks_of_session
SELECT id FROM webhooks
WHERE principal = :principal AND client_session_id = :client_session_id AND created_at <= :until
    AND client_session_id IS NOT NULL AND (origin <> 'call' OR call_id IS NULL)
ORDER BY id LIMIT :limit;

-- name: webhooks_of_principal
SELECT id FROM webhooks WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit;

-- name: webhooks_of_calls
SELECT id FROM webhooks WHERE principal || '' = :principal AND call_id = ANY(:call_ids::text[]) AND origin = 'call' LIMIT :limit;

-- In the order of the list, and of the log for each call. At most `limit` events of each call are read.
-- name: events_of_calls
SELECT {event in events}
FROM unnest(:call_ids::text[]) WITH ORDINALITY AS erased (id, place) CROSS JOIN LATERAL (
    SELECT * FROM events WHERE events.call_id = erased.id AND events.seq > :seq AND events.principal || '' = :principal
    ORDER BY events.seq LIMIT :limit
) AS events
ORDER BY erased.place, events.seq LIMIT :limit;

-- Ids are in the order of their making, so the newest row is the last one of its index. Those of subscriptions are hashes, so their
-- indexes have the time.
-- name: newer_of_session
SELECT 1 AS found WHERE :until < (
    SELECT created_at FROM calls WHERE principal = :principal AND client_session_id = :client_session_id
    ORDER BY id DESC LIMIT 1
) OR :until < (
    SELECT created_at FROM webhooks
    WHERE principal = :principal AND client_session_id = :client_session_id
        AND client_session_id IS NOT NULL AND (origin <> 'call' OR call_id IS NULL)
    ORDER BY id DESC LIMIT 1
) OR :until < (
    SELECT max(created_at) FROM webhooks
    WHERE principal = :principal AND client_session_id = :client_session_id AND client_session_id IS NOT NULL AND id < 'wh_'
);

-- Only the indexes of the principal have these orders ('~' sorts after every id). With `principal = …` the primary keys have them
-- too, and PostgreSQL may read the rows of all principals along those.
-- There may be many MCP sessions. Those of before are deleted before an erasure waits, so the first of them tell.
-- name: newer_of_principal
SELECT 1 AS found WHERE :until < (
    SELECT created_at FROM calls WHERE principal >= :principal AND (principal, id) < (:principal, '~')
    ORDER BY principal DESC, id DESC LIMIT 1
) OR :until < (
    SELECT created_at FROM webhooks WHERE principal >= :principal AND (principal, id) < (:principal, '~')
    ORDER BY principal DESC, id DESC LIMIT 1
) OR :until < (
    SELECT max(created_at) FROM subscriptions WHERE principal = :principal
) OR :until < (
    SELECT created_at FROM api_keys WHERE principal >= :principal AND (principal, id) < (:principal, '~')
    ORDER BY principal DESC, id DESC LIMIT 1
) OR :until < (
    SELECT created_at FROM sign_ins WHERE principal >= :principal AND (principal, id) < (:principal, '~')
    ORDER BY principal DESC, id DESC LIMIT 1
) OR :until < (
    SELECT created_at FROM portal_links WHERE principal >= :principal AND (principal, id) < (:principal, '~')
    ORDER BY principal DESC, id DESC LIMIT 1
) OR :until < (
    SELECT max(created_at) FROM (SELECT created_at FROM mcp_sessions WHERE principal = :principal LIMIT 200) AS first_sessions
) OR EXISTS (SELECT 1 FROM upstream_tokens WHERE owner = :principal AND obtained_at > :until)
    OR EXISTS (SELECT 1 FROM event_types WHERE principal = :principal AND created_at > :until)
    OR EXISTS (SELECT 1 FROM events WHERE principal = :principal AND seq > :head AND call_id IS NULL);

-- An id is made some milliseconds before its row is written, so the newest row is among the last ids.
-- name: last_calls
SELECT created_at FROM calls WHERE principal = :principal ORDER BY id DESC LIMIT :limit;

-- name: last_webhooks
SELECT created_at FROM webhooks WHERE principal = :principal ORDER BY id DESC LIMIT :limit;

-- Ids of subscriptions are hashes; their index has the time.
-- name: last_subscriptions
SELECT created_at FROM subscriptions WHERE principal = :principal ORDER BY created_at DESC LIMIT :limit;

-- A refresh of tokens is dated by the clock of its node, too.
-- name: last_tokens
SELECT obtained_at AS created_at FROM upstream_tokens WHERE owner = :principal ORDER BY obtained_at DESC LIMIT :limit;

-- name: last_calls_of_session
SELECT created_at FROM calls WHERE principal = :principal AND client_session_id = :client_session_id ORDER BY id DESC LIMIT :limit;

-- name: last_webhooks_of_session
SELECT created_at FROM webhooks
WHERE principal = :principal AND client_session_id = :client_session_id
    AND client_session_id IS NOT NULL AND (origin <> 'call' OR call_id IS NULL)
ORDER BY id DESC LIMIT :limit;

-- name: last_subscriptions_of_session
SELECT created_at FROM webhooks
WHERE principal = :principal AND client_session_id = :client_session_id AND client_session_id IS NOT NULL AND id < 'wh_'
ORDER BY created_at DESC LIMIT :limit;

-- Turns have no index by principal: one look into the index for each upstream.
-- name: delete_turns
WITH RECURSIVE upstreams (upstream) AS (
    (SELECT upstream FROM turns ORDER BY upstream LIMIT 1)
    UNION ALL
    SELECT (SELECT upstream FROM turns WHERE turns.upstream > upstreams.upstream ORDER BY upstream LIMIT 1)
    FROM upstreams WHERE upstreams.upstream IS NOT NULL
)
DELETE FROM turns WHERE upstream = ANY(ARRAY(SELECT upstreams.upstream FROM upstreams)) AND principal = :principal;

-- Of a principal at origins: the name, a space and the origin. '!' comes next after a space. A further space is one in the name of
-- another principal.
-- name: delete_breakers
DELETE FROM origins WHERE origin = ANY(ARRAY(
    SELECT origin FROM origins
    WHERE origin > :principal || ' ' AND origin < :principal || '!'
        AND strpos(substr(origin, length(:principal) + 2), ' ') = 0
    ORDER BY origin LIMIT :limit FOR UPDATE
));

-- The sums of a principal without rows are 0, though its parts may not be.
-- name: delete_call_counts
WITH parts AS MATERIALIZED (SELECT * FROM call_counts WHERE principal = :principal ORDER BY part FOR UPDATE)
DELETE FROM call_counts
WHERE principal = :principal AND part = ANY(ARRAY(SELECT parts.part FROM parts)) AND (
    SELECT (sum(working), sum(input_required), sum(completed), sum(failed), sum(cancelled)) = (0, 0, 0, 0, 0) FROM parts
);

-- name: delete_subscription_counts
DELETE FROM subscription_counts WHERE principal = :principal AND live = 0;
