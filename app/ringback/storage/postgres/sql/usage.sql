-- Its own statement, because a statement sees what was committed before it. The seed is any that no other lock has.
-- name: lock_usage
SELECT pg_advisory_xact_lock(hashtextextended(:principal, 2));

-- name: usage
SELECT
    coalesce(sum(working + input_required), 0)::bigint AS open_calls,
    coalesce(sum(result_bytes), 0)::bigint AS result_bytes
FROM call_counts WHERE principal = :principal;

-- name: count_webhooks
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks
    WHERE principal = :principal AND (origin <> 'call' OR call_id IS NULL) LIMIT :limit
) AS counted;

-- name: calls_by_status
SELECT status, sum(calls)::bigint AS count FROM call_counts CROSS JOIN LATERAL (VALUES
    ('working', working), ('input_required', input_required), ('completed', completed), ('failed', failed), ('cancelled', cancelled)
) AS counted (status, calls)
GROUP BY status;

-- name: open_deliveries
SELECT 'held' AS state, count(*) AS count FROM deliveries WHERE state = 'held'
UNION ALL SELECT 'pending', count(*) FROM deliveries WHERE state = 'pending'
UNION ALL SELECT 'leased', count(*) FROM deliveries WHERE state = 'leased';

-- name: count_events
SELECT coalesce(sum(seq), 0)::bigint AS count FROM log_heads;
