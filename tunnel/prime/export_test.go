package prime

import (
	"context"
	"net"

	"github.com/muxproxy/muxproxy/tunnel"
)

// Connect puts f in the place of frp.
func (d *Driver) Connect(f func(ctx context.Context, id string) (tunnel.Tunnel, error)) {
	d.connect = func(ctx context.Context, _ *Driver, r *registration, _ func(net.Conn)) (tunnel.Tunnel, error) {
		return f(ctx, r.ID)
	}
}

// Left is how much is still to be deleted.
func (d *Driver) Left() int {
	d.rest.mu.Lock()
	defer d.rest.mu.Unlock()
	return len(d.rest.all)
}
