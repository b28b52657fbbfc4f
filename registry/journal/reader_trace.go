package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muxproxy/muxproxy/registry"
)

// readStep reads a part of a session's trace.
type readStep func(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error

const (
	selectParts = "SELECT key, base, prefix, suffix, middle FROM parts "
	selectCalls = "SELECT key, turn, about, request, body, shared, delivered FROM calls LEFT JOIN deliveries USING (key) "
)

func readParts(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return scanParts(ctx, tx, to, selectParts+"WHERE key BETWEEN ? AND ? ORDER BY key", first(session), last(session))
}

// readPartsOfCalls reads the parts that the calls which were read are made of, their bases, the bases of those, and so on.
func readPartsOfCalls(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	var ids []uint32
	for _, c := range to.Calls {
		ids = append(ids, c.PartIDs()...)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("encode ids of parts: %w", err)
	}
	return scanParts(ctx, tx, to, `WITH RECURSIVE needed(key) AS (
			SELECT ?1 | value FROM json_each(?2)
			UNION SELECT ?1 | base FROM needed JOIN parts USING (key) WHERE base > 0
		) `+selectParts+"WHERE key IN needed ORDER BY key", first(session), string(list))
}

func readStarted(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return each(ctx, tx, func(scan func(...any) error) error {
		var key int64
		var c registry.CallRow
		err := scan(&key, &c.About, &c.Request)
		c.ID = uint32(key)
		to.Started = append(to.Started, c)
		return err
	}, "SELECT key, about, request FROM started WHERE key BETWEEN ? AND ? ORDER BY key", first(session), last(session))
}

func readCalls(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
	return scanCalls(ctx, tx, to, selectCalls+"WHERE key BETWEEN ? AND ? ORDER BY key", first(session), last(session))
}

// readTurn reads the turn with this index.
func readTurn(index int) readStep {
	return func(ctx context.Context, tx *sql.Tx, session uint32, to *registry.TraceRows) error {
		err := scanCalls(ctx, tx, to, selectCalls+
			"WHERE key = (SELECT key FROM calls WHERE turn AND key BETWEEN ? AND ? ORDER BY key LIMIT 1 OFFSET ?)",
			first(session), last(session), index)
		if err == nil && len(to.Calls) == 0 {
			return registry.ErrNotFound
		}
		return err
	}
}

func scanParts(ctx context.Context, tx *sql.Tx, to *registry.TraceRows, query string, args ...any) error {
	return each(ctx, tx, func(scan func(...any) error) error {
		var key int64
		var p registry.PartRow
		err := scan(&key, &p.Base, &p.Prefix, &p.Suffix, &p.Middle)
		p.ID = uint32(key)
		to.Parts = append(to.Parts, p)
		return err
	}, query, args...)
}

func scanCalls(ctx context.Context, tx *sql.Tx, to *registry.TraceRows, query string, args ...any) error {
	return each(ctx, tx, func(scan func(...any) error) error {
		var key int64
		var c registry.CallRow
		err := scan(&key, &c.Turn, &c.About, &c.Request, &c.Body, &c.Shared, &c.Delivered)
		c.ID = uint32(key)
		to.Calls = append(to.Calls, c)
		return err
	}, query, args...)
}

// each runs a query.
func each(ctx context.Context, tx *sql.Tx, row func(scan func(...any) error) error, query string, args ...any) (err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
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
