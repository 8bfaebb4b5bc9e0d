-- name: oldest_due
SELECT webhook_id FROM deliveries WHERE state = 'pending' AND due_at <= :now ORDER BY due_at LIMIT :limit;

-- Steps from webhook to webhook along the index, and visits the next `scan` webhooks at most: one with many deliveries costs as
-- much as any other. Every visited webhook is a row; its `due_at` is NULL if it has nothing due.
-- name: due_webhooks
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    SELECT min(webhook_id), 1 FROM deliveries WHERE state = 'pending' AND webhook_id > :after
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE state = 'pending' AND webhook_id > webhook_ids.webhook_id), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_id, (
    SELECT due_at FROM deliveries
    WHERE webhook_id = webhook_ids.webhook_id AND state = 'pending' AND due_at <= :now
    ORDER BY due_at LIMIT 1
) AS due_at
FROM webhook_ids WHERE webhook_id IS NOT NULL
ORDER BY webhook_id;

-- `limits` has a row [webhook, limit] for each webhook; `limit` is the highest of them, because a LIMIT cannot differ by row.
-- name: due
SELECT deliveries.webhook_id, deliveries.id
FROM json_each(:limits) AS wanted CROSS JOIN deliveries ON deliveries.id IN (
    SELECT id FROM deliveries
    WHERE webhook_id = wanted.value ->> 0 AND state = 'pending' AND due_at <= :now
    ORDER BY due_at, seq LIMIT :limit
)
ORDER BY due_at, seq;

-- Steps from order key to order key, and visits the next `scan` keys at most and only the first delivery of each. That one is sent
-- if it is due and no other delivery of its key is leased. Every visited key is a row; its `id` is NULL if it has nothing to send.
-- name: due_in_order
WITH RECURSIVE keys (order_key, number) AS (
    SELECT min(order_key), 1 FROM deliveries
    WHERE webhook_id = :webhook_id AND order_key > :after AND state IN ('held', 'pending', 'leased')
    UNION ALL
    SELECT (
        SELECT min(order_key) FROM deliveries
        WHERE webhook_id = :webhook_id AND order_key > keys.order_key AND state IN ('held', 'pending', 'leased')
    ), number + 1
    FROM keys WHERE keys.order_key IS NOT NULL AND number < :scan
)
SELECT keys.order_key, first.id, first.due_at
FROM keys
LEFT JOIN deliveries AS first ON first.id = (
    SELECT id FROM deliveries
    WHERE webhook_id = :webhook_id AND order_key = keys.order_key AND state IN ('held', 'pending', 'leased')
    ORDER BY seq LIMIT 1
)
AND first.state = 'pending' AND first.due_at <= :now AND NOT EXISTS (
    SELECT 1 FROM deliveries WHERE webhook_id = :webhook_id AND order_key = keys.order_key AND state = 'leased'
)
WHERE keys.order_key IS NOT NULL
ORDER BY keys.order_key;

-- Deliveries without a key: control envelopes, and those created before the webhook became ordered.
-- name: due_without_key
SELECT id, due_at FROM deliveries INDEXED BY deliveries_without_key
WHERE webhook_id = :webhook_id AND order_key IS NULL AND state = 'pending' AND due_at <= :now
ORDER BY due_at LIMIT :limit;

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: lease
UPDATE deliveries SET
    state = 'leased', lease_owner = :owner, lease_token = :token, lease_until = :until, attempts = attempts + 1
WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY due_at, seq, id) AS bytes_so_far FROM (
            SELECT
                deliveries.id, due_at, seq,
                coalesce((SELECT length(body) FROM bodies WHERE delivery_id = deliveries.id), 0) AS bytes
            FROM json_each(:ids) AS wanted CROSS JOIN deliveries ON deliveries.id = wanted.value
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
RETURNING id;

-- name: by_ids
SELECT {whole_delivery in whole_deliveries}
FROM json_each(:ids) AS wanted CROSS JOIN whole_deliveries ON whole_deliveries.id = wanted.value
ORDER BY due_at, seq;

-- name: apply_updates
UPDATE deliveries SET
    state = updated.value ->> 1, attempts = updated.value ->> 2, due_at = updated.value ->> 3,
    last_category = updated.value ->> 4, finished_at = updated.value ->> 5, lease_owner = NULL, lease_token = NULL,
    lease_until = NULL
FROM json_each(:rows) AS updated
WHERE deliveries.id = updated.value ->> 0 AND state = 'leased' AND lease_token = updated.value ->> 6
RETURNING deliveries.id;

-- name: insert_attempt
INSERT INTO attempts {new attempt};

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: give_up
UPDATE deliveries SET state = 'dead', finished_at = :now WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY give_up_at, id) AS bytes_so_far FROM (
            SELECT
                id, give_up_at,
                coalesce((SELECT length(body) FROM bodies WHERE delivery_id = deliveries.id), 0) AS bytes
            FROM deliveries
            WHERE webhook_id = :webhook_id AND state = 'pending' AND give_up_at <= :now AND +due_at <= :now
            ORDER BY give_up_at LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
RETURNING id;

-- name: next_due
SELECT min(due_at) AS due_at FROM deliveries WHERE state = 'pending';
