-- None is added for a webhook that another unit is removing.
-- name: add
INSERT INTO webhook_rates (webhook_id, full_at)
SELECT id, 0 FROM webhooks WHERE id = :webhook_id FOR KEY SHARE SKIP LOCKED
ON CONFLICT (webhook_id) DO NOTHING;

-- name: lock
SELECT full_at FROM webhook_rates WHERE webhook_id = :webhook_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: save
UPDATE webhook_rates SET full_at = :full_at WHERE webhook_id = :webhook_id;
