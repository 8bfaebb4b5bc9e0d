-- A call has few waiting deliveries, and may have thousands that are over.

-- name: cancel_superseded_progress
WITH waiting AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE call_id = ANY(:call_ids::text[]) AND kind = 'progress' AND state IN ('held', 'pending')
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'cancelled', finished_at = :now
FROM waiting WHERE deliveries.id = waiting.id AND deliveries.state IN ('held', 'pending');

-- name: has_unsent
SELECT EXISTS (SELECT 1 FROM deliveries WHERE call_id = :call_id AND state IN ('held', 'pending')) AS has_unsent;

-- name: cancel_detached
UPDATE deliveries SET state = 'cancelled', finished_at = :now
WHERE call_id = :call_id AND state IN ('held', 'pending') AND generation = 1 AND attempts = 0
    AND EXISTS (SELECT 1 FROM webhooks WHERE id = deliveries.webhook_id AND "when" = 'detached');
