-- Locks the row, also one that did not exist.
-- name: lock
INSERT INTO webhook_rates (webhook_id, full_at) VALUES (:webhook_id, 0)
ON CONFLICT (webhook_id) DO UPDATE SET full_at = webhook_rates.full_at
RETURNING full_at;

-- name: save
UPDATE webhook_rates SET full_at = :full_at WHERE webhook_id = :webhook_id;
