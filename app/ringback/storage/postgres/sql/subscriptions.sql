-- name: get
SELECT {event_subscription in subscriptions} FROM subscriptions WHERE id = :id;

-- name: save
INSERT INTO subscriptions {new event_subscription}
ON CONFLICT (id) DO UPDATE SET
    event_name = excluded.event_name, arguments = excluded.arguments, error_profile = excluded.error_profile,
    key_id = excluded.key_id, ttl_ms = excluded.ttl_ms, created_at = excluded.created_at,
    refreshed_at = excluded.refreshed_at, began_after = excluded.began_after, ended_at = excluded.ended_at,
    "end" = excluded."end";

-- name: count_live
SELECT live FROM subscription_counts WHERE principal = :principal;

-- Steps from one key to the next, however many subscriptions each has.
-- name: keys
WITH RECURSIVE keys (key_id, number) AS (
    SELECT (
        SELECT key_id FROM subscriptions WHERE ended_at IS NULL AND key_id > :after ORDER BY key_id LIMIT 1
    ), 1::bigint
    UNION ALL
    SELECT (
        SELECT key_id FROM subscriptions WHERE ended_at IS NULL AND key_id > keys.key_id ORDER BY key_id LIMIT 1
    ), number + 1
    FROM keys WHERE keys.key_id IS NOT NULL AND number < :limit
)
SELECT key_id FROM keys WHERE key_id IS NOT NULL;

-- Steps from one event type to the next, however many subscriptions each has.
-- name: event_names
WITH RECURSIVE found (event_name, number) AS (
    SELECT (
        SELECT event_name FROM subscriptions WHERE ended_at IS NULL AND event_name > :after ORDER BY event_name LIMIT 1
    ), 1::bigint
    UNION ALL
    SELECT (
        SELECT event_name FROM subscriptions
        WHERE ended_at IS NULL AND event_name > found.event_name ORDER BY event_name LIMIT 1
    ), number + 1
    FROM found WHERE found.event_name IS NOT NULL AND number < :limit
)
SELECT event_name FROM found WHERE event_name IS NOT NULL;

-- name: of_key
SELECT id FROM subscriptions WHERE key_id = :key_id AND ended_at IS NULL ORDER BY id LIMIT :limit;

-- name: of_event
SELECT id FROM subscriptions WHERE event_name = :event_name AND ended_at IS NULL ORDER BY id LIMIT :limit;

-- A subscription that begins again at this moment is skipped, or is no longer ended when its lock is free.
-- name: remove_ended
WITH old AS MATERIALIZED (
    SELECT id FROM subscriptions WHERE ended_at < :older_than ORDER BY ended_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM subscriptions USING old WHERE subscriptions.id = old.id;
