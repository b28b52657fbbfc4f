package controlplane_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/bench/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what any call is answered with.
type answer struct {
	status int
	header http.Header

	ID            string   `json:"tunnel_id"`
	URL           string   `json:"url"`
	Hostname      string   `json:"hostname"`
	Secret        string   `json:"binding_secret"`
	Token         string   `json:"frp_token"`
	Host          string   `json:"server_host"`
	Port          int      `json:"server_port"`
	Status        string   `json:"status"`
	Detail        any      `json:"detail"`
	Tunnels       []answer `json:"tunnels"`
	HasNext       bool     `json:"has_next"`
	Succeeded     []string `json:"succeeded"`
	Failed        []any    `json:"failed"`
	Reject        bool     `json:"reject"`
	RejectReason  string   `json:"reject_reason"`
	Unchange      bool     `json:"unchange"`
	ExpiresAt     string   `json:"expires_at"`
	TerminatedAt  string   `json:"terminated_at"`
	ConnectedAt   string   `json:"connected_at"`
	TunnelsListed int      `json:"total"`
}

// ask calls c as the holder of that key.
func ask(t *testing.T, c *controlplane.ControlPlane, key, method, path string, body any) answer {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(encoded))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header()}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return a
}

type object = map[string]any

func create(t *testing.T, c *controlplane.ControlPlane, more object) answer {
	t.Helper()
	body := object{"local_port": 8080}
	maps.Copy(body, more)
	return ask(t, c, "key", http.MethodPost, "/api/v1/tunnel", body)
}

// plugin asks as frps does.
func plugin(t *testing.T, c *controlplane.ControlPlane, op controlplane.Op, content object) answer {
	t.Helper()
	return ask(t, c, "", http.MethodPost, controlplane.PluginPath, object{"version": "0.1.0", "op": op, "content": content})
}
