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
