package journal

import (
	"context"
	"database/sql"
	"fmt"
)

// applicationID marks the file as ours, see PRAGMA application_id: "muxp".
const applicationID = 0x6d757870

// migrations are the steps from an empty file to the schema of this version. Their number is the schema's, PRAGMA user_version: steps
// are only ever added.
//
// A key is a session's number, then 32 bits of a number within it, so that what belongs to a session is stored together and found
// without another index.
func migrations() []string {
	return []string{`
		CREATE TABLE sessions (
			number INTEGER PRIMARY KEY,
			id     TEXT NOT NULL,
			secret BLOB NOT NULL, -- its SHA-256
			spec   BLOB NOT NULL, -- JSON
			state  BLOB NOT NULL, -- JSON
			traced INTEGER NOT NULL
		) STRICT;
		-- A run of bytes: the first prefix bytes of base, then middle, then the last suffix bytes of base.
		CREATE TABLE parts (
			key    INTEGER PRIMARY KEY,
			base   INTEGER NOT NULL,
			prefix INTEGER NOT NULL,
			suffix INTEGER NOT NULL,
			middle BLOB NOT NULL
		) STRICT;
		CREATE TABLE started (
			key     INTEGER PRIMARY KEY,
			about   BLOB NOT NULL,
			request BLOB
		) STRICT;
		CREATE TABLE calls (
			key     INTEGER PRIMARY KEY,
			turn    INTEGER NOT NULL,
			about   BLOB NOT NULL, -- JSON
			request BLOB, -- which parts it is made of
			body    BLOB,
			shared  BLOB -- which parts what is missing in the body is made of
		) STRICT;
		CREATE TABLE deliveries (
			key       INTEGER PRIMARY KEY,
			delivered INTEGER NOT NULL
		) STRICT;
		-- Sessions whose parts and calls are to be deleted.
		CREATE TABLE dropped (session INTEGER PRIMARY KEY) STRICT;
	`}
}

// NewerError says that the file was written by a newer version of the program.
type NewerError struct{ Schema, Known int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("it has schema %d and this version of muxproxy knows schemas up to %d: use the newer version, or another state directory",
		e.Schema, e.Known)
}

// migrate brings the file to the schema of this version.
func migrate(ctx context.Context, db *sql.DB) error {
	schema, err := checkSchema(ctx, db)
	if err != nil {
		return err
	}
	for i, step := range migrations()[schema:] {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // of one that is committed it is nothing
		mark := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, schema+i+1)
		if _, err := tx.ExecContext(ctx, step+mark); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", schema+i+1, err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", schema+i+1, err)
		}
	}
	return nil
}

// checkSchema returns the file's schema, 0 if it is empty.
func checkSchema(ctx context.Context, db *sql.DB) (int, error) {
	var application, schema, tables int
	for query, to := range map[string]*int{
		"PRAGMA application_id": &application, "PRAGMA user_version": &schema, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := db.QueryRowContext(ctx, query).Scan(to); err != nil {
			return 0, fmt.Errorf("read schema: %w", err)
		}
	}
	switch {
	case application != applicationID && (application != 0 || tables > 0):
		return 0, fmt.Errorf("%s was not written by muxproxy", fileName)
	case schema > len(migrations()):
		return 0, &NewerError{Schema: schema, Known: len(migrations())}
	}
	return schema, nil
}
