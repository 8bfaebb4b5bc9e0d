-- name: all
SELECT key_id, lost_at, check_value FROM sealing_keys ORDER BY key_id;

-- A key whose loss was accepted, and that is used again, must not be missing from then on. A check value is never replaced.
-- name: add
INSERT INTO sealing_keys (key_id, check_value) VALUES (:key_id, :check_value)
ON CONFLICT (key_id) DO UPDATE SET lost_at = NULL, check_value = COALESCE(check_value, excluded.check_value)
WHERE lost_at IS NOT NULL OR check_value IS NULL;

-- name: remove
DELETE FROM sealing_keys WHERE key_id = :key_id;

-- name: accept_loss
UPDATE sealing_keys SET lost_at = :now WHERE key_id = :key_id;

-- Whether a key sealed anything: the search ends at the first such row. Values that a key sealed begin with its `prefix`.
-- name: sealed_by
SELECT 1 AS found WHERE EXISTS (SELECT 1 FROM webhooks WHERE substr(secrets, 1, length(:prefix)) = :prefix)
    OR EXISTS (SELECT 1 FROM bodies WHERE substr(body, 1, length(:prefix)) = :prefix)
    OR EXISTS (SELECT 1 FROM upstream_tokens WHERE substr(secrets, 1, length(:prefix)) = :prefix)
    OR EXISTS (SELECT 1 FROM inputs WHERE key_id = :key_id)
    OR EXISTS (SELECT 1 FROM results WHERE key_id = :key_id);
