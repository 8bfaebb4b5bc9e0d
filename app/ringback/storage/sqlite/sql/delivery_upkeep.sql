-- Its holder is gone and may have sent it: the attempt stays counted.
-- name: release_lapsed
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL WHERE id IN (
    SELECT id FROM deliveries WHERE state = 'leased' AND lease_until <= :now LIMIT :limit
);

-- name: release_abandoned
UPDATE deliveries SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_until = NULL WHERE id IN (
    SELECT id FROM deliveries INDEXED BY deliveries_leased
    WHERE state = 'leased' AND lease_owner IS NOT :owner LIMIT :limit
);

-- name: give_up_held
UPDATE deliveries SET state = 'dead', finished_at = :now WHERE id IN (
    SELECT id FROM deliveries WHERE state = 'held' AND give_up_at <= :now ORDER BY give_up_at LIMIT :limit
)
RETURNING id;

-- name: by_ids
SELECT whole_deliveries.*
FROM json_each(:ids) AS wanted CROSS JOIN whole_deliveries ON whole_deliveries.id = wanted.value;

-- Both step from webhook to webhook along the index of what is held.

-- name: to_release
WITH RECURSIVE lanes (webhook_id) AS (
    SELECT min(webhook_id) FROM deliveries WHERE state = 'held'
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'held' AND webhook_id > lanes.webhook_id)
    FROM lanes WHERE lanes.webhook_id IS NOT NULL
)
SELECT webhooks.id FROM lanes CROSS JOIN webhooks ON webhooks.id = lanes.webhook_id
WHERE webhooks.state = 'active' LIMIT :limit;

-- name: to_probe
WITH RECURSIVE lanes (webhook_id) AS (
    SELECT min(webhook_id) FROM deliveries WHERE state = 'held'
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'held' AND webhook_id > lanes.webhook_id)
    FROM lanes WHERE lanes.webhook_id IS NOT NULL
)
SELECT webhooks.id FROM lanes CROSS JOIN webhooks ON webhooks.id = lanes.webhook_id
WHERE webhooks.state = 'suspended' AND coalesce(webhooks.paused_until, 0) <= :now
    AND NOT EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'pending' AND due_at <= :now)
    AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE webhook_id = webhooks.id AND state IN ('held', 'pending', 'leased') AND state = 'leased'
    )
LIMIT :limit;
