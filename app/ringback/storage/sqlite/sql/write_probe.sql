-- Random bytes, because a compressing file system stores zeros in no space.
-- name: write
INSERT INTO write_probe (id, filler) VALUES (1, randomblob(:bytes))
ON CONFLICT (id) DO UPDATE SET filler = excluded.filler;

-- name: file
SELECT file FROM pragma_database_list WHERE name = 'main';
