-- The holder of the lease may have sent the delivery, so the attempt stays counted.
-- name: release_expired_leases
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL WHERE id IN (
    SELECT id FROM deliveries WHERE state = 'leased' AND lease_until <= :now LIMIT :limit
);

-- name: release_leases
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL WHERE id IN (
    SELECT id FROM deliveries INDEXED BY deliveries_leased
    WHERE state = 'leased' AND (lease_owner IS :owner) = :own LIMIT :limit
);

-- name: release_unused_leases
UPDATE deliveries SET
    state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL, attempts = max(attempts - 1, 0)
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease_token IN (SELECT value FROM json_each(:tokens));

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: give_up_held
UPDATE deliveries SET state = 'dead', finished_at = :now WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY give_up_at, id) AS bytes_so_far FROM (
            SELECT
                id, give_up_at,
                coalesce((SELECT length(body) FROM bodies WHERE delivery_id = deliveries.id), 0) AS bytes
            FROM deliveries WHERE state = 'held' AND give_up_at <= :now ORDER BY give_up_at LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
RETURNING id;

-- name: webhooks_to_give_up
SELECT wanted.value AS id FROM json_each(:webhook_ids) AS wanted
WHERE EXISTS (
    SELECT 1 FROM deliveries
    WHERE webhook_id = wanted.value AND state = 'pending' AND give_up_at <= :now AND +due_at <= :now
);

-- name: pull_back
UPDATE deliveries SET due_at = :now WHERE id IN (
    SELECT id FROM deliveries WHERE state = 'pending' AND due_at > :due_after ORDER BY due_at LIMIT :limit
);

-- name: by_ids
SELECT {whole_delivery in whole_deliveries}
FROM json_each(:ids) AS wanted CROSS JOIN whole_deliveries ON whole_deliveries.id = wanted.value;

-- Both step from webhook to webhook along the index of held deliveries, and visit the next `scan` webhooks at most. Every visited
-- webhook is a row, so that the last row is where the next scan begins.

-- name: webhooks_to_release
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    SELECT min(webhook_id), 1 FROM deliveries WHERE state = 'held' AND webhook_id > :after
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'held' AND webhook_id > webhook_ids.webhook_id), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_ids.webhook_id AS id, coalesce(webhooks.state = 'active' AND webhooks.paused_at IS NULL, false) AS wanted
FROM webhook_ids LEFT JOIN webhooks ON webhooks.id = webhook_ids.webhook_id
WHERE webhook_ids.webhook_id IS NOT NULL
ORDER BY webhook_ids.webhook_id;

-- name: webhooks_to_probe
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    SELECT min(webhook_id), 1 FROM deliveries WHERE state = 'held' AND webhook_id > :after
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'held' AND webhook_id > webhook_ids.webhook_id), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_ids.webhook_id AS id, coalesce(
    webhooks.state = 'suspended' AND webhooks.paused_at IS NULL AND (coalesce(webhooks.paused_until, 0) <= :now OR webhooks.paused_until > :paused_until_max)
    AND NOT EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'pending' AND due_at <= :now)
    AND NOT EXISTS (
        SELECT 1 FROM deliveries INDEXED BY deliveries_leased_to WHERE webhook_id = webhooks.id AND state = 'leased'
    ),
    false
) AS wanted
FROM webhook_ids LEFT JOIN webhooks ON webhooks.id = webhook_ids.webhook_id
WHERE webhook_ids.webhook_id IS NOT NULL
ORDER BY webhook_ids.webhook_id;
