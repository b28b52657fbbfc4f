package upstream_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

func TestURLsAreJoined(t *testing.T) {
	for _, c := range []struct{ replica, path, query, want string }{
		{"http://h:8000", "/v1/chat/completions", "", "http://h:8000/v1/chat/completions"},
		{"http://h:8000/", "/v1/chat/completions", "", "http://h:8000/v1/chat/completions"},
		{"http://h:8000/v1", "/v1/chat/completions", "", "http://h:8000/v1/chat/completions"},
		{"http://h:8000/v1/", "/v1/chat/completions", "", "http://h:8000/v1/chat/completions"},
		{"https://h/api/openai", "/v1/chat/completions", "", "https://h/api/openai/chat/completions"},
		{"https://h/api/openai//", "/v1/models", "", "https://h/api/openai/models"},
		{"https://h/api/v1", "/v1/messages", "beta=true", "https://h/api/v1/messages?beta=true"},
		{"https://h/messages", "/v1/messages", "", "https://h/messages/messages"},
		{"https://h", "/v1/messages", "a=%2F&b&a=1", "https://h/v1/messages?a=%2F&b&a=1"},
		{"https://h/openai?api-version=7", "/v1/responses", "", "https://h/openai/responses?api-version=7"},
		{"https://h/openai?api-version=7", "/v1/responses", "x=1", "https://h/openai/responses?api-version=7&x=1"},
		{"https://h", "/tokenize", "", "https://h/tokenize"},
		{"https://h/v1", "/tokenize", "", "https://h/tokenize"},
		{"https://h/api/v1", "/detokenize", "", "https://h/api/detokenize"},
		{"https://h/api/openai", "/tokenize", "", "https://h/api/openai/tokenize"},
		{"https://h", "/v1/models/org%2Fname", "", "https://h/v1/models/org%2Fname"},
		{"https://h", "/v1/models/org/name", "", "https://h/v1/models/org/name"},
		{"https://h/a%20b", "/v1/models", "", "https://h/a%20b/models"},
		{"https://h", "/v1x/models", "", "https://h/v1x/models"},
		{"http://[::1]:8000", "/v1/models", "", "http://[::1]:8000/v1/models"},
	} {
		got, err := upstream.JoinURL(c.replica, c.path, c.query)
		if err != nil || got != c.want {
			t.Errorf("JoinURL(%q, %q, %q) = %q, %v; want %q", c.replica, c.path, c.query, got, err, c.want)
		}
	}
}

func TestInvalidConfigNamesTheField(t *testing.T) {
	one := []upstream.ReplicaConfig{{URL: "http://h"}}
	for _, c := range []struct {
		field  string
		config upstream.Config
	}{
		{"replicas", upstream.Config{}},
		{"replicas[1].url", upstream.Config{Replicas: []upstream.ReplicaConfig{{URL: "http://a"}, {URL: "b:80"}}}},
		{"replicas[0].url", replicas("")},
		{"replicas[0].url", replicas("ftp://h")},
		{"replicas[0].url", replicas("http://")},
		{"replicas[0].url", replicas("http://:80")},
		{"replicas[0].url", replicas("http://h/#x")},
		{"replicas[0].url", replicas("http://h/v1/chat/completions")},
		{"replicas[0].url", replicas("http://h/openai/chat/completions/")},
		{"replicas[0].url", replicas("http://h/v1/messages?beta=true")},
		{"replicas[0].url", replicas("http://user:hidden@h:port")},
		{"replicas[1].name", replicas("http://h/a", "http://h/b")},
		{"replicas[1].url", replicas("http://h", "http://h/v1/")},
		{"replicas[0].name", upstream.Config{Replicas: []upstream.ReplicaConfig{{Name: "a b", URL: "http://h"}}}},
		{"style", upstream.Config{Replicas: one, Style: "other"}},
		{"usage", upstream.Config{Replicas: one, Usage: "always"}},
		{"api_key", upstream.Config{Replicas: one, APIKey: "hidden\n"}},
		{"headers.a b", upstream.Config{Replicas: one, Headers: map[string]string{"a b": "hidden"}}},
		{"headers.X", upstream.Config{Replicas: one, Headers: map[string]string{"X": "hidden\r\nY: 1"}}},
		{"headers.x", upstream.Config{Replicas: one, Headers: map[string]string{"X": "hidden", "x": "hidden"}}},
		{"headers.transfer-encoding", upstream.Config{Replicas: one, Headers: map[string]string{"transfer-encoding": "chunked"}}},
	} {
		err := c.config.Validate()
		invalid, ok := errors.AsType[*upstream.InvalidError](err)
		if !ok || invalid.Field != c.field {
			t.Errorf("got %v, want an error of %s", err, c.field)
			continue
		}
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("error shows a credential: %v", err)
		}
		if err := upstream.NewSet(upstream.Options{}).Put("default", c.config); err == nil {
			t.Errorf("put accepts an invalid %s", c.field)
		}
	}
	if err := upstream.NewSet(upstream.Options{}).Put("a/b", replicas("http://h")); err == nil {
		t.Error("put accepts the name a/b")
	}
}

func TestListNeverShowsCredentials(t *testing.T) {
	set, _ := newUpstream(t, upstream.Options{}, upstream.Config{
		Replicas: []upstream.ReplicaConfig{{Name: "r1", URL: "http://hidden-user:hidden-password@h/v1"}},
		APIKey:   "hidden-key",
		Headers:  map[string]string{"x-tenant": "hidden-value", "host": "hidden-host"},
		Style:    upstream.StyleVLLM,
	})
	shown, err := json.Marshal(set.List())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(shown), "hidden") {
		t.Errorf("list shows a credential: %s", shown)
	}
	want := `[{"name":"default","style":"vllm","usage":"auto","headers":["Host","X-Tenant"],"has_api_key":true,"inflight":0,` +
		`"replicas":[{"name":"r1","url":"http://xxxxx@h/v1","state":"up","inflight":0}]}]`
	if string(shown) != want {
		t.Errorf("got  %s\nwant %s", shown, want)
	}
}

func FuzzJoinURL(f *testing.F) {
	f.Add("https://h/api", "/v1/models/a%2Fb", "x=1")
	f.Add("http://h", "/v1/models/100%", "")
	f.Add("http://[::1]:1/v1?k=v", "/v1/../\r\n?#", "a=b#c")
	f.Fuzz(func(t *testing.T, replica, path, query string) {
		joined, err := upstream.JoinURL(replica, "/"+path, query)
		if err != nil {
			return
		}
		u, err := url.ParseRequestURI(joined)
		if err != nil {
			if strings.ContainsFunc(query, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.ContainsFunc(replica, unicode.IsControl) {
				return // net/http gives no such query
			}
			t.Fatalf("JoinURL(%q, %q, %q) = %q, which is no URL: %v", replica, path, query, joined, err)
		}
		if base, err := url.ParseRequestURI(replica); err == nil && u.Host != base.Host {
			t.Errorf("JoinURL(%q, %q, %q) = %q, which is another host", replica, path, query, joined)
		}
	})
}
