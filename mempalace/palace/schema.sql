-- The catalog. Times are seconds since the epoch (UTC); hashes are 16-byte BLAKE2b; JSON is compact text.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A file, or a member of an archive, and what became of its records.
CREATE TABLE sources (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    member TEXT NOT NULL DEFAULT '',
    container TEXT NOT NULL DEFAULT '',    -- the archive or folder (of a Slack workspace) that it is read as a part of
    format TEXT,
    state TEXT NOT NULL,              -- read, empty, unrecognised, ignored, failed, excluded; archive: see its members; gone: a member no longer there
    size INTEGER NOT NULL DEFAULT 0,
    mtime_ns INTEGER NOT NULL DEFAULT 0,
    inode INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,   -- grows when the file's earlier bytes are no longer its beginning; in a
                                      -- container it becomes the number of the reading that found that
    reader INTEGER NOT NULL DEFAULT 0,     -- version of the parsers that read it
    records_read INTEGER NOT NULL DEFAULT 0,
    records_stored INTEGER NOT NULL DEFAULT 0,
    records_duplicate INTEGER NOT NULL DEFAULT 0,
    records_damaged INTEGER NOT NULL DEFAULT 0,
    records_skipped TEXT NOT NULL DEFAULT '{}',
    problems TEXT NOT NULL DEFAULT '[]',
    mined_at REAL NOT NULL DEFAULT 0,
    UNIQUE (path, member)
);

-- Every source's bytes, in parts (see archive.py), each distinct part once.
CREATE TABLE parts (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE source_parts (
    source INTEGER NOT NULL, revision INTEGER NOT NULL, seq INTEGER NOT NULL, part INTEGER NOT NULL,
    PRIMARY KEY (source, revision, seq)
) WITHOUT ROWID;
CREATE INDEX source_parts_part ON source_parts (part);

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    format TEXT NOT NULL,
    key TEXT NOT NULL,                -- the session's own id; of a sub-agent parent/agent
    parent_key TEXT,
    kind TEXT NOT NULL,               -- main, subagent, headless
    project TEXT,                     -- as the log names it
    project_name TEXT,                -- its last part
    wing TEXT,                        -- label that was given; without one the project's name stands for it
    title TEXT,
    model TEXT,
    started REAL,
    ended REAL,
    messages INTEGER NOT NULL DEFAULT 0,
    freshness TEXT NOT NULL DEFAULT '',   -- of two versions of a session the greater one is the newer
    metadata TEXT NOT NULL DEFAULT '{}',
    UNIQUE (format, key)
);
CREATE INDEX sessions_key ON sessions (key);

-- Which sources hold a session, and where in them.
CREATE TABLE session_sources (
    session INTEGER NOT NULL, source INTEGER NOT NULL, revision INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,         -- its place among the sessions of the source, for those without an id
    start INTEGER NOT NULL, end INTEGER,   -- its bytes, where the source holds several
    PRIMARY KEY (session, source, revision)
) WITHOUT ROWID;
CREATE INDEX session_sources_source ON session_sources (source);

CREATE TABLE messages (
    session INTEGER NOT NULL, seq INTEGER NOT NULL,
    ident BLOB NOT NULL,              -- of its id, else of its content
    hash BLOB NOT NULL,               -- of its content
    id TEXT, role TEXT NOT NULL, origin TEXT NOT NULL, name TEXT,
    time REAL, line INTEGER, records INTEGER NOT NULL, source INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE INDEX messages_ident ON messages (ident);

-- Each distinct chunk text once; `words` is the hash of the text alone, without date: copies share it.
CREATE TABLE texts (id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, words BLOB NOT NULL, body TEXT NOT NULL);
CREATE INDEX texts_words ON texts (words);

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice: the indexes know a chunk by it
    uid TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL, seq INTEGER NOT NULL,
    start INTEGER NOT NULL, kind TEXT NOT NULL,
    time REAL, last REAL,             -- of its first and of its last message that has one
    text INTEGER NOT NULL,
    gap INTEGER NOT NULL,             -- newlines between this chunk and the next: they belong to no text
    spans TEXT NOT NULL               -- [[start, end, message, role, origin], ...] relative to the chunk
);
CREATE INDEX chunks_session ON chunks (session, seq);
CREATE INDEX chunks_text ON chunks (text);

CREATE TABLE vectors (text INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE tokens (text INTEGER PRIMARY KEY, ids BLOB NOT NULL);   -- see late.py
-- Vectors of the sentence encoder, as far as `refine` has come.
CREATE TABLE IF NOT EXISTS refined (text INTEGER PRIMARY KEY, vector BLOB NOT NULL);

-- Work that is still to do, so that any of it can be stopped and taken up again.
CREATE TABLE embed_queue (text INTEGER PRIMARY KEY, time REAL);
CREATE INDEX embed_queue_time ON embed_queue (time);
CREATE TABLE store_queue (text INTEGER PRIMARY KEY, removed INTEGER NOT NULL DEFAULT 0);
-- Chunks whose entry is out of date: it is removed, and made again if the chunk is still there.
CREATE TABLE lexical_stale (chunk INTEGER PRIMARY KEY);
