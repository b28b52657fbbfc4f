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

// State is Up as long as the program runs.
func (p *program) State() tunnel.State { return tunnel.Up }

// Changed is never closed.
func (p *program) Changed() <-chan struct{} { return nil }

// Done is closed when the program has ended, and by Close.
func (p *program) Done() <-chan struct{} { return p.ended }

// Err is, after Done, ErrClosed or a *LostError with the end of the output.
func (p *program) Err() error {
	select {
	case <-p.ended:
		return p.cause
	default:
		return nil
	}
}

// Close ends the program and its descendants. It takes at most the grace and a
// second; when ctx is done, the grace is over.
func (p *program) Close(ctx context.Context) error {
	p.end(tunnel.ErrClosed)
	return p.stop(ctx)
}
