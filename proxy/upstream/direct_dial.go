package upstream

import (
	"context"
	"errors"
	"slices"

	"github.com/muxproxy/muxproxy/nonblock"
)

// dialMore begins a dial for each waiting call that has none. The lock must be
// held.
func (d *direct) dialMore() {
	for len(d.dials) < len(d.waiting) {
		// The connection is not for one call but for whoever is first.
		ctx, cancel := context.WithTimeout(context.Background(), d.replica.upstream.options.ConnectTimeout)
		dial := &dialing{cancel}
		d.dials = append(d.dials, dial)
		go d.dial(ctx, dial)
	}
}

// cancelDials ends dials that no call waits for. The lock must be held.
func (d *direct) cancelDials() {
	for _, dial := range d.dials[min(len(d.waiting), len(d.dials)):] {
		dial.cancel()
	}
}

// dial makes a connection for the call that has waited for the longest time.
func (d *direct) dial(ctx context.Context, dial *dialing) {
	defer dial.cancel()
	got := d.connect(ctx)
	if got.conn != nil {
		d.put(got.conn)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials = slices.DeleteFunc(d.dials, func(other *dialing) bool { return other == dial })
	if got.err != nil {
		d.deliver(got)
	}
	d.dialMore() //nolint:contextcheck // this one is over
}

// connect makes a connection and tells the replica's health how that went. A dial
// that was cancelled gives nothing.
func (d *direct) connect(ctx context.Context) delivery {
	o := &d.replica.upstream.options
	raw, err := o.Dial(ctx, "tcp", d.addr)
	switch {
	case err == nil:
		if o.Observer.ConnectionOpened != nil {
			o.Observer.ConnectionOpened(d.replica.upstream.name)
		}
		d.replica.observe((*health).dialed)
		return delivery{conn: newConnection(nonblock.Conn(raw))}
	case errors.Is(ctx.Err(), context.Canceled):
		return delivery{}
	default:
		return delivery{err: d.replica.dialFailed(err)}
	}
}
