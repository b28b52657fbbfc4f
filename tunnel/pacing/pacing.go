// Package pacing spaces what several processes do under one rate. Providers
// count the tunnels that a token makes, so the rate belongs to the token and is
// shared by all processes of a user that use it, through a folder.
//
// Turns are evenly spaced and never saved up: a bucket that fills while nothing
// happens would fire all it has at once and trip the limit that it is to keep.
// The folder holds a cursor, which says when the last turn was, and for each
// process that waits a file with how many turns it waits for. Each is locked by
// whoever uses it, so that what a killed process leaves behind counts for
// nothing.
package pacing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrBacklog means that a turn is further away than MaxWait.
var ErrBacklog = errors.New("too many wait for their turn")

// Options describe a [Pacer].
type Options struct {
	// Dir is the folder in which processes that share the rate meet. It is made
	// when it is missing. When empty the rate is this Pacer's alone.
	Dir string
	// Key says whose rate it is. Only a hash of it is stored.
	Key string
	// Rate is how many turns there are in a second.
	Rate float64
	// MaxWait is the longest wait for a turn; 5 min.
	MaxWait time.Duration
}

// Pacer gives out turns. It is safe for concurrent use and needs no closing.
type Pacer struct {
	interval time.Duration
	maxWait  time.Duration
	book     book
	first    chan struct{} // capacity 1, held by the first in line of this process
}

// New makes the folder and finds out whether its files can be locked.
func New(ctx context.Context, o Options) (*Pacer, error) {
	if o.Rate <= 0 {
		return nil, errors.New("pacing: Options.Rate is not positive")
	}
	p := &Pacer{
		interval: time.Duration(float64(time.Second) / o.Rate),
		maxWait:  cmp.Or(o.MaxWait, 5*time.Minute),
		first:    make(chan struct{}, 1),
	}
	p.book.busy = make(chan struct{}, 1)
	if o.Dir != "" {
		err := p.book.share(o.Dir, o.Key)
		if err == nil {
			err = p.book.update(ctx, func(*cursor) {})
		}
		if err != nil {
			return nil, fmt.Errorf("pacing: %w", err)
		}
	}
	return p, nil
}

// Wait waits for a turn, first come, first served within the process, and says
// how long that took. It fails with ErrBacklog, at once when the wait would be
// longer than MaxWait already, with the cause of ctx, or when the folder cannot
// be used.
func (p *Pacer) Wait(ctx context.Context) (waited time.Duration, err error) {
	start := time.Now()
	if err := p.join(ctx); err != nil {
		return time.Since(start), err
	}
	select {
	case p.first <- struct{}{}:
		err = p.await(ctx)
		<-p.first
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		p.leave(ctx)
	}
	return time.Since(start), err
}

// Pause lets nobody have a turn before until, which is at most an hour away.
func (p *Pacer) Pause(ctx context.Context, until time.Time) error {
	return p.book.update(ctx, func(c *cursor) {
		c.pause(time.Now(), until)
	})
}

// join counts the caller among those who wait.
func (p *Pacer) join(ctx context.Context) error {
	backlog := false
	err := p.book.update(ctx, func(c *cursor) {
		most := int(p.maxWait/p.interval) + 1
		ahead := p.book.waiting + p.book.others(most)
		wait := c.due(time.Now(), p.interval) + time.Duration(ahead)*p.interval
		if backlog = wait > p.maxWait; !backlog {
			p.book.waiting++
		}
	})
	if err == nil && backlog {
		return ErrBacklog
	}
	return err
}

// leave counts a caller no longer that goes without a turn.
func (p *Pacer) leave(ctx context.Context) {
	if p.book.update(context.WithoutCancel(ctx), func(*cursor) { p.book.waiting-- }) != nil {
		p.book.drop()
	}
}

// await takes the turn of the first in line. Others may take theirs before.
func (p *Pacer) await(ctx context.Context) error {
	for {
		var wait time.Duration
		err := p.book.update(ctx, func(c *cursor) {
			if wait = c.due(time.Now(), p.interval); wait == 0 {
				c.last = time.Now()
				p.book.waiting--
			}
		})
		switch {
		case err != nil:
			return err
		case wait == 0:
			return nil
		case wait > p.maxWait:
			return ErrBacklog
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
