package proxy_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// R65, R66, L59: the secret is taken from where clients put it.
func TestSecretIsReadFromEveryCarrier(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	for _, c := range []struct {
		header string // of the form name: value, lines divided by \n
		status int
	}{
		{"Authorization: Bearer SECRET", 200},
		{"authorization: bearer SECRET", 200},
		{"AUTHORIZATION: BEARER SECRET", 200},
		{"Authorization: bEaReR    SECRET", 200},
		{"Authorization: Bearer \t SECRET", 200},
		{"Authorization: Bearer\tSECRET", 200},
		{"Authorization:Bearer SECRET  \t", 200},
		{"Authorization:  \t Bearer SECRET", 200},
		{"x-api-key: SECRET", 200},
		{"X-Api-Key: \tSECRET ", 200},
		{"api-key: SECRET", 200},
		{"Authorization: Basic dTpw\nx-api-key: SECRET", 200},
		{"Authorization: Bearer \nx-api-key: SECRET", 200},
		{"Authorization: \napi-key: SECRET", 200},
		{"x-api-key: \napi-key: SECRET", 200},
		{"Authorization: Bearer SECRET\nx-api-key: other", 200},

		{"", 401},
		{"Authorization: SECRET", 401},
		{"Authorization: BearerSECRET", 401},
		{"Authorization: Basic SECRET", 401},
		{"Authorization: Bearer: SECRET", 401},
		{"Authorization: Bearer SECRET x", 401},
		{"Authorization: Bearer x SECRET", 401},
		{"Authorization: Bearer SECRETx", 401},
		{"Authorization: Bearer xSECRET", 401},
		{"Authorization: Bearer \"SECRET\"", 401},
		{"x-api-key: Bearer SECRET", 401},
		{"x-goog-api-key: SECRET", 401},
		{"Cookie: api-key=SECRET", 401},
		{"Proxy-Authorization: Bearer SECRET", 401},
		{"Authorization: Bearer other\nx-api-key: SECRET", 401}, // two credentials: the first counts
	} {
		for _, target := range []string{"GET /v1/models", "POST " + chatPath} {
			body := chatBody("openai", "")
			head := target + " HTTP/1.1\nHost: x\nContent-Length: " + itoa(len(body))
			if c.header != "" {
				head += "\n" + c.header
			}
			got := s.raw(strings.ReplaceAll(head, "SECRET", r.secret), body)
			if got.StatusCode != c.status {
				t.Errorf("%s with %q: status %d, want %d", target, c.header, got.StatusCode, c.status)
			}
		}
	}
	upper := s.raw("GET /v1/models HTTP/1.1\nHost: x\nAuthorization: Bearer "+strings.ToUpper(r.secret), "")
	upper.wantError(t, 401, "invalid_api_key")
	if got := s.raw("GET /v1/models?key="+r.secret+" HTTP/1.1\nHost: x", ""); got.StatusCode != 401 {
		t.Errorf("in the query: status %d, want 401", got.StatusCode)
	}
}

// L56: an unknown secret is told the same as none, and before anything else.
func TestUnknownSecretIsRefusedAlike(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	want := ""
	for _, secret := range []string{"", "x", "sk-proj-0123456789", strings.Repeat("a", 4000), "mxp_" + strings.Repeat("A", 26), r.session.ID(), r.secret[:len(r.secret)-1]} {
		for _, body := range []string{chatBody("openai", ""), "not json", `{"model":"openai"}`} {
			req := r.request(http.MethodPost, chatPath, body)
			req.Header.Set("Authorization", "Bearer "+secret)
			got := s.do(req)
			got.wantError(t, 401, "invalid_api_key")
			if want == "" {
				want = string(got.body)
			}
			if string(got.body) != want || got.Header.Get("X-Should-Retry") != "false" || got.Header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%.20q: header %v, body %s, want %s", secret, got.Header, got.body, want)
			}
		}
	}
	req := r.request(http.MethodPost, "/v1/messages", "{}")
	req.Header.Set("Authorization", "Bearer x")
	if got := s.do(req); got.StatusCode != 401 || !strings.HasPrefix(string(got.body), `{"type":"error","error":{"type":"authentication_error","message":"`) {
		t.Errorf("messages: %d %s", got.StatusCode, got.body)
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n)
	}
}

