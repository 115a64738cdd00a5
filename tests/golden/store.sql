-- user_version 1
CREATE TABLE commands (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    applied REAL,
    delivered INTEGER
);
CREATE INDEX commands_open ON commands (run, id) WHERE applied IS NULL;
CREATE TABLE journal (
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    started REAL NOT NULL,
    result_kind TEXT,
    result TEXT,
    state TEXT,
    ended REAL,
    PRIMARY KEY (run, seq)
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    directory TEXT NOT NULL,
    flow TEXT NOT NULL,
    parent TEXT,
    created REAL NOT NULL,
    pid INTEGER,
    pid_start TEXT
);
