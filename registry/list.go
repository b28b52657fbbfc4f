package registry

import (
	"encoding/base64"
	"encoding/binary"
	"iter"
	"math"
)

// Filter says which sessions to list. The zero value is all of them.
type Filter struct {
	State         State
	Labels        map[string]string // all of which a session must have
	StopCondition string
	Limit         int    // sessions a page, from 1 to 1000, default 100
	Cursor        string // where the page before ended, empty for the first
}

const (
	defaultPage = 100
	maxPage     = 1000
	noCursor    = math.MaxUint64
	listChunk   = 256 // sessions looked at between two turns with the registry's lock
)

// List returns a page of sessions, live or ended with a trace, the newest first, and the cursor of the next page, empty if there is
// none. Sessions that come and go between pages make none of the others appear twice or be left out. The error is an [InvalidError].
func (r *Registry) List(filter Filter) (page []*Session, next string, err error) {
	limit := filter.Limit
	switch {
	case limit == 0:
		limit = defaultPage
	case limit < 0 || limit > maxPage:
		return nil, "", &InvalidError{"limit", "must be from 1 to 1000"}
	}
	switch filter.State {
	case "", StateActive, StateStopped, StateEnded:
	default:
		return nil, "", &InvalidError{"state", "must be active, stopped or ended"}
	}
	cursor, ok := parseCursor(filter.Cursor)
	if !ok {
		return nil, "", &InvalidError{"cursor", "is not one that was given out"}
	}
	for s := range r.backward(cursor) {
		if !s.matches(filter.State, filter.StopCondition, filter.Labels) {
			continue
		}
		if len(page) == limit {
			return page, formatCursor(page[limit-1].number), nil
		}
		page = append(page, s)
	}
	return page, "", nil
}

// Select returns all sessions, live or ended with a trace, that have these labels, the newest first. With no labels that is every session.
func (r *Registry) Select(labels map[string]string) []*Session {
	var selected []*Session
	for s := range r.backward(noCursor) {
		if s.matches("", "", labels) {
			selected = append(selected, s)
		}
	}
	return selected
}

// backward yields the sessions older than the cursor, the newest first. It holds no lock meanwhile.
func (r *Registry) backward(cursor uint64) iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for {
			r.mu.RLock()
			chunk := r.order.before(cursor, listChunk)
			r.mu.RUnlock()
			for _, s := range chunk {
				if !yield(s) {
					return
				}
			}
			if len(chunk) < listChunk {
				return
			}
			cursor = chunk[len(chunk)-1].number
		}
	}
}

func formatCursor(number uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, number))
}

func parseCursor(cursor string) (number uint64, ok bool) {
	if cursor == "" {
		return noCursor, true
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw), true
}
