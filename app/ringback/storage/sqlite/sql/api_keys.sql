-- name: insert
INSERT INTO api_keys {new api_key};

-- name: by_hash
SELECT {api_key in api_keys} FROM api_keys WHERE hash = :hash;

-- name: all
SELECT {api_key in api_keys} FROM api_keys ORDER BY id;

-- name: by_id
SELECT {api_key in api_keys} FROM api_keys WHERE id = :id;

-- No other unit runs at the same time.
-- name: hold
SELECT 1 AS found FROM api_keys WHERE id = :id;

-- '~' sorts after every id.
-- name: page
SELECT {api_key in api_keys} FROM api_keys WHERE id < coalesce(:before, '~') ORDER BY id DESC LIMIT :limit;

-- name: page_of_principal
SELECT {api_key in api_keys} FROM api_keys
WHERE principal = :principal AND id < coalesce(:before, '~')
ORDER BY id DESC LIMIT :limit;

-- name: revoke
UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- name: replace
UPDATE api_keys SET replaced_by = :replaced_by, expires_at = min(coalesce(expires_at, :expires_at), :expires_at)
WHERE id = :id AND revoked_at IS NULL AND replaced_by IS NULL AND (expires_at IS NULL OR expires_at > :now);
