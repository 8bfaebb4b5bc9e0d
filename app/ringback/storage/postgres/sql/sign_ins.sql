-- name: insert
INSERT INTO sign_ins {new sign_in};

-- name: by_hash
SELECT {sign_in in sign_ins} FROM sign_ins WHERE secret_hash = :secret_hash AND expires_at > :now;

-- name: delete
DELETE FROM sign_ins WHERE secret_hash = :secret_hash;

-- name: remove_oldest
DELETE FROM sign_ins USING (
    SELECT id FROM sign_ins WHERE principal = :principal ORDER BY id DESC OFFSET :sign_ins_kept
) AS oldest
WHERE sign_ins.id = oldest.id;

-- name: remove_expired
WITH expired AS MATERIALIZED (
    SELECT id FROM sign_ins WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM sign_ins USING expired WHERE sign_ins.id = expired.id;
