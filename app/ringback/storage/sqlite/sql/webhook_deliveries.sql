-- name: latest_by_event
SELECT {delivery in deliveries}
FROM json_each(:event_ids) AS wanted CROSS JOIN deliveries ON deliveries.id = (
    SELECT id FROM deliveries WHERE event_id = wanted.value AND webhook_id = :webhook_id ORDER BY generation DESC LIMIT 1
)
ORDER BY wanted.key;

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
        WHERE event_id = dead.event_id AND webhook_id = dead.webhook_id AND generation > dead.generation
    )
    LIMIT :limit
) AS found
CROSS JOIN deliveries ON deliveries.id = found.id
ORDER BY deliveries.id;

-- name: end_of_dead
SELECT id FROM deliveries
WHERE webhook_id = :webhook_id AND state = 'dead' AND id > :after
ORDER BY id LIMIT 1 OFFSET :scan - 1;

-- A held delivery that is due in the future was held for a suspended subscription: its retry window moves back by as much.
-- name: release_held
UPDATE deliveries SET state = 'pending', give_up_at = give_up_at - max(due_at - :now, 0), due_at = :now WHERE id IN (
    SELECT id FROM deliveries INDEXED BY deliveries_held
    WHERE webhook_id = :webhook_id AND state = 'held' ORDER BY id LIMIT :limit
);

-- name: hold_pending
UPDATE deliveries SET state = 'held', due_at = min(due_at, :now) WHERE id IN (
    SELECT id FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' LIMIT :limit
);

-- As `domain.delivery.suspended_window`. Progress and control envelopes are not kept: they are worth nothing later.
-- name: suspend_pending
UPDATE deliveries SET
    state = 'held',
    due_at = :now + max(created_at + :kept - :now, 0),
    give_up_at = give_up_at + max(created_at + :kept - :now, 0)
WHERE id IN (
    SELECT id FROM (SELECT id, kind FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending' LIMIT :limit)
    WHERE kind = 'event'
);

-- name: count_held
SELECT held FROM held_counts WHERE webhook_id = :webhook_id;

-- Each count has an index of its own, and ends at the limit.
-- name: count_open
SELECT
    (
        SELECT count(*) FROM (
            SELECT 1 FROM deliveries
            WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at <= :now LIMIT :limit
        )
    ) AS due,
    coalesce((SELECT held FROM held_counts WHERE webhook_id = :webhook_id), 0) AS held,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM deliveries INDEXED BY deliveries_leased_to
            WHERE webhook_id = :webhook_id AND state = 'leased' LIMIT :limit
        )
    ) AS leased,
    (SELECT min(due_at) FROM deliveries WHERE webhook_id = :webhook_id AND state = 'pending') AS first_due_at;

-- Visits `scan` pending deliveries at most, those that are due last first: untried ones are due within seconds.
-- name: make_due
UPDATE deliveries SET due_at = :now WHERE id IN (
    SELECT id FROM (
        SELECT id, attempts FROM deliveries
        WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at > :now
        ORDER BY due_at DESC LIMIT :scan
    )
    WHERE attempts > 0 LIMIT :limit
);

-- name: cancel_due
UPDATE deliveries SET state = 'cancelled', finished_at = :now WHERE id IN (
    SELECT id FROM deliveries
    WHERE webhook_id = :webhook_id AND state = 'pending' AND due_at <= :now ORDER BY due_at, seq LIMIT :limit
);

-- name: cancel_open
UPDATE deliveries SET
    state = 'cancelled', finished_at = :now, lease_owner = NULL, lease_token = NULL, lease_until = NULL
WHERE id IN (
    SELECT id FROM deliveries INDEXED BY deliveries_open
    WHERE webhook_id = :webhook_id AND state IN ('held', 'pending', 'leased') LIMIT :limit
);
