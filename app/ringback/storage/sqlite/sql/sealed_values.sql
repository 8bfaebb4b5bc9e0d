-- A sealed value begins with a version, the length of its key's id, and that id (signing/sealing.py).

-- The count statements count the next `limit` rows after an id.

-- name: count webhooks.secrets
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT id, secrets AS sealed FROM webhooks WHERE id > :after ORDER BY id LIMIT :limit)
GROUP BY key_id;

-- name: count bodies.body
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT delivery_id AS id, body AS sealed FROM bodies WHERE delivery_id > :after ORDER BY delivery_id LIMIT :limit)
GROUP BY key_id;

-- name: count mcp_sessions.state
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT id, state AS sealed FROM mcp_sessions WHERE id > :after ORDER BY id LIMIT :limit)
GROUP BY key_id;

-- name: count upstream_logins.request
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT id, request AS sealed FROM upstream_logins WHERE id > :after ORDER BY id LIMIT :limit)
GROUP BY key_id;

-- name: count upstream_tokens.secrets
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT id, secrets AS sealed FROM upstream_tokens WHERE id > :after ORDER BY id LIMIT :limit)
GROUP BY key_id;

-- name: count oauth_clients.client
SELECT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT) AS key_id, count(*) AS count, max(id) AS last
FROM (SELECT id, client AS sealed FROM oauth_clients WHERE id > :after ORDER BY id LIMIT :limit)
GROUP BY key_id;

-- name: count inputs.arguments
SELECT key_id, count(*) AS count, max(id) AS last
FROM (SELECT call_id AS id, key_id FROM inputs WHERE key_id IS NOT NULL AND call_id > :after ORDER BY call_id LIMIT :limit)
GROUP BY key_id;

-- name: count results.body
SELECT key_id, count(*) AS count, max(id) AS last
FROM (SELECT call_id AS id, key_id FROM results WHERE key_id IS NOT NULL AND call_id > :after ORDER BY call_id LIMIT :limit)
GROUP BY key_id;

-- name: webhooks.secrets
SELECT id, secrets AS sealed FROM webhooks WHERE id > :after ORDER BY id LIMIT :limit;

-- Up to `bytes_max` of bodies, but at least one.
-- name: bodies.body
SELECT delivery_id AS id, body AS sealed FROM bodies WHERE delivery_id IN (
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS bytes_so_far FROM (
            SELECT delivery_id AS id, length(body) AS bytes FROM bodies WHERE delivery_id > :after ORDER BY delivery_id LIMIT :limit
        )
    )
    WHERE bytes_so_far <= :bytes_max OR bytes_so_far = bytes
)
ORDER BY delivery_id;

-- name: mcp_sessions.state
SELECT id, state AS sealed FROM mcp_sessions WHERE id > :after ORDER BY id LIMIT :limit;

-- name: upstream_logins.request
SELECT id, request AS sealed FROM upstream_logins WHERE id > :after ORDER BY id LIMIT :limit;

-- name: upstream_tokens.secrets
SELECT id, secrets AS sealed FROM upstream_tokens WHERE id > :after ORDER BY id LIMIT :limit;

-- name: oauth_clients.client
SELECT id, client AS sealed FROM oauth_clients WHERE id > :after ORDER BY id LIMIT :limit;

-- name: put webhooks.secrets
UPDATE webhooks SET secrets = :sealed WHERE id = :id;

-- name: put bodies.body
UPDATE bodies SET body = :sealed WHERE delivery_id = :id;

-- name: put mcp_sessions.state
UPDATE mcp_sessions SET state = :sealed WHERE id = :id;

-- name: put upstream_logins.request
UPDATE upstream_logins SET request = :sealed WHERE id = :id;

-- name: put upstream_tokens.secrets
UPDATE upstream_tokens SET secrets = :sealed WHERE id = :id;

-- name: put oauth_clients.client
UPDATE oauth_clients SET client = :sealed WHERE id = :id;
