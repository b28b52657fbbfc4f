package command

import (
	"context"

	"github.com/muxproxy/muxproxy/tunnel"
)

var _ tunnel.Tunnel = (*program)(nil)

// URL is what the program printed.
func (p *program) URL() string { return p.url }

// Resume is empty: another start has another URL.
func (p *program) Resume() string { return "" }

// Close ends the program and its descendants. It takes at most the grace and a
// second; when ctx is done, the grace is over.
func (p *program) Close(ctx context.Context) error {
	p.End(tunnel.ErrClosed)
	return p.stop(ctx)
}
