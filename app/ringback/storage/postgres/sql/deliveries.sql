-- A row is [id, principal, webhook_id, …, traceparent].
-- name: insert
INSERT INTO deliveries (
    id, principal, webhook_id, event_id, kind, call_id, seq, generation, state, attempts, due_at, give_up_at, order_key,
    lease_owner, lease_token, lease_until, last_category, created_at, finished_at, traceparent
)
SELECT
    new.row ->> 0, new.row ->> 1, new.row ->> 2, new.row ->> 3, new.row ->> 4, new.row ->> 5, (new.row ->> 6)::bigint,
    (new.row ->> 7)::bigint, new.row ->> 8, (new.row ->> 9)::bigint, (new.row ->> 10)::bigint, (new.row ->> 11)::bigint,
    new.row ->> 12, new.row ->> 13, new.row ->> 14, (new.row ->> 15)::bigint, new.row ->> 16, (new.row ->> 17)::bigint,
    (new.row ->> 18)::bigint, new.row ->> 19
FROM json_array_elements(:rows::json) AS new (row);

-- One statement for all: their bytes are counted once for each statement.
-- name: insert_bodies
INSERT INTO bodies (delivery_id, body, principal) SELECT * FROM unnest(:ids::text[], :bodies::bytea[], :principals::text[]);

-- name: get
SELECT {delivery in deliveries} FROM deliveries WHERE id = :id;

-- Up to `bytes_max` of bodies, but at least one delivery.
-- name: whole_by_ids
WITH found AS MATERIALIZED (
    SELECT
        wanted.place,
        bodies.delivery_id,
        octet_length(bodies.body) AS bytes,
        sum(octet_length(bodies.body)) OVER (ORDER BY wanted.place) AS bytes_so_far
    FROM unnest(:ids::text[]) WITH ORDINALITY AS wanted (id, place) JOIN bodies ON bodies.delivery_id = wanted.id
)
SELECT {whole_delivery in whole_deliveries}
FROM found JOIN whole_deliveries ON whole_deliveries.id = found.delivery_id
WHERE found.bytes_so_far <= :bytes_max OR found.bytes_so_far = found.bytes
ORDER BY found.place;

-- The pages differ only in their index. Each visits the next `scan` deliveries of its index at most, however few of them match.
-- `end_of_…` returns where that scan ended, and no row if the list ended before. '~' sorts after every id. All deliveries of a
-- call have one principal, and so have all of a webhook: `owner_of_…` returns it.

-- fragment: of_latest_generation
AND (NOT :latest::boolean OR NOT EXISTS (
    SELECT 1 FROM deliveries
    WHERE (event_id, webhook_id, generation) > (scanned.event_id, scanned.webhook_id, scanned.generation)
        AND (event_id, webhook_id) <= (scanned.event_id, scanned.webhook_id)
))

