-- name: oldest_due
SELECT webhook_id FROM deliveries WHERE state = 'pending' AND due_at <= :now ORDER BY due_at LIMIT :limit;

-- Steps from webhook to webhook along the index, and visits the next `scan` webhooks at most: one with many deliveries costs as
-- much as any other. Every visited webhook is a row; its `due_at` is NULL if it has nothing due.
-- name: due_webhooks
WITH RECURSIVE webhook_ids (webhook_id, number) AS (
    (SELECT webhook_id, 1 FROM deliveries WHERE state = 'pending' AND webhook_id > :after ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT webhook_id FROM deliveries
        WHERE state = 'pending' AND webhook_id > webhook_ids.webhook_id ORDER BY webhook_id LIMIT 1
    ), number + 1
    FROM webhook_ids WHERE webhook_ids.webhook_id IS NOT NULL AND number < :scan
)
SELECT webhook_id, (
    SELECT due_at FROM deliveries
    WHERE webhook_id = webhook_ids.webhook_id AND state = 'pending' AND due_at <= :now
    ORDER BY due_at LIMIT 1
) AS due_at
FROM webhook_ids WHERE webhook_id IS NOT NULL
ORDER BY webhook_id;

-- `limits` has a row [webhook, limit] for each webhook. The lock is inside: outside, it would come after all limits.
-- name: due
SELECT due.webhook_id, due.id
FROM json_array_elements(:limits::json) AS wanted (row)
CROSS JOIN LATERAL (
    SELECT webhook_id, id, due_at, seq FROM deliveries
    WHERE webhook_id = wanted.row ->> 0 AND state = 'pending' AND due_at <= :now
    ORDER BY due_at, seq LIMIT least((wanted.row ->> 1)::bigint, :limit::bigint)
    FOR NO KEY UPDATE SKIP LOCKED
) AS due
ORDER BY due.due_at, due.seq;

-- Steps from order key to order key, and visits the next `scan` keys at most and only the first delivery of each. That one is sent
-- if it is due and no other delivery of its key is leased. Every visited key is a row; its `id` is NULL if it has nothing to send.
-- name: due_in_order
WITH RECURSIVE keys (order_key, number) AS (
    (
        SELECT order_key, 1 FROM deliveries
        WHERE webhook_id = :webhook_id AND order_key > :after AND state IN ('held', 'pending', 'leased')
        ORDER BY order_key LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT order_key FROM deliveries
        WHERE webhook_id = :webhook_id AND order_key > keys.order_key AND state IN ('held', 'pending', 'leased')
        ORDER BY order_key LIMIT 1
    ), number + 1
    FROM keys WHERE keys.order_key IS NOT NULL AND number < :scan
)
SELECT keys.order_key, sendable.id, sendable.due_at
FROM keys
LEFT JOIN LATERAL (
    SELECT first.id, first.due_at
    FROM (
        SELECT id, due_at, state FROM deliveries
        WHERE webhook_id = :webhook_id AND order_key = keys.order_key AND state IN ('held', 'pending', 'leased')
        ORDER BY seq LIMIT 1
    ) AS first
    WHERE first.state = 'pending' AND first.due_at <= :now AND NOT EXISTS (
        SELECT 1 FROM deliveries WHERE webhook_id = :webhook_id AND order_key = keys.order_key AND state = 'leased'
    )
) AS sendable ON true
WHERE keys.order_key IS NOT NULL
ORDER BY keys.order_key;

-- Deliveries without a key: control envelopes, and those created before the webhook became ordered.
-- name: due_without_key
SELECT id, due_at FROM deliveries
WHERE webhook_id = :webhook_id AND order_key IS NULL AND state = 'pending' AND due_at <= :now
ORDER BY due_at LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- Another node may have leased one since it was found, or is leasing it: then it is skipped, because two nodes that lease of several
-- ordered webhooks would wait for each other. Up to `bytes_max` of bodies, but at least one delivery. (The empty text keeps
-- PostgreSQL from reading all pending deliveries while it believes that there are none.)
-- name: lease_whole
WITH free AS MATERIALIZED (
    SELECT id, due_at, seq FROM deliveries WHERE id = ANY(:ids::text[]) AND state || '' = 'pending'
    FOR NO KEY UPDATE SKIP LOCKED
),
sized AS MATERIALIZED (
    SELECT id, due_at, seq, coalesce((SELECT octet_length(body) FROM bodies WHERE delivery_id = free.id), 0) AS bytes FROM free
),
fitting AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY due_at, seq, id) AS bytes_so_far FROM sized) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
),
leased AS (
    UPDATE deliveries SET
        state = 'leased', lease_owner = :owner, lease_token = :token, lease_until = :until, attempts = attempts + 1
    WHERE id = ANY(ARRAY(SELECT fitting.id FROM fitting))
    RETURNING deliveries.*
),
whole_leased AS (
    SELECT leased.*, (SELECT bodies.body FROM bodies WHERE bodies.delivery_id = leased.id) AS body FROM leased
)
SELECT {whole_delivery in whole_leased} FROM whole_leased ORDER BY due_at, seq;

-- name: by_ids
SELECT {whole_delivery in whole_deliveries} FROM whole_deliveries WHERE id = ANY(:ids::text[]) ORDER BY due_at, seq;

-- Only a leased delivery has a token. The attempts are those of the updated deliveries.
-- name: record_attempts
WITH updated AS (
    UPDATE deliveries SET
        state = updated.row ->> 1, attempts = (updated.row ->> 2)::bigint, due_at = (updated.row ->> 3)::bigint,
        last_category = updated.row ->> 4, finished_at = (updated.row ->> 5)::bigint, lease_owner = NULL, lease_token = NULL,
        lease_until = NULL
    FROM json_array_elements(:rows::json) AS updated (row)
    WHERE deliveries.id = updated.row ->> 0 AND lease_token = updated.row ->> 6
    RETURNING deliveries.id
),
recorded AS (
    INSERT INTO attempts (id, delivery_id, number, started_at, duration_ms, category, status_code, excerpt, detail)
    SELECT
        attempt.row ->> 0, attempt.row ->> 1, (attempt.row ->> 2)::bigint, (attempt.row ->> 3)::bigint,
        (attempt.row ->> 4)::bigint, attempt.row ->> 5, (attempt.row ->> 6)::bigint, attempt.row ->> 7, attempt.row ->> 8
    FROM json_array_elements(:attempts::json) AS attempt (row)
    WHERE attempt.row ->> 1 = ANY(ARRAY(SELECT id FROM updated))
)
SELECT id FROM updated;

-- name: insert_attempt
INSERT INTO attempts {new attempt};

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: give_up
WITH found AS MATERIALIZED (
    SELECT id, give_up_at FROM deliveries
    WHERE webhook_id = :webhook_id AND state = 'pending' AND give_up_at <= :now AND due_at + 0 <= :now
    ORDER BY give_up_at LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
),
sized AS MATERIALIZED (
    SELECT id, give_up_at, coalesce((SELECT octet_length(body) FROM bodies WHERE delivery_id = found.id), 0) AS bytes FROM found
),
old AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY give_up_at, id) AS bytes_so_far FROM sized) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
UPDATE deliveries SET state = 'dead', finished_at = :now FROM old WHERE deliveries.id = old.id
RETURNING deliveries.id;

-- name: next_due
SELECT min(due_at) AS due_at FROM deliveries WHERE state = 'pending';
