-- name: insert
INSERT INTO upstream_logins {new upstream_login};

-- name: get
SELECT {upstream_login in upstream_logins} FROM upstream_logins WHERE id = :id AND expires_at > :now
{lock upstream_logins};

-- name: by_state
SELECT {upstream_login in upstream_logins} FROM upstream_logins WHERE state_hash = :state_hash AND expires_at > :now
{lock upstream_logins};

-- name: delete
DELETE FROM upstream_logins WHERE id = :id;

-- name: count
SELECT count(*) AS logins FROM (
    SELECT 1 FROM upstream_logins WHERE principal = :principal AND expires_at > :now LIMIT :limit
) AS counted;

-- name: remove_expired
WITH expired AS MATERIALIZED (
    SELECT id FROM upstream_logins WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM upstream_logins USING expired WHERE upstream_logins.id = expired.id;
