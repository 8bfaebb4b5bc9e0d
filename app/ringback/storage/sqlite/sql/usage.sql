-- The only writer counts alone.
-- name: lock_usage
SELECT 1 WHERE :principal IS NULL;

-- name: usage
SELECT
    coalesce(sum(CASE WHEN status IN ('working', 'input_required') THEN calls END), 0) AS open_calls,
    coalesce(sum(calls), 0) AS stored_calls,
    coalesce(sum(result_bytes), 0) AS result_bytes,
    coalesce(sum(argument_bytes), 0) AS argument_bytes,
    coalesce((SELECT delivery_bytes FROM byte_counts WHERE principal = :principal), 0) AS delivery_bytes
FROM call_counts WHERE principal = :principal;

-- name: log_usage
SELECT event_bytes, delivery_bytes FROM byte_counts WHERE principal = :principal;

-- name: count_webhooks
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks INDEXED BY webhooks_counted
    WHERE principal = :principal AND id > 'wh_' AND (origin <> 'call' OR call_id IS NULL) LIMIT :limit
);

-- name: calls_by_status
SELECT status, sum(calls) AS count FROM call_counts GROUP BY status;

-- Each count ends at `limit`, so a backlog of millions costs no more than the limit.
-- name: open_deliveries
SELECT 'held' AS state, count(*) AS count FROM (SELECT 1 FROM deliveries WHERE state = 'held' LIMIT :limit)
UNION ALL SELECT 'pending', count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT :limit)
UNION ALL SELECT 'leased', count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'leased' LIMIT :limit);

-- name: failing_webhooks
SELECT state, count(*) AS count FROM (
    SELECT state FROM webhooks INDEXED BY webhooks_failing WHERE last_error IS NOT NULL AND state <> 'disabled' LIMIT :limit
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
    )
) AS count
FROM upstreams WHERE upstream IS NOT NULL;

-- name: queued_calls_of_principal
SELECT wanted.value AS upstream, (
    SELECT count(*) FROM (
        SELECT 1 FROM calls INDEXED BY calls_queued
        WHERE phase = 'queued' AND calls.upstream = wanted.value AND calls.principal = :principal LIMIT :limit
    )
) AS count
FROM json_each(:upstreams) AS wanted;

-- name: count_subscriptions
SELECT coalesce(sum(live), 0) AS count FROM subscription_counts;

-- name: count_events
SELECT coalesce(sum(seq), 0) AS count FROM log_heads;

-- name: first_lease_end
SELECT min(lease_until) AS lease_until FROM calls WHERE phase = 'running';
