package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// NonceHeader is on every answer of a server and carries its nonce.
const NonceHeader = "X-Muxproxy-Server"

// The pauses between the probes of a tunnel that has just been opened.
const (
	firstProbePause = 50 * time.Millisecond
	lastProbePause  = time.Second
)

// errOtherServer is what is wrong with an answer that is not this server's own.
var errOtherServer = errors.New("the answer is not this server's")

// probe asks this server for its health through its public URL. Only an answer
// with its nonce counts: not the page of a provider that knows no such tunnel,
// not that of another server, and not a redirect to wherever.
func (l *life) probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, l.pool.opts.ProbeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	response, err := l.pool.opts.Transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	_ = response.Body.Close()
	if response.Header.Get(NonceHeader) != l.server.Nonce() {
		return fmt.Errorf("probe: status %d: %w", response.StatusCode, errOtherServer)
	}
	return nil
}

// awaitReady probes until the server answers, the last time when ReadyTimeout is
// over.
func (l *life) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := l.whileUp(ctx)
	defer cancel()
	start := time.Now()
	wait := firstProbe(l.pool.opts.Driver)
	for next := firstProbePause; ; next = min(2*next, lastProbePause) {
		if err := Pause(ctx, wait); err != nil {
			return l.notReady(url, err)
		}
		err := l.probe(ctx, url)
		if err == nil {
			return nil
		}
		left := l.pool.opts.ReadyTimeout - time.Since(start)
		if left <= 0 || ctx.Err() != nil {
			return l.notReady(url, err)
		}
		l.pool.change(func(*state, time.Time) { l.member.lastErr = err })
		wait = min(next, left)
	}
}

// notReady says why, which is the tunnel's own reason when it is done.
func (l *life) notReady(url string, err error) error {
	if reason := l.tunnel.Err(); reason != nil {
		err = reason
	}
	return &NotReadyError{URL: url, Err: err}
}

func firstProbe(d Driver) time.Duration {
	if f, ok := d.(FirstProber); ok {
		return f.FirstProbe()
	}
	return 0
}
