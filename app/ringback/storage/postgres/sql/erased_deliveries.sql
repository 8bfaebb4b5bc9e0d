-- Up to `bytes_max` of bodies, but at least one delivery.
-- fragment: within_bytes_max
sized AS MATERIALIZED (
    SELECT id, coalesce((SELECT octet_length(body) FROM bodies WHERE delivery_id = found.id), 0) AS bytes FROM found
),
erased AS MATERIALIZED (
    SELECT id FROM (SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM sized) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
),

-- name: delete_of_calls
WITH found AS MATERIALIZED (
    SELECT id FROM deliveries WHERE call_id = ANY(:call_ids::text[]) LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
-- include: within_bytes_max
erased_bodies AS (DELETE FROM bodies USING erased WHERE bodies.delivery_id = erased.id),
erased_attempts AS (DELETE FROM attempts USING erased WHERE attempts.delivery_id = erased.id)
DELETE FROM deliveries USING erased WHERE deliveries.id = erased.id;

-- name: delete_of_webhooks
WITH found AS MATERIALIZED (
    SELECT id FROM deliveries WHERE webhook_id = ANY(:webhook_ids::text[]) LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
-- include: within_bytes_max
erased_bodies AS (DELETE FROM bodies USING erased WHERE bodies.delivery_id = erased.id),
erased_attempts AS (DELETE FROM attempts USING erased WHERE attempts.delivery_id = erased.id)
DELETE FROM deliveries USING erased WHERE deliveries.id = erased.id;

-- The concatenation keeps PostgreSQL from visiting all deliveries of the principal.
-- name: delete_of_event
WITH found AS MATERIALIZED (
    SELECT id FROM deliveries WHERE event_id = :event_id AND principal || '' = :principal LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
-- include: within_bytes_max
erased_bodies AS (DELETE FROM bodies USING erased WHERE bodies.delivery_id = erased.id),
erased_attempts AS (DELETE FROM attempts USING erased WHERE attempts.delivery_id = erased.id)
DELETE FROM deliveries USING erased WHERE deliveries.id = erased.id;

-- name: delete_of_principal
WITH found AS MATERIALIZED (
    SELECT id FROM deliveries WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
-- include: within_bytes_max
erased_bodies AS (DELETE FROM bodies USING erased WHERE bodies.delivery_id = erased.id),
erased_attempts AS (DELETE FROM attempts USING erased WHERE attempts.delivery_id = erased.id)
DELETE FROM deliveries USING erased WHERE deliveries.id = erased.id;

-- name: first_of_calls
SELECT id FROM deliveries WHERE call_id = ANY(:call_ids::text[]) LIMIT 1;

-- name: first_of_webhooks
SELECT id FROM deliveries WHERE webhook_id = ANY(:webhook_ids::text[]) LIMIT 1;

-- name: first_of_event
SELECT id FROM deliveries WHERE event_id = :event_id AND principal || '' = :principal LIMIT 1;

-- name: first_of_principal
SELECT id FROM deliveries WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT 1;

-- name: replace_event
UPDATE events SET client_session_id = :client_session_id, correlation_id = :correlation_id, data = :data
WHERE principal = :principal AND seq = :seq AND id = :id;

-- Up to `bytes_max` of data, but at least one event.
-- name: delete_events
DELETE FROM events USING (
    SELECT seq FROM (
        SELECT seq, bytes, sum(bytes) OVER (ORDER BY seq) AS bytes_so_far FROM (
            SELECT seq, octet_length(data) AS bytes FROM events
            WHERE principal = :principal AND seq <= :head ORDER BY seq LIMIT :limit
        ) AS found
    ) AS summed
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
) AS erased
WHERE events.principal = :principal AND events.seq = erased.seq
RETURNING events.seq;

-- name: raise_retention_floor
UPDATE log_heads SET retention_floor = greatest(retention_floor, :seq) WHERE principal = :principal;

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
DELETE FROM api_keys USING (
    SELECT id FROM api_keys WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
) AS erased
WHERE api_keys.id = erased.id;

-- name: delete_sign_ins
DELETE FROM sign_ins USING (
    SELECT id FROM sign_ins WHERE principal = :principal AND created_at <= :until ORDER BY id LIMIT :limit
) AS erased
WHERE sign_ins.id = erased.id;

-- Only the index of the principal has this order, as in `erased_rows.newer_of_principal`.
-- name: delete_portal_links
DELETE FROM portal_links USING (
    SELECT id FROM portal_links
    WHERE principal <= :principal AND (principal, id) > (:principal, '') AND created_at <= :until
    ORDER BY principal, id LIMIT :limit
) AS erased
WHERE portal_links.id = erased.id;

-- name: delete_sessions
DELETE FROM mcp_sessions USING (
    SELECT id FROM mcp_sessions WHERE principal = :principal AND created_at <= :until LIMIT :limit
) AS erased
WHERE mcp_sessions.id = erased.id;

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
DELETE FROM event_types USING (
    SELECT name FROM event_types WHERE principal = :principal AND created_at <= :until ORDER BY name LIMIT :limit
) AS erased
WHERE event_types.principal = :principal AND event_types.name = erased.name;

-- name: delete_proofs
DELETE FROM proofs USING (
    SELECT url FROM proofs WHERE principal = :principal AND proven_at <= :until ORDER BY url LIMIT :limit
) AS erased
WHERE proofs.principal = :principal AND proofs.url = erased.url;

-- name: delete_hours
DELETE FROM insight_hours USING (
    SELECT upstream, hour FROM insight_hours WHERE principal = :principal AND hour <= :until LIMIT :limit
) AS erased
WHERE insight_hours.principal = :principal AND insight_hours.upstream = erased.upstream AND insight_hours.hour = erased.hour;

-- PostgreSQL has no such setting: (auto)vacuum frees the space of deleted rows, and new rows overwrite it.
-- name: overwrite_deleted
SELECT 1;
