-- Each count ends at `limit`.

-- name: calls_of_principal
SELECT status, sum(calls)::bigint AS count FROM call_counts CROSS JOIN LATERAL (VALUES
    ('working', working), ('input_required', input_required), ('completed', completed), ('failed', failed), ('cancelled', cancelled)
) AS counted (status, calls)
WHERE principal = :principal
GROUP BY status;

-- name: queued_calls
SELECT count(*) AS count FROM (SELECT 1 FROM calls WHERE phase = 'queued' LIMIT :limit) AS counted;

-- Steps along the queue from upstream to upstream, `scan` of them at most: a call can wait for an upstream that is not configured.
-- name: queued_calls_of_principal
WITH RECURSIVE upstreams (upstream, number) AS (
    SELECT min(upstream), 1 FROM calls WHERE phase = 'queued'
    UNION ALL
    SELECT (SELECT min(upstream) FROM calls WHERE phase = 'queued' AND upstream > upstreams.upstream), number + 1
    FROM upstreams WHERE upstreams.upstream IS NOT NULL AND number < :scan
)
SELECT count(*) AS count FROM (
    SELECT 1 FROM upstreams CROSS JOIN LATERAL (
        SELECT 1 FROM calls
        WHERE phase = 'queued' AND calls.upstream = upstreams.upstream AND calls.principal = :principal LIMIT :limit
    ) AS of_upstream
    LIMIT :limit
) AS counted;

-- Of the principal's registered webhooks, and of its newest ones, `scan` of each at most. Each state has a limit of its own: one
-- webhook may hold as many as that.
-- name: deliveries_of_principal
WITH wanted AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM webhooks
        WHERE principal = :principal AND id > 'wh_' AND (origin <> 'call' OR call_id IS NULL) LIMIT :scan
    ) AS registered
    UNION
    SELECT id FROM (
        SELECT id FROM webhooks WHERE principal = :principal ORDER BY id DESC LIMIT :scan
    ) AS newest
)
SELECT 'held' AS state, least(coalesce(sum(of_webhook.held), 0), :limit::bigint)::bigint AS count
FROM wanted CROSS JOIN LATERAL (SELECT held FROM held_counts WHERE webhook_id = wanted.id OFFSET 0) AS of_webhook
UNION ALL
SELECT 'pending', count(*) FROM (
    SELECT 1 FROM wanted CROSS JOIN LATERAL (
        SELECT 1 FROM deliveries WHERE webhook_id = wanted.id AND state = 'pending' LIMIT :limit
    ) AS of_webhook
    LIMIT :limit
) AS counted
UNION ALL
SELECT 'leased', count(*) FROM (
    SELECT 1 FROM wanted CROSS JOIN LATERAL (
        SELECT 1 FROM deliveries WHERE webhook_id = wanted.id AND state = 'leased' LIMIT :limit
    ) AS of_webhook
    LIMIT :limit
) AS counted;

-- Among the newest `limit` dead ones: those that were not sent again.
-- name: dead_deliveries
SELECT count(*) AS count FROM (
    SELECT event_id, webhook_id, generation FROM deliveries
    WHERE state = 'dead' AND generation > 0 ORDER BY id DESC LIMIT :limit
) AS dead
WHERE NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE (event_id, webhook_id, generation) > (dead.event_id, dead.webhook_id, dead.generation)
        AND (event_id, webhook_id) <= (dead.event_id, dead.webhook_id)
);

-- name: dead_deliveries_of_principal
SELECT count(*) AS count FROM (
    SELECT event_id, webhook_id, generation FROM deliveries
    WHERE state = 'dead' AND principal = :principal ORDER BY id DESC LIMIT :limit
) AS dead
WHERE NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE (event_id, webhook_id, generation) > (dead.event_id, dead.webhook_id, dead.generation)
        AND (event_id, webhook_id) <= (dead.event_id, dead.webhook_id)
);

-- name: failing_webhooks_of_principal
SELECT count(*) AS count FROM (
    SELECT 1 FROM webhooks
    WHERE principal = :principal AND last_error IS NOT NULL AND state <> 'disabled' LIMIT :limit
) AS counted;

-- name: scheduled_calls
SELECT count(*) AS count FROM (SELECT 1 FROM calls WHERE phase = 'scheduled' LIMIT :limit) AS counted;

-- Among `limit` working calls of the principal: its quota of open calls bounds them.
-- name: scheduled_calls_of_principal
SELECT count(*) AS count FROM (
    SELECT phase FROM calls
    WHERE principal = :principal AND status = 'working' AND status <> 'completed' LIMIT :limit
) AS scanned
WHERE phase = 'scheduled';
