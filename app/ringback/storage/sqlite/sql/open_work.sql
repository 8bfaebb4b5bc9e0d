-- Each count ends at `limit`.

-- name: calls_of_principal
SELECT status, calls AS count FROM call_counts WHERE principal = :principal;

-- name: queued_calls
SELECT count(*) AS count FROM (SELECT 1 FROM calls WHERE phase = 'queued' LIMIT :limit);

-- Steps along the queue from upstream to upstream, `scan` of them at most: a call can wait for an upstream that is not configured.
-- name: queued_calls_of_principal
WITH RECURSIVE upstreams (upstream, number) AS (
    SELECT min(upstream), 1 FROM calls WHERE phase = 'queued'
    UNION ALL
    SELECT (SELECT min(upstream) FROM calls WHERE phase = 'queued' AND upstream > upstreams.upstream), number + 1
    FROM upstreams WHERE upstreams.upstream IS NOT NULL AND number < :scan
)
SELECT count(*) AS count FROM (
    SELECT 1 FROM upstreams CROSS JOIN calls INDEXED BY calls_queued
        ON calls.phase = 'queued' AND calls.upstream = upstreams.upstream AND calls.principal = :principal
    LIMIT :limit
);

-- Of the principal's registered webhooks, and of its newest ones, `scan` of each at most. Every count is from an index alone.
-- name: deliveries_of_principal
WITH wanted AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM webhooks INDEXED BY webhooks_counted
        WHERE principal = :principal AND id > 'wh_' AND (origin <> 'call' OR call_id IS NULL) LIMIT :scan
    )
    UNION
    SELECT id FROM (
        SELECT id FROM webhooks INDEXED BY webhooks_of_principal WHERE principal = :principal ORDER BY id DESC LIMIT :scan
    )
)
SELECT 'held' AS state, min(coalesce(sum(held), 0), :limit) AS count
FROM wanted CROSS JOIN held_counts ON held_counts.webhook_id = wanted.id
UNION ALL
SELECT 'pending', count(*) FROM (
    SELECT 1 FROM wanted CROSS JOIN deliveries INDEXED BY deliveries_lanes
        ON deliveries.webhook_id = wanted.id AND deliveries.state = 'pending'
    LIMIT :limit
)
UNION ALL
SELECT 'leased', count(*) FROM (
    SELECT 1 FROM wanted CROSS JOIN deliveries INDEXED BY deliveries_leased_to
        ON deliveries.webhook_id = wanted.id AND deliveries.state = 'leased'
    LIMIT :limit
);

-- Among the newest `limit` dead ones: those that were not sent again.
-- name: dead_deliveries
SELECT count(*) AS count FROM (
    SELECT event_id, webhook_id, generation FROM deliveries
    WHERE state = 'dead' ORDER BY id DESC LIMIT :limit
) AS dead
WHERE NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE event_id = dead.event_id AND webhook_id = dead.webhook_id AND generation > dead.generation
);

-- name: dead_deliveries_of_principal
SELECT count(*) AS count FROM (
    SELECT event_id, webhook_id, generation FROM deliveries
    WHERE state = 'dead' AND principal = :principal ORDER BY id DESC LIMIT :limit
) AS dead
WHERE NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE event_id = dead.event_id AND webhook_id = dead.webhook_id AND generation > dead.generation
);

-- name: failing_webhooks_of_principal
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks INDEXED BY webhooks_failing_of_principal
    WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' LIMIT :limit
);

-- name: scheduled_calls
SELECT count(*) AS count FROM (SELECT 1 FROM calls WHERE phase = 'scheduled' LIMIT :limit);

-- Among `limit` working calls of the principal: its quota of open calls bounds them.
-- name: scheduled_calls_of_principal
SELECT count(*) AS count FROM (
    SELECT phase FROM calls INDEXED BY calls_of_status
    WHERE principal = :principal AND status = 'working' AND status <> 'completed' LIMIT :limit
)
WHERE phase = 'scheduled';
