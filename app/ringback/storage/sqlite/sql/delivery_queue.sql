-- name: due_front
SELECT id, webhook_id FROM deliveries WHERE state = 'pending' AND due_at <= :now ORDER BY due_at LIMIT :limit;

-- Step from webhook to webhook along the index: however much one of them has piled up, it costs as much as the others.
-- name: due_lanes
WITH RECURSIVE lanes (webhook_id) AS (
    SELECT min(webhook_id) FROM deliveries WHERE state = 'pending'
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'pending' AND webhook_id > lanes.webhook_id)
    FROM lanes WHERE lanes.webhook_id IS NOT NULL
)
SELECT deliveries.id
FROM lanes
CROSS JOIN deliveries ON deliveries.id IN (
    SELECT id FROM deliveries
    WHERE webhook_id = lanes.webhook_id AND state = 'pending' AND due_at <= :now
    ORDER BY due_at, seq LIMIT :per_webhook
)
WHERE lanes.webhook_id NOT IN (SELECT value FROM json_each(:busy))
ORDER BY deliveries.due_at LIMIT :limit;

-- name: lease
UPDATE deliveries SET state = 'leased', lease_token = :token, lease_until = :until, attempts = attempts + 1
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: by_ids
SELECT whole_deliveries.*
FROM json_each(:ids) AS wanted CROSS JOIN whole_deliveries ON whole_deliveries.id = wanted.value
ORDER BY due_at, seq;

-- name: settle
UPDATE deliveries SET
    state = :state, attempts = :attempts, due_at = :due_at, last_category = :last_category, finished_at = :finished_at,
    lease_token = NULL, lease_until = NULL
WHERE id = :id AND state = 'leased' AND lease_token = :held_token;

-- name: log
INSERT INTO attempts (delivery_id, id, number, started_at, duration_ms, category, status_code, excerpt)
VALUES (:delivery_id, :id, :number, :started_at, :duration_ms, :category, :status_code, :excerpt);

-- Handed back unsent: the attempt that the lease was for is not counted.
-- name: release_held
UPDATE deliveries SET state = 'pending', attempts = attempts - 1, lease_token = NULL, lease_until = NULL
WHERE state = 'leased' AND lease_token = :lease_token;

-- Its holder is gone and may have sent it: the attempt stays counted.
-- name: release_lapsed
UPDATE deliveries SET state = 'pending', lease_token = NULL, lease_until = NULL
WHERE state = 'leased' AND lease_until <= :now;

-- name: release_all
UPDATE deliveries SET state = 'pending', lease_token = NULL, lease_until = NULL WHERE state = 'leased';

-- name: next_due
SELECT min(due_at) AS due_at FROM deliveries WHERE state = 'pending';
