-- (Only the unique index has pairs of event and webhook. With two conditions in their place, PostgreSQL reads all open deliveries of
-- the webhook while it believes that there are none.)
-- name: latest_by_event
SELECT {delivery in deliveries} FROM deliveries
WHERE id = ANY(ARRAY(
    SELECT (
        SELECT id FROM deliveries
        WHERE (event_id, webhook_id) >= (wanted.event_id, :webhook_id) AND (event_id, webhook_id) <= (wanted.event_id, :webhook_id)
        ORDER BY event_id DESC, webhook_id DESC, generation DESC LIMIT 1
    )
    FROM unnest(:event_ids::text[]) AS wanted (event_id)
))
ORDER BY array_position(:event_ids::text[], event_id);

-- Visits the next `scan` dead deliveries, many of which may have been sent again since.
-- name: dead
SELECT {delivery in deliveries}
FROM (
    SELECT id FROM (
        SELECT id, event_id, webhook_id, generation, kind, seq FROM deliveries
        WHERE webhook_id = :webhook_id AND state = 'dead' AND id > :after
        ORDER BY id LIMIT :scan
    ) AS dead
    WHERE kind = 'event' AND seq IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE (event_id, webhook_id, generation) > (dead.event_id, dead.webhook_id, dead.generation)
            AND (event_id, webhook_id) <= (dead.event_id, dead.webhook_id)
    )
    ORDER BY id LIMIT :limit
) AS found
JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_dead
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND state = 'dead' AND id > :after
ORDER BY id LIMIT 1 OFFSET :scan::bigint - 1;

-- A held delivery that is due in the future was held for a suspended subscription: its retry window moves back by as much.
-- name: release_held
WITH held AS MATERIALIZED (
    SELECT id FROM deliveries WHERE webhook_id = :webhook_id AND state = 'held' ORDER BY id LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'pending', give_up_at = give_up_at - greatest(due_at - :now, 0), due_at = :now
FROM held WHERE deliveries.id = held.id;

-- name: hold_pending
WITH waiting AS MATERIALIZED (
    SELECT id FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'held', due_at = least(due_at, :now) FROM waiting WHERE deliveries.id = waiting.id;

-- As `domain.delivery.suspended_window`. Progress and control envelopes are not kept: they are worth nothing later.
-- name: suspend_pending
WITH waiting AS MATERIALIZED (
    SELECT id, kind FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'held',
    due_at = :now + greatest(created_at + :kept - :now, 0),
    give_up_at = give_up_at + greatest(created_at + :kept - :now, 0)
FROM waiting WHERE deliveries.id = waiting.id AND waiting.kind = 'event';

-- name: count_held
SELECT coalesce(sum(held), 0)::bigint AS held FROM held_counts WHERE webhook_id = :webhook_id;

-- Each count has an index of its own, and ends at the limit.
-- name: count_open
SELECT
    (
        SELECT count(*) FROM (
            SELECT 1 FROM deliveries
            WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at <= :now LIMIT :limit
        ) AS due
    ) AS due,
    (SELECT coalesce(sum(held), 0)::bigint FROM held_counts WHERE webhook_id = :webhook_id) AS held,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM deliveries WHERE webhook_id = :webhook_id AND state = 'leased' LIMIT :limit
        ) AS leased
    ) AS leased,
    (SELECT min(due_at) FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending') AS first_due_at;

-- Visits `scan` pending deliveries at most, those that are due last first: untried ones are due within seconds.
-- name: make_due
WITH latest AS MATERIALIZED (
    SELECT id, attempts FROM deliveries
    WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at > :now
    ORDER BY due_at DESC LIMIT :scan
    FOR NO KEY UPDATE SKIP LOCKED
),
waiting AS MATERIALIZED (SELECT id FROM latest WHERE attempts > 0 LIMIT :limit)
UPDATE deliveries SET due_at = :now FROM waiting WHERE deliveries.id = waiting.id;

-- Waits for no delivery that another unit has locked: the unit that leases or records it finds that its webhook is gone.
-- name: cancel_due
WITH due AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at <= :now ORDER BY due_at, seq LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET state = 'cancelled', finished_at = :now FROM due WHERE deliveries.id = due.id;

-- name: cancel_open
WITH waiting AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE webhook_id = :webhook_id AND state IN ('held', 'pending', 'leased')
    ORDER BY generation, seq LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET
    state = 'cancelled', finished_at = :now, lease_owner = NULL, lease_token = NULL, lease_until = NULL
FROM waiting WHERE deliveries.id = waiting.id;
