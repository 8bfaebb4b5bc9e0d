-- name: add
INSERT INTO webhook_rates (webhook_id, full_at) VALUES (:webhook_id, 0) ON CONFLICT (webhook_id) DO NOTHING;

-- name: lock
SELECT full_at FROM webhook_rates WHERE webhook_id = :webhook_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: save
UPDATE webhook_rates SET full_at = :full_at WHERE webhook_id = :webhook_id;
