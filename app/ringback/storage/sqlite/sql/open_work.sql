-- Each count ends at `limit`.

-- name: calls_of_principal
SELECT status, calls AS count FROM call_counts WHERE principal = :principal;

-- name: queued_calls
SELECT count(*) AS count FROM (SELECT 1 FROM calls WHERE phase = 'queued' LIMIT :limit);

-- name: queued_calls_of_principal
SELECT count(*) AS count FROM (
    SELECT 1 FROM json_each(:upstreams) AS wanted
    CROSS JOIN calls INDEXED BY calls_queued
        ON calls.phase = 'queued' AND calls.upstream = wanted.value AND calls.principal = :principal
    LIMIT :limit
);

-- Of the principal's registered webhooks, and of its newest ones, `scan` of each at most.
-- name: deliveries_of_principal
SELECT state, count(*) AS count FROM (
    SELECT deliveries.state FROM (
        SELECT id FROM (
            SELECT id FROM webhooks INDEXED BY webhooks_counted
            WHERE principal = :principal AND id > 'wh_' AND (origin <> 'call' OR call_id IS NULL) LIMIT :scan
        )
        UNION
        SELECT id FROM (
            SELECT id FROM webhooks INDEXED BY webhooks_of_principal WHERE principal = :principal ORDER BY id DESC LIMIT :scan
        )
    ) AS wanted
    CROSS JOIN deliveries INDEXED BY deliveries_open
        ON deliveries.webhook_id = wanted.id AND deliveries.state IN ('held', 'pending', 'leased')
    LIMIT :limit
) AS counted
GROUP BY state;

-- name: dead_deliveries
SELECT count(*) AS count FROM (SELECT 1 FROM deliveries WHERE state = 'dead' LIMIT :limit);

-- name: dead_deliveries_of_principal
SELECT count(*) AS count FROM (SELECT 1 FROM deliveries WHERE state = 'dead' AND principal = :principal LIMIT :limit);

-- name: failing_webhooks_of_principal
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks INDEXED BY webhooks_failing_of_principal
    WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' LIMIT :limit
);
