package upstream_test

import (
	"context"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A replica that goes away says so to a call that has just taken the connection, and
// leaves that open: another connection is made at once.
func TestAConnectionThatIsGoingAwayHoldsUpNobody(t *testing.T) {
	for _, name := range []string{"before the call", "when it has taken the connection"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := make(chan *http2Peer, 1)
				options, wait := http2Replica(t, func(n int, p *http2Peer) {
					p.alive.Store(true)
					if n == 1 {
						first <- p
					}
					for stream := p.request(); stream != 0; stream = p.request() {
						p.answer(stream)
					}
				})
				set, u := newUpstream(t, options, replicas("https://replica.example"))
				send(t, u, chat("{}"))
				p := <-first
				away := sync.OnceFunc(func() {
					p.goAway(1)
					synctest.Wait()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if name == "before the call" {
					away()
				} else {
					ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { away() }})
				}
				began := time.Now()
				res, err := u.Send(ctx, chat("{}"))
				if err != nil {
					t.Errorf("after %v: %v", time.Since(began), err)
				} else {
					finish(t, res)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
				set.Close()
				wait()
			})
		})
	}
}

// Only a refused stream is one that the replica has not begun with (RFC 9113, section
// 8.7).
func TestAStreamThatWasResetIsSentAgainOnlyIfItWasRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		code byte
		sent int
	}{
		{"NO_ERROR", 0, 1},
		{"PROTOCOL_ERROR", 1, 2}, // which net/http takes for the same
		{"INTERNAL_ERROR", 2, 1},
		{"REFUSED_STREAM", 7, 2},
		{"CANCEL", 8, 1},
		{"ENHANCE_YOUR_CALM", 11, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				options, wait := http2Replica(t, func(_ int, p *http2Peer) {
					for stream := p.request(); stream != 0; stream = p.request() {
						if requests.Add(1) == 2 {
							p.write(frameReset, 0, stream, []byte{0, 0, 0, c.code})
						} else {
							p.answer(stream)
						}
					}
				})
				set, u := newUpstream(t, options, replicas("https://replica.example"))
				send(t, u, chat("{}"))
				res, err := u.Send(t.Context(), chat("{}"))
				if err == nil {
					finish(t, res)
				}
				if n := int(requests.Load()) - 1; n != c.sent || (err == nil) != (c.sent == 2) {
					t.Errorf("it was sent %d times, want %d: %v", n, c.sent, err)
				}
				set.Close()
				wait()
			})
		})
	}
}
