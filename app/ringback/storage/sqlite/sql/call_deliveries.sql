-- A call has few waiting deliveries, and may have thousands that are over. The statements name the index, because another one has
-- all deliveries of a call, and SQLite chooses by the estimated width of a row: one more column was enough to change its choice.

-- name: cancel_superseded_progress
UPDATE deliveries INDEXED BY deliveries_waiting_of_call SET state = 'cancelled', finished_at = :now
WHERE call_id IN (SELECT value FROM json_each(:call_ids)) AND kind = 'progress' AND state IN ('held', 'pending');

-- name: has_unsent
SELECT EXISTS (
    SELECT 1 FROM deliveries INDEXED BY deliveries_waiting_of_call WHERE call_id = :call_id AND state IN ('held', 'pending')
) AS has_unsent;

-- name: cancel_detached
UPDATE deliveries INDEXED BY deliveries_waiting_of_call SET state = 'cancelled', finished_at = :now
WHERE call_id = :call_id AND state IN ('held', 'pending') AND generation = 1 AND attempts = 0
    AND EXISTS (SELECT 1 FROM webhooks WHERE id = deliveries.webhook_id AND "when" = 'detached');
