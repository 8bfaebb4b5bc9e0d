-- Random bytes, because a compressing file system stores zeros in no space.
-- name: write
INSERT INTO write_probe (id, filler)
SELECT 1, string_agg(uuid_send(gen_random_uuid()), ''::bytea) FROM generate_series(1, :bytes::bigint / 16)
ON CONFLICT (id) DO UPDATE SET filler = excluded.filler;

-- Rights on tables do not include those on sequences, and every call takes a turn.
-- name: use_sequence
SELECT nextval('turn_tickets');
