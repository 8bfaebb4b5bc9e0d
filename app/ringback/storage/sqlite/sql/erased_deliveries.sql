-- Bodies and attempts are deleted with their deliveries (ON DELETE CASCADE).

-- Up to `bytes_max` of bodies, but at least one delivery.
-- fragment: within_bytes_max
SELECT id FROM (
    SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM (
        SELECT id, coalesce((SELECT length(body) FROM bodies WHERE delivery_id = found.id), 0) AS bytes FROM found
    )
)
WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes

-- CROSS JOIN keeps the order of the list, so that the deletion ends with the last row that the limit allows.
-- name: delete_of_calls
DELETE FROM deliveries WHERE id IN (
    WITH found AS MATERIALIZED (
        SELECT deliveries.id FROM json_each(:call_ids) AS wanted CROSS JOIN deliveries ON deliveries.call_id = wanted.value LIMIT :limit
    )
    -- include: within_bytes_max
);

-- name: delete_of_webhooks
DELETE FROM deliveries WHERE id IN (
    WITH found AS MATERIALIZED (
        SELECT deliveries.id FROM json_each(:webhook_ids) AS wanted
        CROSS JOIN deliveries ON deliveries.webhook_id = wanted.value LIMIT :limit
    )
    -- include: within_bytes_max
);

-- The plus keeps SQLite from visiting all deliveries of the principal.
-- name: delete_of_event
DELETE FROM deliveries WHERE id IN (
    WITH found AS MATERIALIZED (
        SELECT id FROM deliveries WHERE event_id = :event_id AND +principal = :principal LIMIT :limit
    )
    -- include: within_bytes_max
);

-- name: delete_of_principal
DELETE FROM deliveries WHERE id IN (
    WITH found AS MATERIALIZED (
        SELECT id FROM deliveries WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
    )
    -- include: within_bytes_max
);

-- name: first_of_calls
SELECT deliveries.id FROM json_each(:call_ids) AS wanted CROSS JOIN deliveries ON deliveries.call_id = wanted.value LIMIT 1;

-- name: first_of_webhooks
SELECT deliveries.id FROM json_each(:webhook_ids) AS wanted CROSS JOIN deliveries ON deliveries.webhook_id = wanted.value LIMIT 1;

-- name: first_of_event
SELECT id FROM deliveries WHERE event_id = :event_id AND +principal = :principal LIMIT 1;

-- name: first_of_principal
SELECT id FROM deliveries WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT 1;

-- name: replace_event
UPDATE events SET client_session_id = :client_session_id, correlation_id = :correlation_id, data = :data
WHERE principal = :principal AND seq = :seq AND id = :id;

-- Up to `bytes_max` of data, but at least one event.
-- name: delete_events
DELETE FROM events WHERE (principal, seq) IN (
    SELECT principal, seq FROM (
        SELECT principal, seq, bytes, sum(bytes) OVER (ORDER BY seq) AS bytes_so_far FROM (
            SELECT principal, seq, length(CAST(data AS BLOB)) AS bytes FROM events
            WHERE principal = :principal AND seq <= :head ORDER BY seq LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
RETURNING seq;

-- name: raise_retention_floor
UPDATE log_heads SET retention_floor = max(retention_floor, :seq) WHERE principal = :principal;

-- name: find_identity
SELECT 1 AS found WHERE EXISTS (SELECT 1 FROM api_keys WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM sign_ins WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM portal_links WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM mcp_sessions WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM proofs WHERE principal = :principal AND proven_at <= :until)
    OR EXISTS (SELECT 1 FROM event_types WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM upstream_logins WHERE principal = :principal AND created_at <= :until)
    OR EXISTS (SELECT 1 FROM upstream_tokens WHERE owner = :principal AND obtained_at <= :until)
    OR EXISTS (SELECT 1 FROM owned_catalog WHERE owner = :principal)
    OR EXISTS (SELECT 1 FROM upstream_tokens WHERE owner = '' AND logged_in_by = :principal)
    OR EXISTS (SELECT 1 FROM insight_hours WHERE principal = :principal AND hour <= :until);

-- name: delete_keys
DELETE FROM api_keys WHERE id IN (SELECT id FROM api_keys WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit);

-- name: delete_sign_ins
DELETE FROM sign_ins WHERE id IN (
    SELECT id FROM sign_ins WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
);

-- name: delete_portal_links
DELETE FROM portal_links WHERE id IN (
    SELECT id FROM portal_links WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
);

-- name: delete_sessions
DELETE FROM mcp_sessions WHERE id IN (SELECT id FROM mcp_sessions WHERE principal = :principal AND created_at <= :until LIMIT :limit);

-- name: delete_logins
DELETE FROM upstream_logins WHERE id IN (SELECT id FROM upstream_logins WHERE principal = :principal AND created_at <= :until LIMIT :limit);

-- name: delete_tokens
DELETE FROM upstream_tokens WHERE owner = :principal AND obtained_at <= :until;

-- name: delete_catalogs
DELETE FROM owned_catalog WHERE owner = :principal AND (upstream, part) IN (
    SELECT upstream, part FROM owned_catalog WHERE owner = :principal LIMIT :limit
);

-- Shared tokens belong to the service and stay; who signed in is forgotten. There is one row for each upstream.
-- name: forget_logged_in_by
UPDATE upstream_tokens SET logged_in_by = '' WHERE owner = '' AND logged_in_by = :principal;

-- name: delete_event_types
DELETE FROM event_types WHERE principal = :principal AND name IN (
    SELECT name FROM event_types WHERE principal = :principal AND created_at <= :until ORDER BY name LIMIT :limit
);

-- name: delete_proofs
DELETE FROM proofs WHERE principal = :principal AND url IN (
    SELECT url FROM proofs WHERE principal = :principal AND proven_at <= :until ORDER BY url LIMIT :limit
);

-- name: delete_hours
DELETE FROM insight_hours WHERE principal = :principal AND (upstream, hour) IN (
    SELECT upstream, hour FROM insight_hours WHERE principal = :principal AND hour <= :until LIMIT :limit
);

-- Deleted rows keep their bytes in the file until their space is used again, unless SQLite overwrites them. Some builds of SQLite
-- always do. The setting stays for the connection.
-- name: overwrite_deleted
PRAGMA secure_delete = ON;