// L41: an ended session is told apart from an unknown one, with the reason.
func TestEndedSecretIsGoneWithItsReason(t *testing.T) {
	s := newStack(t)
	for _, purge := range []bool{false, true} {
		r := s.register(registry.Spec{})
		if _, err := s.registry.End(t.Context(), r.session.ID(), registry.EndOptions{Reason: "lease_expired", Purge: purge}); err != nil {
			t.Fatal(err)
		}
		for _, got := range []answer{r.chat("openai", ""), r.chat("openai", streaming), r.do(r.request(http.MethodGet, "/v1/models", ""))} {
			got.wantError(t, 410, "session_ended")
			if !strings.Contains(string(got.body), "lease_expired") || got.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("header %v, body %s", got.Header, got.body)
			}
		}
	}
	if n := len(s.model.Requests()); n != 0 {
		t.Errorf("%d requests went up, want none", n)
	}
}

func TestRotatedSecretIsUnknownAtOnce(t *testing.T) {
	s := newStack(t)
	r := s.register(registry.Spec{})
	r.chat("openai", "")
	next, err := r.session.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	r.chat("openai", "").wantError(t, 401, "invalid_api_key")
	r.secret = next
	if got := r.chat("openai", ""); got.StatusCode != 200 {
		t.Errorf("new secret: %d %s", got.StatusCode, got.body)
	}
	r.wantTurns(2)
}

func TestSecretEndsAsUnknownWithItsTombstone(t *testing.T) {
	bubble(t, func(s *stack) {
		stop := s.run()
		defer stop()
		r := s.register(registry.Spec{})
		if _, err := s.registry.End(s.t.Context(), r.session.ID(), registry.EndOptions{}); err != nil {
			s.t.Fatal(err)
		}
		r.chat("openai", "").wantError(s.t, 410, "session_ended")
		pass(2 * time.Hour)
		r.chat("openai", "").wantError(s.t, 401, "invalid_api_key")
	})
}

// R64: whatever a client does with its secret, it does not go up.
func TestSecretNeverGoesUp(t *testing.T) {
	for _, key := range []string{upstreamKey, ""} {
		s := newStack(t, func(s *settings) { s.upstream.APIKey = key })
		if key == "" { // newStack gives one
			s.withoutKey()
		}
		r := s.register(registry.Spec{})
		for _, path := range []string{chatPath, "/v1/models", "/v1/embeddings", "/v1/messages/count_tokens"} {
			for _, query := range []string{"", "?key=SECRET", "?a=1&key=SECRET&b=2", "?api_key=SECRET", "?a=1&access_token=SECRET"} {
				for _, header := range []string{
					"Authorization: Bearer SECRET", "x-api-key: SECRET", "api-key: SECRET",
					"Authorization: Bearer SECRET\nx-api-key: SECRET\napi-key: SECRET\nProxy-Authorization: Bearer SECRET\nCookie: k=SECRET",
					"Authorization: Bearer SECRET\nAuthorization: Bearer SECRET\nX-Goog-Api-Key: SECRET\nX-Request-Id: SECRET\nUser-Agent: a/SECRET\nOpenai-Key: a, SECRET",
				} {
					method, body := "POST", chatBody("openai", "")
					if path == "/v1/models" {
						method, body = "GET", ""
					}
					s.model.Forget()
					head := method + " " + path + query + " HTTP/1.1\nHost: x\n" + header + "\nContent-Length: " + itoa(len(body))
					got := s.raw(strings.ReplaceAll(head, "SECRET", r.secret), body)
					sent := s.model.Last()
					if sent == nil {
						t.Errorf("%s: status %d and nothing went up", head, got.StatusCode)
						continue
					}
					if strings.Contains(string(sent.Head), r.secret) || strings.Contains(string(sent.Body), r.secret) {
						t.Errorf("key %q: the secret went up:\n%s", key, sent.Head)
					}
					credentials := len(sent.Header["Authorization"]) + len(sent.Header["X-Api-Key"]) + len(sent.Header["Api-Key"])
					if want := min(len(key), 1); credentials != want {
						t.Errorf("key %q: %d credentials went up, want %d:\n%s", key, credentials, want, sent.Head)
					}
					got.wantSecretless(t, r.secret)
				}
			}
		}
		s.model.Forget()
		owner := s.register(registry.Spec{Model: "m"})
		s.raw("GET /v1/models/"+r.secret+" HTTP/1.1\nHost: x\nx-api-key: "+r.secret, "").wantError(t, 404, "not_found")
		s.raw("GET /v1/models/"+owner.secret+" HTTP/1.1\nHost: x\nx-api-key: "+owner.secret, "").wantError(t, 404, "not_found")
		if n := len(s.model.Requests()); n != 0 || strings.Contains(s.logs.String(), owner.secret) {
			t.Errorf("a secret in the path: %d requests went up, logged\n%s", n, linesWith(s.logs.String(), owner.secret))
		}
		if logs := s.logs.String(); strings.Contains(logs, r.secret) {
			t.Errorf("the secret is in the log:\n%s", linesWith(logs, r.secret))
		}
	}
}
