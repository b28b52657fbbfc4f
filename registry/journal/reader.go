package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"

	"github.com/muxproxy/muxproxy/registry"
)

// reader reads, in transactions of its own that last as long as one session's rows take.
type reader struct{ db *sql.DB }

func openReaders(path string) (*sql.DB, error) {
	db, err := connect(path, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxReaders)
	return db, nil
}

// maxReaders bounds the memory that traces take which are read at the same time.
const maxReaders = 8

// Reader reads a journal that may be open in another process. It never writes.
type Reader struct{ reader }

// OpenReader opens the journal of a state directory for reading. The caller must close it.
func OpenReader(ctx context.Context, dir string) (*Reader, error) {
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	db, err := openReaders(path)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", dir, err)
	}
	schema, err := checkSchema(ctx, db)
	if err == nil && schema != len(migrations()) {
		err = fmt.Errorf("it has schema %d: start the daemon of this version once to bring it to schema %d", schema, len(migrations()))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", dir, err), db.Close())
	}
	return &Reader{reader{db}}, nil
}

// Close closes the files.
func (r *Reader) Close() error { return r.db.Close() }

// Sessions yields all sessions that are kept, in the order of their numbers.
func (r *Reader) Sessions(ctx context.Context) iter.Seq2[registry.SessionRow, error] {
	return r.allSessions(ctx)
}

// Trace returns what is kept of a session's calls, as of one moment. The error is [registry.ErrNotFound] once it was dropped.
func (r *Reader) Trace(ctx context.Context, session uint32) (registry.TraceRows, error) {
	return r.trace(ctx, session)
}

// Sessions implements [registry.Journal].
func (j *Journal) Sessions() iter.Seq2[registry.SessionRow, error] {
	return j.readers.allSessions(context.Background())
}

// Trace implements [registry.Journal].
func (j *Journal) Trace(session uint32) (registry.TraceRows, error) {
	return j.readers.trace(context.Background(), session)
}

// LastSession implements [registry.Journal].
func (j *Journal) LastSession() (number uint32, err error) {
	err = j.readers.db.QueryRowContext(context.Background(),
		"SELECT max(coalesce((SELECT max(number) FROM sessions), 0), coalesce((SELECT max(session) FROM dropped), 0))").Scan(&number)
	if err != nil {
		return 0, fmt.Errorf("read sessions: %w", err)
	}
	return number, nil
}

// sessionsAtATime bounds how long one transaction lasts, and what it keeps in memory.
const sessionsAtATime = 256

// allSessions holds no transaction while it yields.
func (r *reader) allSessions(ctx context.Context) iter.Seq2[registry.SessionRow, error] {
	return func(yield func(registry.SessionRow, error) bool) {
		after := int64(-1)
		for {
			rows, err := r.sessions(ctx, after)
			if err != nil {
				yield(registry.SessionRow{}, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				after = int64(row.Number)
			}
			if len(rows) < sessionsAtATime {
				return
			}
		}
	}
}

func (r *reader) sessions(ctx context.Context, after int64) (sessions []registry.SessionRow, err error) {
	rows, err := r.db.QueryContext(ctx,
		"SELECT number, id, secret, spec, state, traced FROM sessions WHERE number > ? ORDER BY number LIMIT ?", after, sessionsAtATime)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var s registry.SessionRow
		if err := rows.Scan(&s.Number, &s.ID, &s.Secret, &s.Spec, &s.State, &s.Traced); err != nil {
			return nil, fmt.Errorf("read session: %w", err)
		}
		sessions = append(sessions, s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	return sessions, nil
}

// Turn implements [registry.Journal].
func (j *Journal) Turn(session uint32, index int) (registry.TraceRows, error) {
	return j.readers.turn(context.Background(), session, index)
}

func (r *reader) trace(ctx context.Context, session uint32) (registry.TraceRows, error) {
	return r.read(ctx, session, readParts, readStarted, readCalls)
}

func (r *reader) turn(ctx context.Context, session uint32, index int) (registry.TraceRows, error) {
	return r.read(ctx, session, readTurn(index), readPartsOfCalls)
}

// read reads something of a session's trace, as of one moment.
func (r *reader) read(ctx context.Context, session uint32, steps ...readStep) (trace registry.TraceRows, err error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return trace, fmt.Errorf("read trace: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to undo

	var traced bool
	err = tx.QueryRowContext(ctx, "SELECT traced FROM sessions WHERE number = ?", session).Scan(&traced)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !traced:
		return trace, registry.ErrNotFound
	case err != nil:
		return trace, fmt.Errorf("read trace: %w", err)
	}
	for _, step := range steps {
		if err := step(ctx, tx, session, &trace); err != nil {
			return registry.TraceRows{}, fmt.Errorf("read trace: %w", err)
		}
	}
	return trace, nil
}

// first and last are the keys between which a session's are.
func first(session uint32) int64 { return int64(session) << 32 }
func last(session uint32) int64  { return first(session) + 1<<32 - 1 }

func key(session, id uint32) int64 { return first(session) | int64(id) }
