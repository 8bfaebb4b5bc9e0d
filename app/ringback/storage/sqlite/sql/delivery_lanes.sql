-- name: latest
SELECT whole_deliveries.*
FROM json_each(:event_ids) AS wanted CROSS JOIN whole_deliveries ON whole_deliveries.id = (
    SELECT id FROM deliveries WHERE event_id = wanted.value AND webhook_id = :webhook_id ORDER BY generation DESC LIMIT 1
)
ORDER BY wanted.key;

-- name: dead
SELECT * FROM whole_deliveries AS dead
WHERE webhook_id = :webhook_id AND state = 'dead' AND kind = 'event' AND seq IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE event_id = dead.event_id AND webhook_id = dead.webhook_id AND generation > dead.generation
)
ORDER BY id LIMIT :limit;

-- name: release
UPDATE deliveries SET state = 'pending', due_at = :now WHERE id IN (
    SELECT id FROM deliveries INDEXED BY deliveries_held
    WHERE webhook_id = :webhook_id AND state = 'held' ORDER BY id LIMIT :limit
);

-- name: hold
UPDATE deliveries SET state = 'held' WHERE id IN (
    SELECT id FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' LIMIT :limit
);

-- name: held
SELECT count(*) AS count FROM (
    SELECT 1 FROM deliveries INDEXED BY deliveries_held WHERE webhook_id = :webhook_id AND state = 'held' LIMIT :limit
);
