-- Its own statement, because a statement sees what was committed before it. Locks of login waits have the same seed, and their texts
-- have U+001F, which no name of a principal has.
-- name: lock_usage
SELECT pg_advisory_xact_lock(hashtextextended(:principal, 2));

-- name: usage
SELECT
    coalesce(sum(working + input_required), 0)::bigint AS open_calls,
    coalesce(sum(working + input_required + completed + failed + cancelled), 0)::bigint AS stored_calls,
    coalesce(sum(result_bytes), 0)::bigint AS result_bytes,
    coalesce(sum(argument_bytes), 0)::bigint AS argument_bytes,
    (SELECT coalesce(sum(delivery_bytes), 0)::bigint FROM byte_counts WHERE principal = :principal) AS delivery_bytes
FROM call_counts WHERE principal = :principal;

-- name: log_usage
SELECT coalesce(sum(event_bytes), 0)::bigint AS event_bytes, coalesce(sum(delivery_bytes), 0)::bigint AS delivery_bytes
FROM byte_counts WHERE principal = :principal;

-- name: count_webhooks
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks
    WHERE principal = :principal AND id > 'wh_' AND (origin <> 'call' OR call_id IS NULL) LIMIT :limit
) AS counted;

-- name: calls_by_status
SELECT status, sum(calls)::bigint AS count FROM call_counts CROSS JOIN LATERAL (VALUES
    ('working', working), ('input_required', input_required), ('completed', completed), ('failed', failed), ('cancelled', cancelled)
) AS counted (status, calls)
GROUP BY status;

-- Each count ends at `limit`, so a backlog of millions costs no more than the limit.
-- name: open_deliveries
SELECT 'held' AS state, count(*) AS count FROM (SELECT 1 FROM deliveries WHERE state = 'held' LIMIT :limit) AS counted
UNION ALL SELECT 'pending', count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT :limit) AS counted
UNION ALL SELECT 'leased', count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'leased' LIMIT :limit) AS counted;

-- name: failing_webhooks
SELECT state, count(*) AS count FROM (
    SELECT state FROM webhooks WHERE last_error IS NOT NULL AND state <> 'disabled' LIMIT :limit
) AS counted
GROUP BY state;

-- Steps along the queue from upstream to upstream, and from principal to principal, `scan` of an upstream at most. Looks at the
-- first call of each.
-- name: oldest_queued_call
WITH RECURSIVE upstreams (upstream, number) AS (
    SELECT min(upstream), 1 FROM calls WHERE phase = 'queued'
    UNION ALL
    SELECT (SELECT min(upstream) FROM calls WHERE phase = 'queued' AND upstream > upstreams.upstream), number + 1
    FROM upstreams WHERE upstreams.upstream IS NOT NULL AND number < :scan
),
waiting (upstream, principal, number) AS (
    SELECT upstream, (SELECT min(principal) FROM calls WHERE phase = 'queued' AND upstream = upstreams.upstream), 1
    FROM upstreams WHERE upstream IS NOT NULL
    UNION ALL
    SELECT upstream, (
        SELECT min(principal) FROM calls
        WHERE phase = 'queued' AND upstream = waiting.upstream AND principal > waiting.principal
    ), number + 1
    FROM waiting WHERE waiting.principal IS NOT NULL AND number < :scan
)
SELECT min((
    SELECT coalesce(not_before, created_at) FROM calls
    WHERE phase = 'queued' AND upstream = waiting.upstream AND principal = waiting.principal
    ORDER BY id LIMIT 1
)) AS queued_since
FROM waiting WHERE principal IS NOT NULL;

-- Steps along the queue from upstream to upstream, `scan` of them at most. Each count goes along the index, and ends at `limit`.
-- name: queued_calls
WITH RECURSIVE upstreams (upstream, number) AS (
    SELECT min(upstream), 1 FROM calls WHERE phase = 'queued'
    UNION ALL
    SELECT (SELECT min(upstream) FROM calls WHERE phase = 'queued' AND upstream > upstreams.upstream), number + 1
    FROM upstreams WHERE upstreams.upstream IS NOT NULL AND number < :scan
)
SELECT upstream, (
    SELECT count(*) FROM (
        SELECT 1 FROM calls WHERE phase = 'queued' AND calls.upstream = upstreams.upstream LIMIT :limit
    ) AS counted
) AS count
FROM upstreams WHERE upstream IS NOT NULL;

-- name: queued_calls_of_principal
SELECT wanted.name AS upstream, (
    SELECT count(*) FROM (
        SELECT 1 FROM calls
        WHERE phase = 'queued' AND calls.upstream = wanted.name AND calls.principal = :principal LIMIT :limit
    ) AS counted
) AS count
FROM unnest(:upstreams::text[]) AS wanted (name);

-- name: count_subscriptions
SELECT coalesce(sum(live), 0)::bigint AS count FROM subscription_counts;

-- name: count_events
SELECT coalesce(sum(seq), 0)::bigint AS count FROM log_heads;

-- name: first_lease_end
SELECT min(lease_until) AS lease_until FROM calls WHERE phase = 'running';
