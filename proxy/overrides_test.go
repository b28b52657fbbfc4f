package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// overridden sends a body through a session of that spec and returns what went up.
func (s *stack) overridden(spec registry.Spec, path, body string) string {
	s.t.Helper()
	s.model.Forget()
	r := s.register(spec)
	got := r.do(r.request(http.MethodPost, path, body))
	if got.StatusCode != 200 {
		s.t.Fatalf("%s: status %d, body %s", body, got.StatusCode, got.body)
	}
	if turns := r.turns(); len(turns) == 1 && string(turns[0].Request()) != string(s.model.Last().Body) {
		s.t.Errorf("the turn holds\n%s\nand not what went up\n%s", turns[0].Request(), s.model.Last().Body)
	}
	return string(s.model.Last().Body)
}

// R56, L60: what a session sets is set in place, and nothing else is touched.
func TestOverridesAreWrittenInPlace(t *testing.T) {
	s := newStack(t)
	const odd = `"big":12345678901234567890 , "f":1.0e+00,"s":"<a>&\u003c\/\ud800 北","e":{ },"d":{"model":"x","temperature":9}`
	for _, c := range []struct{ model, sampling, body, want string }{
		{"new", ``, `{"model":"old","messages":[1]}`, `{"model":"new","messages":[1]}`},
		{"new", ``, `{ "zeta":1 ,` + "\n\t" + `"model" : "old" , "messages":[ 1 ] }`, `{ "zeta":1 ,` + "\n\t" + `"model" : "new" , "messages":[ 1 ] }`},
		{"new", ``, `{"messages":[1],` + odd + `}`, `{"messages":[1],` + odd + `,"model":"new"}`},
		{"new", ``, `{"messages":[1],"mod\u0065l":"old"}`, `{"messages":[1],"mod\u0065l":"new"}`},
		{"new", ``, `{"messages":[1],"model":null}`, `{"messages":[1],"model":"new"}`},
		{`q"<&\` + "\u2028北", ``, `{"model":"old","messages":[1]}`, `{"model":"q\"<&\\` + "\u2028北" + `","messages":[1]}`},
		{"", `{"temperature":0.7}`, `{"temperature":1,"messages":[1],` + odd + `}`, `{"temperature":0.7,"messages":[1],` + odd + `}`},
		{"", `{"temperature":1.0,"top_k":20,"seed":12345678901234567890}`, `{"messages":[1],"top_k" : -1}`, `{"messages":[1],"top_k" : 20,"seed":12345678901234567890,"temperature":1.0}`},
		{"new", `{"stop":["a","b"]}`, `{"stop":"x","model":"old","messages":[1]}`, `{"stop":["a","b"],"model":"new","messages":[1]}`},
		{"", `{"top_p":null}`, `{"top_p":0.1,"messages":[1]}`, `{"top_p":null,"messages":[1]}`},
	} {
		spec := registry.Spec{Model: c.model}
		if c.sampling != "" {
			spec.Sampling = sampling(c.sampling)
		}
		if got := s.overridden(spec, chatPath, c.body); got != c.want {
			t.Errorf("%s with %q %s went up as\n%s, want\n%s", c.body, c.model, c.sampling, got, c.want)
		}
	}
}

func TestDefaultModeYieldsToTheHarness(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct{ sampling, body, want string }{
		{`{"temperature":0.7}`, `{"temperature":1,"messages":[1]}`, `{"temperature":1,"messages":[1]}`},
		{`{"temperature":0.7}`, `{"messages":[1]}`, `{"messages":[1],"temperature":0.7}`},
		{`{"temperature":0.7,"top_p":0.9}`, `{"messages":[1],"top_p":1}`, `{"messages":[1],"top_p":1,"temperature":0.7}`},
		{`{"max_tokens":5}`, `{"max_completion_tokens":9,"messages":[1]}`, `{"max_completion_tokens":9,"messages":[1]}`},
		{`{"max_tokens":5}`, `{"max_tokens":9,"messages":[1]}`, `{"max_tokens":9,"messages":[1]}`},
		{`{"max_tokens":5}`, `{"messages":[1]}`, `{"messages":[1],"max_tokens":5}`},
	} {
		spec := registry.Spec{Model: "new", Sampling: sampling(c.sampling), SamplingMode: registry.SamplingDefault}
		want := strings.TrimSuffix(c.want, "}") + `,"model":"new"}` // a model always wins
		if got := s.overridden(spec, chatPath, c.body); !sameMembers(got, want) {
			t.Errorf("%s with %s went up as\n%s, want\n%s", c.body, c.sampling, got, want)
		}
	}
}

// sameMembers compares objects of numbers, strings and one array whose added
// members may come in any order.
func sameMembers(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for member := range strings.SplitSeq(strings.Trim(a, "{}"), ",") {
		if !strings.Contains(b, member) {
			return false
		}
	}
	return true
}

func TestTokenLimitIsWrittenUnderOneName(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct{ sampling, body, want string }{
		{`{"max_tokens":5}`, `{"messages":[1]}`, `{"messages":[1],"max_tokens":5}`},
		{`{"max_completion_tokens":5}`, `{"messages":[1]}`, `{"messages":[1],"max_completion_tokens":5}`},
		{`{"max_tokens":5}`, `{"max_tokens":9,"messages":[1]}`, `{"max_tokens":5,"messages":[1]}`},
		{`{"max_tokens":5}`, `{"max_completion_tokens":9,"messages":[1]}`, `{"max_completion_tokens":5,"messages":[1]}`},
		{`{"max_completion_tokens":5}`, `{"max_tokens":9,"messages":[1]}`, `{"max_tokens":5,"messages":[1]}`},
		{`{"max_tokens":5}`, `{"max_tokens":9,"max_completion_tokens":8,"messages":[1]}`, `{"max_completion_tokens":5,"messages":[1]}`},
		{`{"max_tokens":5}`, `{"messages":[1],"max_completion_tokens":8,"max_tokens":9}`, `{"messages":[1],"max_completion_tokens":5}`},
		{`{"max_tokens":5,"max_completion_tokens":6}`, `{"max_tokens":9,"messages":[1]}`, `{"max_tokens":6,"messages":[1]}`},
		{`{"max_tokens":5,"max_completion_tokens":6}`, `{"messages":[1]}`, `{"messages":[1],"max_completion_tokens":6}`},
	} {
		if got := s.overridden(registry.Spec{Sampling: sampling(c.sampling)}, chatPath, c.body); got != c.want {
			t.Errorf("%s with %s went up as\n%s, want\n%s", c.body, c.sampling, got, c.want)
		}
	}
}

// A field that stands twice could be overridden in one place and obeyed in the other.
func TestAmbiguousOverriddenFieldIsRefused(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct{ sampling, body string }{
		{`{"temperature":0}`, `{"messages":[1],"temperature":1,"temperature":2}`},
		{`{"temperature":0}`, `{"messages":[1],"temperature":1,"t\u0065mperature":2}`},
		{`{"max_tokens":5}`, `{"messages":[1],"max_tokens":9,"max_tokens":9}`},
		{`{"max_tokens":5}`, `{"messages":[1],"max_completion_tokens":9,"max_completion_tokens":9}`},
		{`{"max_completion_tokens":5}`, `{"messages":[1],"max_tokens":9,"max_token\u0073":9}`},
		{`{"max_tokens":5}`, `{"messages":[1],"max_tokens":9,"max_completion_tokens":9,"max_completion_tokens":9}`},
	} {
		for _, mode := range []registry.SamplingMode{registry.SamplingOverride, registry.SamplingDefault} {
			r := s.register(registry.Spec{Sampling: sampling(c.sampling), SamplingMode: mode})
			r.do(r.request(http.MethodPost, chatPath, c.body)).wantError(t, 400, "invalid_request")
			if up := s.model.Last(); up != nil {
				t.Fatalf("%s with %s went up as %s", c.body, c.sampling, up.Body)
			}
			r.wantTurns(0, registry.FailureClientError) // it was admitted
		}
	}
}

// A session may ask for more choices than the harness; the stream is whole when
// all of them are.
func TestChoicesOfTheSessionAreWaitedFor(t *testing.T) {
	s := newStack(t)
	two := s.register(registry.Spec{Sampling: sampling(`{"n":2}`)})
	got := two.chat("stream-no-done", streaming+`,"stream_options":{"include_usage":true}`)
	if got.err == nil || !strings.Contains(string(got.body), "upstream_invalid") {
		t.Errorf("one choice of two passed for the whole answer: %v\n%s", got.err, got.body)
	}
	two.wantTurns(0, registry.FailureUpstreamTruncated)
	one := s.register(registry.Spec{Sampling: sampling(`{"n":1}`)})
	if got := one.chat("stream-no-done", streaming+`,"stream_options":{"include_usage":true}`+`,"n":2`); got.err != nil {
		t.Errorf("the one choice is not taken for the whole answer: %v", got.err)
	}
	one.wantTurns(1)
}

// An override of a field that muxproxy edits as well leaves one of it.
func TestSamplingAndUsageShareStreamOptions(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct{ sampling, extra, want string }{
		{`{"stream_options":{"continuous_usage_stats":true}}`, ``, `"stream_options":{"continuous_usage_stats":true,"include_usage":true}`},
		{`{"stream_options":{"continuous_usage_stats":true}}`, `,"stream_options":{"x":1}`, `"stream_options":{"continuous_usage_stats":true,"include_usage":true}`},
		{`{"stream_options":{"include_usage":false}}`, ``, `"stream_options":{"include_usage":false}`},
		{`{"temperature":1}`, `,"stream_options":{"x":1}`, `"stream_options":{"x":1,"include_usage":true},"temperature":1`},
	} {
		body := `{"model":"openai","messages":[1],"stream":true` + c.extra + `}`
		want := `{"model":"openai","messages":[1],"stream":true,` + c.want + `}`
		if got := s.overridden(registry.Spec{Sampling: sampling(c.sampling)}, chatPath, body); got != want {
			t.Errorf("%s with %s went up as\n%s, want\n%s", body, c.sampling, got, want)
		}
	}
}

// Settings hold for calls admitted after they were changed.
func TestUpdatedSettingsHoldForTheNextCall(t *testing.T) {
	s := newStack(t)
	if err := s.upstreams.Put("other", upstream.Config{Replicas: []upstream.ReplicaConfig{{Name: "o0", URL: s.modelURL}}}); err != nil {
		t.Fatal(err)
	}
	r := s.register(registry.Spec{Model: "one"})
	r.chat("x", "")
	err := r.session.Update(func(spec *registry.Spec) error {
		spec.Model, spec.Upstream, spec.Sampling = "two", "other", sampling(`{"temperature":0}`)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.chat("x", "")
	sent := s.model.Last()
	if string(sent.Body) != `{"model":"two","messages":[{"role":"user","content":"hi"}],"temperature":0}` || sent.Header.Get("Authorization") != "" {
		t.Errorf("went up as %s with %v", sent.Body, sent.Header)
	}
	turns := r.turns()
	if len(turns) != 2 || turns[0].Upstream != "default" || turns[1].Upstream != "other" || turns[1].Replica != "o0" || turns[0].Model != "one" || turns[1].Model != "two" {
		t.Errorf("the turns do not say what happened: %+v", turns)
	}
}

func TestSessionOfAnUnknownUpstreamIsUnavailable(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{Upstream: "missing"})
	for _, got := range []answer{r.chat("openai", ""), r.chat("openai", streaming), r.do(r.request(http.MethodGet, "/v1/models", ""))} {
		got.wantError(t, 503, "upstream_unavailable")
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	r.wantTurns(0, registry.FailureConnection, registry.FailureConnection)
}

func TestLongOverridesKeepTheLengthRight(t *testing.T) {
	s := newStack(t)
	for _, n := range []int{1, 100, 10_000, 1_000_000} {
		name := strings.Repeat("m", n)
		body := fmt.Sprintf(`{"model":"a","messages":[{"role":"user","content":"%s"}]}`, strings.Repeat("x", n))
		if got := s.overridden(registry.Spec{Model: name}, chatPath, body); got != strings.Replace(body, `"a"`, `"`+name+`"`, 1) {
			t.Errorf("a model of %d bytes went up in a body of %d", n, len(got))
		}
		if sent := s.model.Last(); sent.ContentLength != int64(len(sent.Body)) {
			t.Errorf("announced %d, sent %d", sent.ContentLength, len(sent.Body))
		}
	}
}
