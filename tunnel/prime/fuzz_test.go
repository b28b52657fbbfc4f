package prime_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

// Whatever the control plane answers, a tunnel comes of it that has a URL, or
// an error that does not show the key.
func FuzzAnswerToACreation(f *testing.F) {
	f.Add(201, `{"tunnel_id":"t-1","url":"https://t-1.tunnel.test","server_host":"frps.test","expires_at":"2030-01-01T00:00:00Z"}`, "")
	f.Add(201, `{"tunnel_id":"t-1","url":"https://t-1.tunnel.test","server_host":"frps.test","expires_at":7,"server_port":-1}`, "")
	f.Add(400, `{"detail":"maximum number of tunnels"}`, "")
	f.Add(422, `{"detail":[{"loc":["body"],"msg":"secret-key"}]}`, "")
	f.Add(429, "secret-key", "1e300")
	f.Add(429, "", "Wed, 21 Oct 2037 07:28:00 GMT")
	f.Fuzz(func(t *testing.T, status int, body, retryAfter string) {
		if status < 200 || status > 999 {
			return // net/http's to refuse
		}
		d, err := prime.New(prime.Options{APIKey: "secret-key", Transport: inProcess{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				return
			}
			w.Header().Set("Retry-After", retryAfter)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})}})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{Driver: d, links: make(map[string]*link)}
		d.Connect(b.login)
		opened, err := d.Open(t.Context(), local)
		switch limited, ok := err.(*tunnel.RateLimitError); { //nolint:errorlint // the pool gets it unwrapped
		case err == nil && !strings.HasPrefix(opened.URL(), "http"):
			t.Errorf("got a tunnel at %q", opened.URL())
		case err == nil:
			_ = opened.Close(t.Context())
		case strings.Contains(err.Error(), "secret-key"):
			t.Errorf("the key is in %q", err)
		case ok && limited.RetryAfter < 0:
			t.Errorf("retry after %s", limited.RetryAfter)
		}
	})
}