-- name: page
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, state, last_category, attempts FROM deliveries
        WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:state::text IS NULL OR state = :state)
        AND (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- Of all principals, along the primary key.
-- name: page_of_all
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, state, last_category, attempts FROM deliveries WHERE id >= :first_id AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:state::text IS NULL OR state = :state)
        AND (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: page_of_call
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, state, webhook_id, last_category, attempts, event_id, generation FROM deliveries
        WHERE call_id = :call_id AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:principal::text IS NULL OR principal = :principal)
        AND (:state::text IS NULL OR state = :state)
        AND (:webhook_id::text IS NULL OR webhook_id = :webhook_id)
        AND (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: page_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, state, last_category, attempts FROM deliveries
        WHERE webhook_id = :webhook_id AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:principal::text IS NULL OR principal = :principal) AND (:state::text IS NULL OR state = :state)
        AND (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page
SELECT id FROM deliveries
WHERE principal = :principal AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: end_of_page_of_all
SELECT id FROM deliveries WHERE id >= :first_id AND id < coalesce(:before::text, '~') ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: end_of_page_of_call
SELECT id FROM deliveries
WHERE call_id = :call_id AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: end_of_page_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: owner_of_call
SELECT principal FROM deliveries WHERE call_id = :call_id ORDER BY id DESC LIMIT 1;

-- name: owner_of_webhook
SELECT principal FROM deliveries WHERE webhook_id = :webhook_id ORDER BY id DESC LIMIT 1;

-- name: page_of_dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE principal = :principal AND state = 'dead' AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_dead
SELECT id FROM deliveries
WHERE principal = :principal AND state = 'dead' AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: page_of_all_dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE state = 'dead' AND generation > 0 AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_all_dead
SELECT id FROM deliveries
WHERE state = 'dead' AND generation > 0 AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: page_of_dead_of_webhook
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, principal, last_category, attempts, event_id, webhook_id, generation FROM deliveries
        WHERE webhook_id = :webhook_id AND state = 'dead' AND id >= :first_id AND id < coalesce(:before::text, '~')
        ORDER BY id DESC LIMIT :scan
    ) AS scanned
    WHERE (:principal::text IS NULL OR principal = :principal)
        AND (:category::text IS NULL OR last_category = :category)
        AND attempts >= :min_attempts
        -- include: of_latest_generation
    ORDER BY id DESC LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id DESC;

-- name: end_of_page_of_dead_of_webhook
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND state = 'dead' AND id >= :first_id AND id < coalesce(:before::text, '~')
ORDER BY id DESC LIMIT 1 OFFSET :scan::bigint - 1;

-- name: watermarks
SELECT wanted.webhook_id, (
    SELECT seq FROM deliveries
    WHERE webhook_id = wanted.webhook_id AND generation = 1 AND seq >= 0 AND state IN ('held', 'pending', 'leased')
        AND kind <> 'gap'
    ORDER BY seq LIMIT 1
) AS seq
FROM unnest(:webhook_ids::text[]) AS wanted (webhook_id);

-- Held deliveries of each webhook, and those of its newest `scan` dead ones that were not sent again.
-- name: undelivered
SELECT
    wanted.webhook_id,
    (SELECT coalesce(sum(held), 0)::bigint FROM held_counts WHERE webhook_id = wanted.webhook_id) AS held,
    (
        SELECT count(*) FROM (
            SELECT event_id, webhook_id, generation FROM deliveries
            WHERE webhook_id = wanted.webhook_id AND state = 'dead' ORDER BY id DESC LIMIT :scan
        ) AS dead
        WHERE NOT EXISTS (
            SELECT 1 FROM deliveries
            WHERE (event_id, webhook_id, generation) > (dead.event_id, dead.webhook_id, dead.generation)
                AND (event_id, webhook_id) <= (dead.event_id, dead.webhook_id)
        )
    ) AS dead
FROM unnest(:webhook_ids::text[]) AS wanted (webhook_id);

-- name: attempts
SELECT {attempt in attempts} FROM attempts WHERE delivery_id = :delivery_id ORDER BY number DESC, id DESC;

-- Up to `bytes_max` of bodies, but at least one delivery. Rows are locked before their bytes are summed: those that another unit has
-- locked hide none.
-- name: remove
WITH found AS MATERIALIZED (
    SELECT id, finished_at FROM deliveries
    WHERE state IN ('delivered', 'dead', 'cancelled') AND finished_at < :older_than
    ORDER BY finished_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
sized AS MATERIALIZED (
    SELECT id, finished_at, coalesce((SELECT octet_length(body) FROM bodies WHERE delivery_id = found.id), 0) AS bytes
    FROM found
),
old AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY finished_at, id) AS bytes_so_far FROM sized) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
),
removed_bodies AS (DELETE FROM bodies USING old WHERE bodies.delivery_id = old.id),
removed_attempts AS (DELETE FROM attempts USING old WHERE attempts.delivery_id = old.id)
DELETE FROM deliveries USING old WHERE deliveries.id = old.id;
