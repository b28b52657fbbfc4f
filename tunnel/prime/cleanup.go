package prime

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

const (
	// creation is the end of the ledger's kind for creations without an answer.
	creation = "-create"
	// settled is how long after its beginning a creation can have no effect any
	// more: well beyond the time that it is waited for.
	settled         = 2 * time.Minute
	deletions       = 8 // at once
	sweepBackoff    = time.Second
	sweepMaxBackoff = time.Minute
)

// leftover is something to be deleted.
type leftover struct {
	id       string
	creation bool // id is the name of what was perhaps made
	since    time.Time
	forget   func() error
}

// leftovers are what is still to be deleted, by kind and id.
type leftovers struct {
	mu   sync.Mutex
	all  map[string]leftover
	wake chan struct{}
}

func (d *Driver) own(kind, id string) leftover {
	return leftover{
		id: id, creation: kind == d.kind+creation, since: time.Now(),
		forget: func() error { return d.ledger.Forget(kind, id) },
	}
}

// leave hands something over to Run.
func (d *Driver) leave(l leftover) {
	d.rest.mu.Lock()
	d.rest.all[l.id] = l
	d.rest.mu.Unlock()
	select {
	case d.rest.wake <- struct{}{}:
	default:
	}
}

// Run deletes what killed processes of this account have left on record, and
// what this one could not delete or does not know to exist. It tries again as
// long as there is something left, returns when ctx is done, after a last
// attempt at what is its own, and never fails. It should outlive the tunnels.
func (d *Driver) Run(ctx context.Context) error {
	d.inherit()
	look := time.NewTicker(ledger.LookAgain)
	defer look.Stop()
	backoff := sweepBackoff
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			d.closing.Wait()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
			defer cancel()
			d.sweep(last)
			return nil
		case <-d.rest.wake:
			backoff = sweepBackoff
			timer.Reset(backoff)
		case <-look.C:
			d.inherit()
		case <-timer.C:
			if d.sweep(ctx) {
				continue // nothing to do before the next wake
			}
			timer.Reset(vary(backoff))
			backoff = min(2*backoff, sweepMaxBackoff)
		}
	}
}

// inherit takes over what dead processes have left and this one does not know of.
func (d *Driver) inherit() {
	for _, kind := range []string{d.kind, d.kind + creation} {
		orphans, err := d.ledger.Orphans(kind)
		if err != nil {
			d.log.Warn().Err(err).Msg("ledger not read in full")
		}
		orphans = slices.DeleteFunc(orphans, func(o ledger.Orphan) bool { return d.knows(o.ID) })
		for _, o := range orphans {
			d.leave(leftover{id: o.ID, creation: kind == d.kind+creation, since: time.Now(), forget: o.Done})
		}
		if len(orphans) > 0 && kind == d.kind {
			d.log.Info().Int("tunnels", len(orphans)).Msg("deleting the tunnels of a process that was killed")
		}
	}
}

// knows says whether something is to be deleted already.
func (d *Driver) knows(id string) bool {
	d.rest.mu.Lock()
	defer d.rest.mu.Unlock()
	_, ok := d.rest.all[id]
	return ok
}

// sweep tries once to delete everything that is left, and says whether nothing
// is any more.
func (d *Driver) sweep(ctx context.Context) (clean bool) {
	d.rest.mu.Lock()
	all := slices.Collect(maps.Values(d.rest.all))
	d.rest.mu.Unlock()
	if len(all) == 0 {
		return true
	}
	creations := slices.ContainsFunc(all, func(l leftover) bool { return l.creation })
	var made map[string]string
	known := false
	if creations {
		made, known = d.named(ctx)
	}
	var deleting errgroup.Group
	deleting.SetLimit(deletions)
	for _, l := range all {
		id := l.id
		if l.creation {
			var exists bool
			if id, exists = made[l.id]; !exists {
				if known && time.Since(l.since) > settled {
					d.gone(l)
				}
				continue
			}
		}
		deleting.Go(func() error {
			if err := d.api.delete(ctx, id); err != nil {
				d.log.Debug().Err(err).Str("tunnel", id).Msg("deletion of a tunnel failed")
				return nil
			}
			d.gone(l)
			return nil
		})
	}
	_ = deleting.Wait() // none returns an error
	d.rest.mu.Lock()
	defer d.rest.mu.Unlock()
	return len(d.rest.all) == 0
}

// named is the id of every live tunnel of muxproxy's, by its name.
func (d *Driver) named(ctx context.Context) (ids map[string]string, known bool) {
	all, err := d.api.list(ctx, label)
	if err != nil {
		d.log.Debug().Err(err).Msg("tunnels not listed")
		return nil, false
	}
	ids = make(map[string]string)
	for _, r := range all {
		if !r.over() {
			ids[r.Name] = r.ID
		}
	}
	return ids, true
}

// gone takes a leftover off the list and the record.
func (d *Driver) gone(l leftover) {
	if err := l.forget(); err != nil {
		d.log.Warn().Err(err).Msg("ledger not updated")
		return
	}
	d.rest.mu.Lock()
	defer d.rest.mu.Unlock()
	delete(d.rest.all, l.id)
}
