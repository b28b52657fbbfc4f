package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/muxproxy/muxproxy/registry"
)

// writer is the one connection that writes, and its statements. It belongs to one goroutine.
type writer struct {
	begin, commit, rollback *sql.Stmt

	create, secret, spec, state       *sql.Stmt
	part, start, startedOver          *sql.Stmt
	call, delivered                   *sql.Stmt
	dropPart, dropCall, dropDelivered *sql.Stmt
	dropTrace, untrace, forget        *sql.Stmt

	conn *sql.Conn
	all  []*sql.Stmt
}

func newWriter(ctx context.Context, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{conn: conn}
	for _, s := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.create, "INSERT OR REPLACE INTO sessions (number, id, secret, spec, state, traced) VALUES (?, ?, ?, ?, ?, 1)"},
		{&w.secret, "UPDATE sessions SET secret = ? WHERE number = ?"},
		{&w.spec, "UPDATE sessions SET spec = ? WHERE number = ?"},
		{&w.state, "UPDATE sessions SET state = ? WHERE number = ?"},
		{&w.part, "INSERT OR REPLACE INTO parts (key, base, prefix, suffix, middle) VALUES (?, ?, ?, ?, ?)"},
		{&w.start, "INSERT OR REPLACE INTO started (key, about, request) VALUES (?, ?, ?)"},
		{&w.startedOver, "DELETE FROM started WHERE key = ?"},
		{&w.call, "INSERT OR REPLACE INTO calls (key, turn, about, request, body, shared) VALUES (?, ?, ?, ?, ?, ?)"},
		{&w.delivered, "INSERT OR REPLACE INTO deliveries (key, delivered) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM calls WHERE key = ?1)"},
		{&w.dropPart, "DELETE FROM parts WHERE key = ?"},
		{&w.dropCall, "DELETE FROM calls WHERE key = ?"},
		{&w.dropDelivered, "DELETE FROM deliveries WHERE key = ?"},
		{&w.dropTrace, "INSERT OR IGNORE INTO dropped (session) VALUES (?)"},
		{&w.untrace, "UPDATE sessions SET traced = 0 WHERE number = ?"},
		{&w.forget, "DELETE FROM sessions WHERE number = ?"},
	} {
		if *s.to, err = conn.PrepareContext(ctx, s.query); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare %q: %w", s.query, err), w.close())
		}
		w.all = append(w.all, *s.to)
	}
	return w, nil
}

func (w *writer) close() error {
	var errs []error
	for _, s := range w.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// run runs a statement.
func run(ctx context.Context, s *sql.Stmt, args ...any) error {
	_, err := s.ExecContext(ctx, args...)
	return err
}

// undo ends a transaction that has failed. SQLite may have done so itself, which is the only reason for an error.
func (w *writer) undo(ctx context.Context) { _ = run(ctx, w.rollback) }

// put makes the changes, within a transaction.
func (w *writer) put(ctx context.Context, r *registry.Rows) error {
	if err := w.putSession(ctx, r); err != nil {
		return err
	}
	for _, p := range r.Parts {
		if err := run(ctx, w.part, key(r.Session, p.ID), p.Base, p.Prefix, p.Suffix, notNull(p.Middle)); err != nil {
			return fmt.Errorf("write part: %w", err)
		}
	}
	if err := w.putCalls(ctx, r); err != nil {
		return err
	}
	return w.drop(ctx, r)
}

func (w *writer) putSession(ctx context.Context, r *registry.Rows) error {
	if c := r.Created; c != nil {
		if err := run(ctx, w.create, r.Session, c.ID, c.Secret, c.Spec, c.State); err != nil {
			return fmt.Errorf("write session: %w", err)
		}
	}
	for _, change := range []struct {
		statement *sql.Stmt
		to        []byte
	}{{w.secret, r.Secret}, {w.spec, r.Spec}, {w.state, r.State}} {
		if change.to == nil {
			continue
		}
		if err := run(ctx, change.statement, change.to, r.Session); err != nil {
			return fmt.Errorf("write session: %w", err)
		}
	}
	return nil
}

func (w *writer) putCalls(ctx context.Context, r *registry.Rows) error {
	if c := r.Started; c != nil {
		if err := run(ctx, w.start, key(r.Session, c.ID), c.About, orNull(c.Request)); err != nil {
			return fmt.Errorf("write started call: %w", err)
		}
	}
	if r.StartedOver != 0 {
		if err := run(ctx, w.startedOver, key(r.Session, r.StartedOver)); err != nil {
			return fmt.Errorf("write started call: %w", err)
		}
	}
	if c := r.Call; c != nil {
		if err := run(ctx, w.call, key(r.Session, c.ID), c.Turn, c.About, orNull(c.Request), orNull(c.Body), orNull(c.Shared)); err != nil {
			return fmt.Errorf("write call: %w", err)
		}
	}
	if d := r.Delivered; d != nil {
		if err := run(ctx, w.delivered, key(r.Session, d.Call), d.Delivered); err != nil {
			return fmt.Errorf("write delivery: %w", err)
		}
	}
	return nil
}

func (w *writer) drop(ctx context.Context, r *registry.Rows) error {
	var errs []error
	for _, id := range r.DroppedParts {
		errs = append(errs, run(ctx, w.dropPart, key(r.Session, id)))
	}
	for _, id := range r.DroppedCalls {
		errs = append(errs, run(ctx, w.dropCall, key(r.Session, id)), run(ctx, w.dropDelivered, key(r.Session, id)))
	}
	if r.TraceDropped {
		errs = append(errs, run(ctx, w.dropTrace, r.Session), run(ctx, w.untrace, r.Session))
	}
	if r.Forgotten {
		errs = append(errs, run(ctx, w.forget, r.Session))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// orNull is NULL for nil, which database/sql would take for no bytes.
func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
