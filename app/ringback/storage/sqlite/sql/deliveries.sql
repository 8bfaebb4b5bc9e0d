-- A row is [id, principal, webhook_id, …, traceparent].
-- name: insert
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, last_category, created_at, finished_at, traceparent
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9,
    value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15, value ->> 16, value ->> 17, value ->> 18,
    value ->> 19
FROM json_each(:rows);

-- name: insert_body
INSERT INTO bodies (delivery_id, body, principal) VALUES (:id, :body, :principal);

-- name: get
SELECT {delivery in deliveries} FROM deliveries WHERE id = :id;

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: whole_by_ids
WITH found AS (
    SELECT
        wanted.key AS place,
        bodies.delivery_id,
        length(bodies.body) AS bytes,
        sum(length(bodies.body)) OVER (ORDER BY wanted.key) AS bytes_so_far
    FROM json_each(:ids) AS wanted CROSS JOIN bodies ON bodies.delivery_id = wanted.value
)
SELECT {whole_delivery in whole_deliveries}
FROM found CROSS JOIN whole_deliveries ON whole_deliveries.id = found.delivery_id
WHERE found.bytes_so_far <= :bytes_max OR found.bytes_so_far = found.bytes
ORDER BY found.place;

-- The pages differ only in their index. Each visits the next `scan` deliveries of its index at most, however few of them match.
-- `end_of_…` returns where that scan ended, and no row if the list ended before. '~' sorts after every id. All deliveries of a
-- call have one principal, and so have all of a webhook: `owner_of_…` returns it.

-- fragment: of_latest_generation
AND (NOT :latest OR NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE event_id = scanned.event_id AND webhook_id = scanned.webhook_id AND generation > scanned.generation
))

-- name: page
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, state, last_category, attempts FROM deliveries
        WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    )
    WHERE (:state IS NULL OR state = :state)
        AND (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- Of all principals, along the primary key.
-- name: page_of_all
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, state, last_category, attempts FROM deliveries WHERE id >= :first_id AND id < coalesce(:before, '~') ORDER BY id DESC LIMIT :scan
    )
    WHERE (:state IS NULL OR state = :state)
        AND (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: page_of_call
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, state, webhook_id, last_category, attempts, event_id, generation FROM deliveries
        WHERE call_id = :call_id AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:principal IS NULL OR principal = :principal)
        AND (:state IS NULL OR state = :state)
        AND (:webhook_id IS NULL OR webhook_id = :webhook_id)
        AND (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: page_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, state, last_category, attempts FROM deliveries
        WHERE webhook_id = :webhook_id AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    )
    WHERE (:principal IS NULL OR principal = :principal) AND (:state IS NULL OR state = :state)
        AND (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page
SELECT id FROM deliveries
WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_all
SELECT id FROM deliveries WHERE id >= :first_id AND id < coalesce(:before, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_call
SELECT id FROM deliveries
WHERE call_id = :call_id AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: end_of_page_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: owner_of_call
SELECT principal FROM deliveries WHERE call_id = :call_id ORDER BY id DESC LIMIT 1;

-- name: owner_of_webhook
SELECT principal FROM deliveries WHERE webhook_id = :webhook_id ORDER BY id DESC LIMIT 1;

-- name: page_of_dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE principal = :principal AND state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_dead
SELECT id FROM deliveries
WHERE principal = :principal AND state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: page_of_all_dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_all_dead
SELECT id FROM deliveries
WHERE state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: page_of_dead_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE webhook_id = :webhook_id AND state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:principal IS NULL OR principal = :principal)
        AND (:category IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_dead_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND state = 'dead' AND id >= :first_id AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan - 1;

-- name: watermarks
SELECT wanted.value AS webhook_id, (
    SELECT min(seq) FROM deliveries
    WHERE webhook_id = wanted.value AND generation = 1 AND seq >= 0 AND state IN ('held', 'pending', 'leased') AND kind <> 'gap'
) AS seq
FROM json_each(:webhook_ids) AS wanted;

-- Held deliveries of each webhook, and those of its newest `scan` dead ones that were not sent again.
-- name: undelivered
SELECT
    wanted.value AS webhook_id,
    coalesce((SELECT held FROM held_counts WHERE webhook_id = wanted.value), 0) AS held,
    (
        SELECT count(*) FROM (
            SELECT event_id, webhook_id, generation FROM deliveries INDEXED BY deliveries_dead_of_webhook
            WHERE webhook_id = wanted.value AND state = 'dead' ORDER BY id DESC LIMIT :scan
        ) AS dead
        WHERE NOT EXISTS (
            SELECT 1 FROM deliveries
            WHERE event_id = dead.event_id AND webhook_id = dead.webhook_id AND generation > dead.generation
        )
    ) AS dead
FROM json_each(:webhook_ids) AS wanted;

-- name: attempts
SELECT {attempt in attempts} FROM attempts WHERE delivery_id = :delivery_id ORDER BY number DESC, id DESC;

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: remove
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY finished_at, id) AS bytes_so_far FROM (
            SELECT
                id, finished_at,
                coalesce((SELECT length(body) FROM bodies WHERE delivery_id = deliveries.id), 0) AS bytes
            FROM deliveries WHERE finished_at < :older_than ORDER BY finished_at LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
);
