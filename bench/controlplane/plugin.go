package controlplane

import (
	"encoding/json"
	"net/http"
	"time"
)

// What frps tells a client whose login is refused.
const (
	reasonUnknown  = "tunnel not registered"
	reasonInactive = "tunnel is inactive"
	reasonSecret   = "invalid binding secret" //nolint:gosec // a message
	reasonProxy    = "proxy does not match tunnel"
)

// question is what frps asks its plugin.
type question struct {
	Op      Op              `json:"op"`
	Content json.RawMessage `json:"content"`
}

type login struct {
	User  string            `json:"user"`
	Metas map[string]string `json:"metas"`
	RunID string            `json:"run_id"`
}

// of is what every operation but Login says.
type of struct {
	User struct {
		User  string            `json:"user"`
		Metas map[string]string `json:"metas"`
		RunID string            `json:"run_id"`
	} `json:"user"`
	ProxyName string `json:"proxy_name"`
	ProxyType string `json:"proxy_type"`
	Subdomain string `json:"subdomain"`
}

// plugin answers frps.
func (c *ControlPlane) plugin(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil {
		answer(w, http.StatusBadRequest, problem(err.Error()))
		return
	}
	f := c.fault(q.Op)
	c.count(q.Op)
	if f != nil && !f.Late && f.serve(w, r) {
		return
	}
	refusal, err := c.judge(q)
	if err != nil {
		answer(w, http.StatusBadRequest, problem(err.Error()))
		return
	}
	if f != nil && f.Late && f.serve(w, r) {
		return
	}
	if refusal != "" {
		verdict := encode(http.StatusOK, map[string]any{"reject": true, "reject_reason": refusal})
		answer(w, verdict.status, verdict.body)
		return
	}
	answer(w, http.StatusOK, []byte(`{"reject":false,"unchange":true}`))
}

// judge says why frps must refuse, "" if it need not.
func (c *ControlPlane) judge(q question) (refusal string, err error) {
	if q.Op == Login {
		var l login
		if err := json.Unmarshal(q.Content, &l); err != nil {
			return "", err
		}
		return c.login(l), nil
	}
	var o of
	if err := json.Unmarshal(q.Content, &o); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	t, ok := c.tunnels[o.User.User]
	switch {
	case !ok:
		return reasonUnknown, nil
	case q.Op == NewProxy:
		return t.serve(o), nil
	case q.Op == CloseProxy:
		t.leave(o)
	case q.Op == Ping && t.Status.Terminal():
		return reasonInactive, nil
	}
	// A work connection of a tunnel that is over is let through: the provider
	// looks at logins, so that a connected tunnel outlives its registration.
	return "", nil
}

func (c *ControlPlane) login(l login) (refusal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	t, ok := c.tunnels[l.User]
	switch {
	case !ok:
		refusal = reasonUnknown
	case t.Status.Terminal():
		refusal = reasonInactive
	case l.Metas["binding_secret"] != t.BindingSecret:
		refusal = reasonSecret
	}
	if refusal != "" {
		c.counts.LoginsRefused++
	}
	return refusal
}

// serve takes the tunnel's one proxy, which bears its name twice: frpc puts
// the user in front of it.
func (t *Tunnel) serve(o of) (refusal string) {
	if t.Status.Terminal() {
		return reasonInactive
	}
	if o.ProxyType != "http" || o.Subdomain != t.ID || o.ProxyName != t.ID+"."+t.ID {
		return reasonProxy
	}
	t.Status, t.run = Connected, o.User.RunID
	if t.ConnectedAt.IsZero() {
		t.ConnectedAt = time.Now()
	}
	return ""
}

// leave notes that the client is gone, unless it has come back with another
// session already.
func (t *Tunnel) leave(o of) {
	if t.Status == Connected && t.run == o.User.RunID {
		t.Status, t.run, t.awaySince = Disconnected, "", time.Now()
	}
}
