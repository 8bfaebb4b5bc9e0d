-- name: insert
INSERT INTO api_keys (id, principal, name, hash, prefix, scopes, upstreams, created_at, revoked_at)
VALUES (:id, :principal, :name, :hash, :prefix, :scopes, :upstreams, :created_at, :revoked_at);

-- name: by_hash
SELECT * FROM api_keys WHERE hash = :hash;

-- name: all
SELECT * FROM api_keys ORDER BY id;

-- name: revoke
UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;
