-- name: insert
INSERT INTO upstream_tokens {new upstream_tokens} ON CONFLICT (id) DO NOTHING;

-- name: replace
UPDATE upstream_tokens
SET version = :version, issuer = :issuer, resource = :resource, scope = :scope, required_scope = :required_scope,
    obtained_at = :obtained_at, expires_at = :expires_at, logged_in_by = :logged_in_by, secrets = :secrets
WHERE id = :id AND version = :expected_version;

-- name: get
SELECT {upstream_tokens in upstream_tokens} FROM upstream_tokens WHERE id = :id
{lock upstream_tokens};

-- name: many
SELECT {upstream_tokens in upstream_tokens} FROM upstream_tokens WHERE id = ANY(:ids::text[]) ORDER BY id;

-- name: delete
DELETE FROM upstream_tokens WHERE id = :id;

-- name: all_owned
SELECT {upstream_tokens in upstream_tokens} FROM upstream_tokens WHERE owner = :owner LIMIT :limit;

-- Ids begin with the upstream's name and a slash; the character after the slash is 0.
-- name: count_owners
SELECT count(*) AS owners FROM (
    SELECT id FROM upstream_tokens WHERE id > :upstream || '/' AND id < :upstream || '0' LIMIT :limit
) AS counted;
