-- The holder of the lease may have sent the delivery, so the attempt stays counted.
-- name: release_expired_leases
WITH expired AS MATERIALIZED (
    SELECT id FROM deliveries WHERE state = 'leased' AND lease_until <= :now ORDER BY lease_until LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL
FROM expired WHERE deliveries.id = expired.id;

-- name: release_leases
WITH leased AS MATERIALIZED (
    SELECT id FROM deliveries WHERE state = 'leased' AND (lease_owner IS NOT DISTINCT FROM :owner) = :own
    ORDER BY lease_until LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL
FROM leased WHERE deliveries.id = leased.id;

-- The empty text keeps PostgreSQL from reading all leased deliveries.
-- name: release_unused_leases
WITH unused AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE id = ANY(:ids::text[]) AND state || '' = 'leased' AND lease_token = ANY(:tokens::text[])
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL, attempts = greatest(attempts - 1, 0)
FROM unused WHERE deliveries.id = unused.id;

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: give_up_held
WITH found AS MATERIALIZED (
    SELECT id, give_up_at FROM deliveries WHERE state = 'held' AND give_up_at <= :now ORDER BY give_up_at LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
),
sized AS MATERIALIZED (
    SELECT id, give_up_at, coalesce((SELECT octet_length(body) FROM bodies WHERE delivery_id = found.id), 0) AS bytes FROM found
),
old AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY give_up_at, id) AS bytes_so_far FROM sized) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
UPDATE deliveries SET state = 'dead', finished_at = :now FROM old WHERE deliveries.id = old.id
RETURNING deliveries.id;

-- name: webhooks_to_give_up
SELECT wanted.id FROM unnest(:webhook_ids::text[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT 1 FROM deliveries
    WHERE webhook_id = wanted.id AND state = 'pending' AND give_up_at <= :now AND due_at + 0 <= :now
    ORDER BY give_up_at LIMIT 1
) AS expired;

-- name: pull_back
WITH late AS MATERIALIZED (
    SELECT id FROM deliveries WHERE state = 'pending' AND due_at > :due_after ORDER BY due_at LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET due_at = :now FROM late WHERE deliveries.id = late.id;

-- name: by_ids
SELECT {whole_delivery in whole_deliveries} FROM whole_deliveries WHERE id = ANY(:ids::text[]);

-- Both step from webhook to webhook along the index of held deliveries, and visit the next `scan` webhooks at most. Every visited
-- webhook is a row, so that the last row is where the next scan begins.

-- name: webhooks_to_release
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    (SELECT webhook_id, 1 FROM deliveries WHERE state = 'held' AND webhook_id > :after ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT webhook_id FROM deliveries
        WHERE state = 'held' AND webhook_id > webhook_ids.webhook_id ORDER BY webhook_id LIMIT 1
    ), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_ids.webhook_id AS id, coalesce(webhooks.state = 'active' AND webhooks.paused_at IS NULL, false) AS wanted
FROM webhook_ids LEFT JOIN webhooks ON webhooks.id = webhook_ids.webhook_id
WHERE webhook_ids.webhook_id IS NOT NULL
ORDER BY webhook_ids.webhook_id;

-- name: webhooks_to_probe
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    (SELECT webhook_id, 1 FROM deliveries WHERE state = 'held' AND webhook_id > :after ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT webhook_id FROM deliveries
        WHERE state = 'held' AND webhook_id > webhook_ids.webhook_id ORDER BY webhook_id LIMIT 1
    ), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_ids.webhook_id AS id, coalesce(
    webhooks.state = 'suspended' AND webhooks.paused_at IS NULL AND (coalesce(webhooks.paused_until, 0) <= :now OR webhooks.paused_until > :paused_until_max)
    AND coalesce((
        SELECT due_at FROM deliveries WHERE webhook_id = webhooks.id AND state = 'pending' ORDER BY due_at LIMIT 1
    ) > :now, true)
    AND (SELECT true FROM deliveries WHERE webhook_id = webhooks.id AND state = 'leased' LIMIT 1) IS NULL,
    false
) AS wanted
FROM webhook_ids LEFT JOIN webhooks ON webhooks.id = webhook_ids.webhook_id
WHERE webhook_ids.webhook_id IS NOT NULL
ORDER BY webhook_ids.webhook_id;
