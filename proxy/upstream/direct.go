package upstream

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// direct is a transport that speaks HTTP/1.1 on the goroutines of its callers: one
// write for a request, as few reads as the answer takes, and no goroutine between
// them. It reuses the connection that was used last.
//
// A call that finds no idle connection waits for the first to come, made for it or
// given up by another call. There are never more dials than calls that wait, when
// one begins; so there are never more connections than there were calls at once.
type direct struct {
	replica *replica
	addr    string
	readers sync.Pool // of *bufio.Reader
	buffers sync.Pool // of *[]byte, requests as they are written

	mu      sync.Mutex // guards what follows
	retired bool       // no connection becomes idle any more
	closing bool       // nor until the next call
	idle    []*connection
	expiry  *time.Timer // for the first of idle, which is so for the longest time
	waiting []chan delivery
	dials   []*dialing
}

// dialing is a connection that is being made.
type dialing struct {
	cancel context.CancelFunc
}

// delivery is what a waiting call gets.
type delivery struct {
	conn *connection
	err  error
}

func newDirect(r *replica) *direct {
	_, port, err := net.SplitHostPort(r.target.host)
	if err != nil || port == "" {
		port = "80"
	}
	return &direct{replica: r, addr: net.JoinHostPort(r.target.name, port)}
}

func (d *direct) roundTrip(ctx context.Context, m *message) (*http.Response, error) {
	for {
		c, err := d.acquire(ctx)
		if err != nil {
			return nil, err
		}
		x := &exchange{pool: d, conn: c, ctx: ctx}
		err = x.run(m)
		switch {
		case err == nil:
			return refusable(ctx, &x.response, x), nil
		case !errors.Is(err, errUnsent) || ctx.Err() != nil:
			return nil, err
		case !c.used:
			return nil, d.replica.dialFailed(err)
		}
	}
}

// acquire takes a connection. Errors of dials are *DialErrors.
func (d *direct) acquire(ctx context.Context) (*connection, error) {
	c, wait := d.take() //nolint:contextcheck // a dial is for whoever is first
	if wait == nil {
		return c, nil
	}
	select {
	case got := <-wait:
		return got.conn, got.err
	case <-ctx.Done():
		d.abandon(wait)
		return nil, context.Cause(ctx)
	}
}

// take gives an idle connection, or where to wait for one.
func (d *direct) take() (c *connection, wait chan delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = false
	if last := len(d.idle) - 1; last >= 0 {
		c = d.idle[last]
		d.idle[last] = nil
		d.idle = d.idle[:last]
		return c, nil
	}
	wait = make(chan delivery, 1)
	d.waiting = append(d.waiting, wait)
	d.dialMore()
	return nil, wait
}

// abandon ends the waiting of a call that has ended.
func (d *direct) abandon(wait chan delivery) {
	d.mu.Lock()
	i := slices.Index(d.waiting, wait)
	if i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		d.cancelDials()
	}
	d.mu.Unlock()
	if i < 0 {
		if got := <-wait; got.conn != nil {
			d.put(got.conn)
		}
	}
}

// put gives a connection to a call that waits for one, or keeps it for a while.
func (d *direct) put(c *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.deliver(delivery{conn: c}):
	case d.retired || d.closing:
		_ = c.Close()
	default:
		c.idleSince = time.Now()
		d.idle = append(d.idle, c)
		if d.expiry == nil {
			d.expiry = time.AfterFunc(idleTimeout, d.expire)
		} else if len(d.idle) == 1 {
			d.expiry.Reset(idleTimeout)
		}
	}
}

// deliver reports whether a call waited for it. The lock must be held.
func (d *direct) deliver(got delivery) bool {
	if len(d.waiting) == 0 {
		return false
	}
	d.waiting[0] <- got
	d.waiting = slices.Delete(d.waiting, 0, 1)
	return true
}

// expire closes connections that have been idle for too long.
func (d *direct) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, n := time.Now(), 0
	for _, c := range d.idle {
		if left := idleTimeout - now.Sub(c.idleSince); left > 0 {
			d.expiry.Reset(left)
			break
		}
		_ = c.Close()
		n++
	}
	d.idle = slices.Delete(d.idle, 0, n)
}

func (d *direct) retire() {
	d.mu.Lock()
	d.retired = true
	d.mu.Unlock()
	d.closeIdle()
}

func (d *direct) closeIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
	if d.expiry != nil {
		d.expiry.Stop()
	}
	d.cancelDials()
}

// buffer gives room to write a request to. It goes back to buffers.
func (d *direct) buffer() *[]byte {
	if b, ok := d.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// reader gives a buffer to read from the connection with.
func (d *direct) reader(c *connection) *bufio.Reader {
	if r, ok := d.readers.Get().(*bufio.Reader); ok {
		r.Reset(c.Conn)
		return r
	}
	return bufio.NewReaderSize(c.Conn, readSize)
}

func (d *direct) recycle(r *bufio.Reader) {
	r.Reset(nil)
	d.readers.Put(r)
}
