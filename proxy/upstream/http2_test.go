package upstream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// Types and flags of HTTP/2 frames (RFC 9113, section 6).
const (
	frameData     = 0x0
	frameHeaders  = 0x1
	frameReset    = 0x3
	frameSettings = 0x4
	framePing     = 0x6
	frameGoAway   = 0x7

	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
)

// An http2Peer is a replica that speaks HTTP/2 as badly as a test wants it to.
type http2Peer struct {
	r     *bufio.Reader
	out   chan []byte // frames, written by a goroutine: in memory a write waits for its reader
	alive atomic.Bool // it answers pings
}

// http2Replica runs handle for every connection to https://replica.example, numbered
// from 1, and gives options that lead there. wait returns when all have ended.
func http2Replica(tb testing.TB, handle func(n int, p *http2Peer)) (o upstream.Options, wait func()) {
	tb.Helper()
	server, o := secure(tb, http.NotFoundHandler(), true) // has certificates
	config := server.TLS.Clone()
	server.Close()
	o.TLS.ServerName = "example.com"
	var running sync.WaitGroup
	dials := 0
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		client, conn := net.Pipe()
		dials++
		n := dials
		running.Go(func() {
			secured := tls.Server(conn, config)
			p := &http2Peer{r: bufio.NewReader(secured), out: make(chan []byte, 100)}
			var writing sync.WaitGroup
			writing.Go(func() {
				for frame := range p.out {
					_, _ = secured.Write(frame) // the other side may have gone
				}
				_ = conn.Close()
			})
			defer writing.Wait()
			defer close(p.out)
			if _, err := p.r.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
				return
			}
			p.write(frameSettings, 0, 0, nil)
			handle(n, p)
		})
		return client, nil
	}
	return o, running.Wait
}

func (p *http2Peer) write(kind, flags byte, stream uint32, payload []byte) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)) //nolint:gosec // short
	frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
	p.out <- append(frame, payload...)
}

// frame waits for the next frame, acknowledging what wants to be; ok says that there is one.
func (p *http2Peer) frame() (kind, flags byte, stream uint32, ok bool) {
	var head [9]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, 0, 0, false
	}
	payload := make([]byte, binary.BigEndian.Uint32(head[:])>>8)
	if _, err := io.ReadFull(p.r, payload); err != nil {
		return 0, 0, 0, false
	}
	kind, flags = head[3], head[4]
	switch {
	case flags&flagAck != 0:
	case kind == frameSettings:
		p.write(frameSettings, flagAck, 0, nil)
	case kind == framePing && p.alive.Load():
		p.write(framePing, flagAck, 0, payload)
	}
	return kind, flags, binary.BigEndian.Uint32(head[5:]), true
}

// request waits for the next whole request and returns its stream, 0 if there is none.
func (p *http2Peer) request() uint32 {
	for {
		kind, flags, stream, ok := p.frame()
		if !ok || (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0 {
			return stream
		}
	}
}

// answer answers on a stream with status 200 and a body.
func (p *http2Peer) answer(stream uint32) {
	const status200 = 0x80 | 8 // in the static table of HPACK (RFC 7541, appendix A)
	p.write(frameHeaders, flagEndHeaders, stream, []byte{status200})
	p.write(frameData, flagEndStream, stream, []byte(`{"ok":true}`))
}

// refuse begins an answer with status 403.
func (p *http2Peer) refuse(stream uint32) {
	p.write(frameHeaders, flagEndHeaders, stream, append([]byte{0x08, 3}, "403"...)) // the name of entry 8, and a value
}

func (p *http2Peer) goAway(last uint32) {
	p.write(frameGoAway, 0, 0, binary.BigEndian.AppendUint64(nil, uint64(last)<<32))
}

// R108.
func TestHTTP2ConnectionThatIsDeadIsDroppedWithinHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options, wait := http2Replica(t, func(n int, p *http2Peer) {
			for stream := p.request(); stream != 0; stream = p.request() {
				if n > 1 || stream == 1 { // after its first answer the first one is deaf and dumb
					p.answer(stream)
				}
			}
		})
		set, u := newUpstream(t, options, replicas("https://replica.example"))
		send(t, u, chat("{}"))
		began := time.Now()
		if _, err := u.Send(t.Context(), chat("{}")); err == nil {
			t.Error("a call on a dead connection was answered")
		}
		if took := time.Since(began); took > 31*time.Second {
			t.Errorf("it took %v to notice", took)
		}
		send(t, u, chat("{}"))
		set.Close()
		wait()
	})
}

// R109.
func TestOnlyUnprocessedStreamsAreSentAgainAfterGoAway(t *testing.T) {
	for _, c := range []struct {
		name      string
		last      uint32 // that the replica says it has taken up
		processed bool   // the second call was
	}{
		{"the second was not taken up", 1, false},
		{"the second was taken up and never answered", 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				requests := 0
				options, wait := http2Replica(t, func(n int, p *http2Peer) {
					for stream := p.request(); stream != 0; stream = p.request() {
						mu.Lock()
						requests++
						mu.Unlock()
						switch {
						case n > 1:
							p.answer(stream)
						case stream == 3:
							p.goAway(c.last)
							p.answer(1)
						}
					}
				})
				set, u := newUpstream(t, options, replicas("https://replica.example"))
				errs := make([]error, 2)
				var calls sync.WaitGroup
				for i := range errs {
					calls.Go(func() {
						res, err := u.Send(t.Context(), chat("{}"))
						if err == nil {
							finish(t, res)
						}
						errs[i] = err
					})
					synctest.Wait() // so that the streams are numbered like the calls
				}
				calls.Wait()
				set.Close()
				wait()
				if errs[0] != nil {
					t.Errorf("the first call failed: %v", errs[0])
				}
				want := 3
				if c.processed {
					want = 2
				}
				if failed := errs[1] != nil; failed != c.processed || requests != want {
					t.Errorf("the second call: %v; the replica saw %d requests, want %d", errs[1], requests, want)
				}
			})
		})
	}
}
