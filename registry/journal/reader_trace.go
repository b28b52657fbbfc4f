package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/muxproxy/muxproxy/registry"
)

func readParts(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return each(ctx, tx, session, "SELECT key, base, prefix, suffix, middle FROM parts WHERE key BETWEEN ? AND ? ORDER BY key",
		func(scan func(...any) error) error {
			var key int64
			var p registry.PartRow
			err := scan(&key, &p.Base, &p.Prefix, &p.Suffix, &p.Middle)
			p.ID = uint32(key)
			to.Parts = append(to.Parts, p)
			return err
		})
}

func readStarted(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return each(ctx, tx, session, "SELECT key, about, request FROM started WHERE key BETWEEN ? AND ? ORDER BY key",
		func(scan func(...any) error) error {
			var key int64
			var c registry.CallRow
			err := scan(&key, &c.About, &c.Request)
			c.ID = uint32(key)
			to.Started = append(to.Started, c)
			return err
		})
}

func readCalls(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return each(ctx, tx, session, `SELECT key, turn, about, request, body, shared, delivered FROM calls LEFT JOIN deliveries USING (key)
		WHERE key BETWEEN ? AND ? ORDER BY key`,
		func(scan func(...any) error) error {
			var key int64
			var c registry.CallRow
			err := scan(&key, &c.Turn, &c.About, &c.Request, &c.Body, &c.Shared, &c.Delivered)
			c.ID = uint32(key)
			to.Calls = append(to.Calls, c)
			return err
		})
}

// each runs a query for the rows of a session.
func each(ctx context.Context, tx *sql.Tx, session uint32, query string, row func(scan func(...any) error) error) (err error) {
	rows, err := tx.QueryContext(ctx, query, first(session), last(session))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
