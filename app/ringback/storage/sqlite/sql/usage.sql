-- The only writer counts alone.
-- name: lock_usage
SELECT 1 WHERE :principal IS NULL;

-- name: usage
SELECT
    coalesce(sum(CASE WHEN status IN ('working', 'input_required') THEN calls END), 0) AS open_calls,
    coalesce(sum(result_bytes), 0) AS result_bytes
FROM call_counts WHERE principal = :principal;

-- name: count_webhooks
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks INDEXED BY webhooks_of_target
    WHERE principal = :principal AND (origin <> 'call' OR call_id IS NULL) LIMIT :limit
);

-- name: calls_by_status
SELECT status, sum(calls) AS count FROM call_counts GROUP BY status;

-- name: open_deliveries
SELECT 'held' AS state, count(*) AS count FROM deliveries WHERE state = 'held'
UNION ALL SELECT 'pending', count(*) FROM deliveries WHERE state = 'pending'
UNION ALL SELECT 'leased', count(*) FROM deliveries WHERE state = 'leased';

-- name: count_events
SELECT coalesce(sum(seq), 0) AS count FROM log_heads;
