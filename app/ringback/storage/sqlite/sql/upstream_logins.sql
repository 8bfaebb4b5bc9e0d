-- name: insert
INSERT INTO upstream_logins {new upstream_login};

-- name: get
SELECT {upstream_login in upstream_logins} FROM upstream_logins WHERE id = :id AND expires_at > :now;

-- name: by_state
SELECT {upstream_login in upstream_logins} FROM upstream_logins WHERE state_hash = :state_hash AND expires_at > :now;

-- name: delete
DELETE FROM upstream_logins WHERE id = :id;

-- name: count
SELECT count(*) AS logins FROM (
    SELECT 1 FROM upstream_logins WHERE principal = :principal AND expires_at > :now LIMIT :limit
);

-- name: remove_expired
DELETE FROM upstream_logins WHERE id IN (
    SELECT id FROM upstream_logins WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
);
