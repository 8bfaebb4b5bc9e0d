-- name: get
SELECT {oauth_client in oauth_clients} FROM oauth_clients WHERE id = :id AND (expires_at IS NULL OR expires_at > :now);

-- name: any
SELECT {oauth_client in oauth_clients} FROM oauth_clients WHERE id = :id
{lock oauth_clients};

-- name: save
INSERT INTO oauth_clients {new oauth_client}
ON CONFLICT (id) DO UPDATE
SET client = excluded.client, created_at = excluded.created_at, expires_at = excluded.expires_at;

-- Clients beyond the newest. One that is needed again is registered again.
-- name: remove_oldest
DELETE FROM oauth_clients WHERE id IN (
    SELECT id FROM oauth_clients ORDER BY created_at DESC, id DESC OFFSET :clients_max
);

-- name: delete
DELETE FROM oauth_clients WHERE id = :id;
