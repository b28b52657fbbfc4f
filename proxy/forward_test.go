package proxy_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// L59: routes that are no model call pass both ways byte for byte and take no turn.
func TestOtherRoutesPassThroughUnrecorded(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(0))}})
	for _, c := range []struct{ path, up, body string }{
		{"/v1/embeddings", "/v1/embeddings", `{ "input" : ["a", 12345678901234567890] , "model":"m"}`},
		{"/v1/messages/count_tokens", "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"\ud800"}]}`},
		{"/messages/count_tokens/", "/v1/messages/count_tokens", `{"messages":[]}`},
		{"/tokenize", "/tokenize", `{"prompt":"hi"}`},
		{"/v1/detokenize", "/detokenize", `{"tokens":[1,2]}`},
		{"/v1/embeddings", "/v1/embeddings", `not JSON: the upstream says so`},
	} {
		got := r.do(r.request(http.MethodPost, c.path, c.body))
		sent := s.model.Last()
		if got.StatusCode != 200 || sent.Path != c.up || string(sent.Body) != c.body {
			t.Errorf("%s: status %d, went up to %s as %s", c.path, got.StatusCode, sent.Path, sent.Body)
		}
	}
	r.wantTurns(0)
	if sum := r.session.Summary(); !sum.FirstCallAt.IsZero() || sum.State != registry.StateActive {
		t.Errorf("the session counts them as calls: %+v", sum)
	}
}

func TestRoutesAboutTheModelNameTheSessions(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Model: "ours"})
	for _, path := range []string{"/v1/messages/count_tokens", "/tokenize", "/detokenize"} {
		r.do(r.request(http.MethodPost, path, `{"x": 1.0, "model" : "theirs"}`))
		if got := string(s.model.Last().Body); got != `{"x": 1.0, "model" : "ours"}` {
			t.Errorf("%s went up as %s", path, got)
		}
		s.model.Forget()
		for _, body := range []string{`{"model":"a","model":"b"}`, `{"model":"a","mod\u0065l":"b"}`} {
			got := r.do(r.request(http.MethodPost, path, body))
			if up := s.model.Last(); up != nil || got.StatusCode != 400 {
				t.Errorf("%s %s: status %d, %v went up", path, body, got.StatusCode, up)
			}
		}
	}
	r.do(r.request(http.MethodPost, "/v1/embeddings", `{"model":"theirs"}`))
	if got := string(s.model.Last().Body); got != `{"model":"theirs"}` {
		t.Errorf("embeddings went up as %s: they are another model's", got)
	}
}

// Nothing but a whole answer of the kind that was asked for is passed on as one.
func TestOddStatusesOfTheUpstreamAreUnusable(t *testing.T) {
	for _, status := range []int{101, 201, 202, 204, 205, 206, 300, 304, 307, 399} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			for _, extra := range []string{"", streaming} {
				began := time.Now()
				s.model.Script("odd", scripted.Script{Status: status, Header: http.Header{}})
				got := r.chat("odd", extra)
				if got.StatusCode != 502 || time.Since(began) > time.Second {
					s.t.Errorf("%d: answered %d after %s: %s", status, got.StatusCode, time.Since(began), got.body)
				}
			}
			s.wantIdle()
		})
	}
}

func TestClientOfHTTPOneZeroGetsAStreamWithoutChunks(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	body := chatBody("openai", streaming)
	got := s.raw("POST "+chatPath+" HTTP/1.0\nAuthorization: Bearer "+r.secret+"\nContent-Length: "+itoa(len(body)), body)
	if got.StatusCode != 200 || !strings.HasSuffix(string(got.body), "data: [DONE]\n\n") || len(got.TransferEncoding) != 0 {
		t.Errorf("%d %q %v", got.StatusCode, got.body, got.TransferEncoding)
	}
}

// L40: also for calls that are not recorded.
func TestEndOfASessionCancelsWhatIsPassedThrough(t *testing.T) {
	s := newStack(t)
	s.model.Script("GET /v1/models", scripted.Script{NoHeader: true, End: scripted.Hang})
	r := s.register(registry.Spec{ID: "ending"})
	answered := make(chan answer)
	go func() { answered <- r.do(r.request(http.MethodGet, "/v1/models", "")) }()
	requests, err := s.model.Await(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.End(t.Context(), "ending", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	(<-answered).wantError(t, http.StatusGone, "session_ended")
	<-requests[0].Done()
	if _, canceled := requests[0].Canceled(); !canceled {
		t.Error("the upstream was not told")
	}
}

// R96: there is no limit on the whole of a call, and the first byte has its own.
func TestWhatIsPassedThroughHasTheBudgetsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t, inMemory, func(set *settings) {
			set.proxy.IdleTimeout, set.proxy.FirstByteTimeout = time.Second, time.Minute
		})
		script := scripted.JSON([]byte(`{"data":[1,2,3,4]}`))
		script.Cut, script.Gap, script.Delay = scripted.Bytes, 500*time.Millisecond, 30*time.Second
		s.model.Script("slow", script)
		r := s.register(registry.Spec{})
		if got := r.do(r.request(http.MethodPost, "/v1/embeddings", `{"model":"slow"}`)); got.StatusCode != http.StatusOK || string(got.body) != `{"data":[1,2,3,4]}` {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		got := r.do(r.request(http.MethodPost, "/v1/embeddings", `{"model":"silent"}`))
		got.wantError(t, http.StatusGatewayTimeout, "upstream_timeout")
		if !strings.Contains(string(got.body), "first byte") {
			t.Errorf("got %s; want it to name the budget", got.body)
		}
		s.client.CloseIdleConnections()
	})
}

func TestHeadOfModelsKeepsItsLength(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	list := scripted.Fixture("openai/models.json")
	s.model.Script("HEAD /v1/models", scripted.JSON(list))
	if head := r.do(r.request(http.MethodHead, "/v1/models", "")); head.StatusCode != http.StatusOK || head.ContentLength != int64(len(list)) || len(head.body) != 0 {
		t.Errorf("got %d, length %d; want %d", head.StatusCode, head.ContentLength, len(list))
	}
}

func TestSessionSeesItsModelUnderAnyName(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Model: "/data/models/Qwen"})
	for _, path := range []string{"/v1/models//data/models/Qwen", "/v1/models/%2Fdata%2Fmodels%2FQwen", "/v1/models/data/models/Qwen"} {
		if got := r.do(r.request(http.MethodGet, path, "")); got.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %s", path, got.StatusCode, got.body)
		}
	}
}
