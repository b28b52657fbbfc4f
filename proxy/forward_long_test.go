package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

const (
	longAnswer    = 1 << 20 // from where on an answer that is passed through is not held
	embeddingPath = "/v1/embeddings"
)

// vectors is an answer of that many bytes.
func vectors(size int) []byte {
	body := bytes.Repeat([]byte("-0.0123456789,"), size/14+1)[:size]
	copy(body, `{"data":[`)
	copy(body[size-2:], "]}")
	return body
}

func (r *rollout) embed(model string) *http.Request {
	return r.request(http.MethodPost, embeddingPath, `{"model":"`+model+`"}`)
}

// pieces are a body and how it is announced.
func pieces(length int64, parts ...[]byte) scripted.Script {
	script := scripted.JSON(nil)
	script.Length = length
	script.Pieces = func(yield func([]byte) bool) {
		for _, part := range parts {
			if !yield(part) {
				return
			}
		}
	}
	return script
}

func TestLongAnswersArePassedThroughByteForByte(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, size := range []int{0, 100, longAnswer - 1, longAnswer, longAnswer + 1, 5 << 20} {
		body := vectors(max(size, 20))[:size]
		packed := scripted.JSON([]byte(pack(string(body))))
		packed.Header.Set("Content-Encoding", "gzip")
		refused := scripted.JSON(body)
		refused.Status = http.StatusBadRequest
		for name, script := range map[string]scripted.Script{
			"announced": scripted.JSON(body), "in chunks": pieces(-1, body), "gzipped": packed, "refused": refused,
		} {
			s.model.Script("long", script)
			got := s.do(r.embed("long"))
			if got.StatusCode != max(script.Status, http.StatusOK) || got.err != nil || !bytes.Equal(got.body, body) || got.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d bytes %s: status %d, %d bytes, %v", size, name, got.StatusCode, len(got.body), got.err)
			}
			if announced := script.Length == 0 && name != "gzipped"; (announced || size < longAnswer) && got.ContentLength != int64(size) {
				t.Errorf("%d bytes %s: its length is said to be %d", size, name, got.ContentLength)
			}
		}
	}
}

// However long an answer is, little of it is in memory.
func TestLongAnswersThatArePassedThroughAreNotHeld(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	piece := vectors(1 << 20)
	parts := make([][]byte, 100)
	for i := range parts {
		parts[i] = piece
	}
	for _, length := range []int64{-1, 100 << 20} {
		s.model.Script("long", pieces(length, parts...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res, err := s.client.Do(r.embed("long"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		runtime.ReadMemStats(&after)
		if n != 100<<20 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("an answer of 100 MiB took %d KiB of memory", took>>10)
		}
	}
}

// Until so much of it has come, what goes wrong with an answer is told by its status; then by its connection.
func TestLongAnswersThatAreNotWholeBreakOff(t *testing.T) {
	for _, size := range []int{longAnswer / 2, longAnswer - 1, longAnswer, longAnswer * 2} {
		bubble(t, func(s *stack) {
			stop := s.run()
			defer stop()
			r := s.register(registry.Spec{ID: "a"})
			body := vectors(size)
			broken := func(length int64, end scripted.End) scripted.Script {
				script := pieces(length, body, []byte("more"))
				script.Limit, script.End = 1, end
				return script
			}
			for _, test := range []struct {
				name, code, outcome string
				status              int
				script              scripted.Script
			}{
				{"cut", "upstream_invalid", "upstream_truncated", 502, broken(int64(2*size), scripted.Abort)},
				{"cut in chunks", "upstream_invalid", "upstream_truncated", 502, broken(-1, scripted.Abort)},
				{"silent", "upstream_timeout", "upstream_timeout", 504, broken(-1, scripted.Hang)},
				{"ended", "session_ended", "cancelled", 410, broken(-1, scripted.Hang)},
			} {
				s.model.Script("long", test.script)
				if test.name == "ended" {
					time.AfterFunc(time.Second, func() {
						if _, err := s.registry.End(s.t.Context(), "a", registry.EndOptions{}); err != nil {
							s.t.Error(err)
						}
					})
				}
				got := s.do(r.embed("long"))
				if size < longAnswer {
					got.wantError(s.t, test.status, test.code)
				} else if got.StatusCode != http.StatusOK || got.err == nil || !bytes.Equal(got.body, body) {
					s.t.Errorf("%d bytes %s: status %d, %d bytes, %v", size, test.name, got.StatusCode, len(got.body), got.err)
				}
				s.wantLogged(logged{Outcome: test.outcome, Status: got.StatusCode})
				s.wantIdle()
			}
		})
	}
}

func TestLongAnswersOverTheLimitAreRefused(t *testing.T) {
	for _, limit := range []int64{1000, longAnswer, 3 << 20} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			over := vectors(int(limit) + 1)
			s.model.Script("long", scripted.JSON(over))
			s.do(r.embed("long")).wantError(s.t, http.StatusBadGateway, "upstream_invalid")
			s.model.Script("long", pieces(-1, over))
			if got := s.do(r.embed("long")); limit < longAnswer {
				got.wantError(s.t, http.StatusBadGateway, "upstream_invalid")
			} else if got.StatusCode != http.StatusOK || got.err == nil {
				s.t.Errorf("limit %d: status %d, %d bytes, %v", limit, got.StatusCode, len(got.body), got.err)
			}
			s.wantLogged(logged{Outcome: "upstream_error"})
			s.model.Script("long", pieces(-1, over[:limit]))
			if got := s.do(r.embed("long")); got.StatusCode != http.StatusOK || got.err != nil || len(got.body) != int(limit) {
				s.t.Errorf("at the limit of %d: status %d, %d bytes, %v", limit, got.StatusCode, len(got.body), got.err)
			}
		}, func(set *settings) { set.proxy.MaxBodyBytes = limit })
	}
}

// An answer that has begun is nothing that a tunnel gives up on.
func TestLongAnswersOutlastTheLimitOfTheirTunnel(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		body := vectors(4 << 20)
		script := scripted.JSON(body)
		script.Pieces = pieces(0, body[:2<<20], body[2<<20:3<<20], body[3<<20:]).Pieces
		script.Gap, script.Length = time.Minute, int64(len(body))
		s.model.Script("long", script)
		if got := s.do(r.embed("long")); got.StatusCode != http.StatusOK || got.err != nil || !bytes.Equal(got.body, body) {
			s.t.Errorf("status %d, %d bytes, %v: %.100s", got.StatusCode, len(got.body), got.err, got.body)
		}
	}, limited)
}

func TestClientThatLeavesALongAnswerIsADisconnect(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		script := pieces(-1, vectors(2<<20), []byte("more"))
		script.Limit, script.End = 1, scripted.Hang
		s.model.Script("long", script)
		l := r.openRequest(r.embed("long"))
		if _, err := io.CopyN(io.Discard, l.reader, 2<<20); err != nil {
			s.t.Fatal(err)
		}
		l.close()
		s.wantLogged(logged{Outcome: "client_disconnected", Status: http.StatusOK})
		if last := s.logged(); !strings.Contains(last[len(last)-1].End, "client_gone") {
			s.t.Errorf("it ended as %q", last[len(last)-1].End)
		}
		s.wantCanceled()
		s.wantIdle()
	})
}
