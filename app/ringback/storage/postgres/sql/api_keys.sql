-- name: insert
INSERT INTO api_keys {new api_key};

-- name: by_hash
SELECT {api_key in api_keys} FROM api_keys WHERE hash = :hash;

-- name: all
SELECT {api_key in api_keys} FROM api_keys ORDER BY id;

-- name: revoke
UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;
