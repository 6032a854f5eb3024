-- Which records came from elsewhere, noted when their import begins, for good: they happened before and away, so nobody who follows
-- this store is told of them.
CREATE TABLE imported (
    session   TEXT NOT NULL,           -- its id: before the first batch there is no row in `session`
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    PRIMARY KEY (session, first_seq)
) STRICT, WITHOUT ROWID;
