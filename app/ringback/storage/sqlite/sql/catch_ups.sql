-- Webhooks that get the events in the log before new ones.

-- name: get
SELECT {catch_up in catch_ups} FROM catch_ups WHERE webhook_id = :webhook_id;

-- name: next
SELECT {catch_up in catch_ups} FROM catch_ups WHERE principal > :after ORDER BY principal, webhook_id LIMIT 1;

-- name: next_of_principal
SELECT {catch_up in catch_ups} FROM catch_ups WHERE principal = :principal AND webhook_id > :after ORDER BY webhook_id LIMIT 1;

-- name: save
INSERT INTO catch_ups {new catch_up}
ON CONFLICT (webhook_id) DO UPDATE SET seq = excluded.seq, delivered = excluded.delivered;

-- name: remove
DELETE FROM catch_ups WHERE webhook_id = :webhook_id;
