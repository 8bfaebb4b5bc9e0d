-- Webhooks that first hear what the log already holds.

-- name: get
SELECT * FROM catch_ups WHERE webhook_id = :webhook_id;

-- name: next
SELECT * FROM catch_ups WHERE principal > :after ORDER BY principal, webhook_id LIMIT 1;

-- name: put
INSERT INTO catch_ups (webhook_id, principal, seq, delivered) VALUES (:webhook_id, :principal, :seq, :delivered)
ON CONFLICT (webhook_id) DO UPDATE SET seq = excluded.seq, delivered = excluded.delivered;

-- name: end
DELETE FROM catch_ups WHERE webhook_id = :webhook_id;
