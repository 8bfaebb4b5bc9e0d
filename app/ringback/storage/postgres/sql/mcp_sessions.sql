-- A client may send `initialize` again in its session: what the session agreed on is then replaced.
-- name: save
INSERT INTO mcp_sessions {new mcp_session}
ON CONFLICT (id) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at;

-- name: get
SELECT {mcp_session in mcp_sessions} FROM mcp_sessions WHERE id = :id AND expires_at > :now
{lock mcp_sessions};

-- name: count
SELECT count(*) AS sessions FROM (
    SELECT 1 FROM mcp_sessions WHERE principal = :principal AND endpoint = :endpoint AND expires_at > :now LIMIT :limit
) AS counted;

-- name: list_expiries
SELECT id, expires_at FROM mcp_sessions WHERE principal = :principal AND endpoint = :endpoint AND expires_at > :now
ORDER BY expires_at LIMIT :limit;

-- name: save_state
UPDATE mcp_sessions SET state = :state WHERE id = :id;

-- The sessions of these ids that have not expired; the expiry of a session never moves back.
-- name: extend
UPDATE mcp_sessions SET expires_at = greatest(expires_at, :expires_at)
WHERE id = ANY(:ids::text[]) AND expires_at > :now
RETURNING id;

-- name: delete
DELETE FROM mcp_sessions WHERE id = :id;

-- name: remove_expired
WITH expired AS MATERIALIZED (
    SELECT id FROM mcp_sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM mcp_sessions USING expired WHERE mcp_sessions.id = expired.id;
