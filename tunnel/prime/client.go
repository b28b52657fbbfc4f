package prime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	path = "/api/v1/tunnel"
	// maxAnswer is far above a page of a hundred tunnels.
	maxAnswer = 4 << 20
	perPage   = 100
	// maxPages bounds a list that says for ever that there is more.
	maxPages = 1000
)

// client speaks the control plane's API, one attempt a call.
type client struct {
	base, key, team string
	http            *http.Client
}

func newClient(base, key, team string, transport http.RoundTripper) *client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: 10 * time.Second,
			IdleConnTimeout:     30 * time.Second,
			MaxIdleConnsPerHost: 16,
		}
	}
	return &client{base: base, key: key, team: team, http: &http.Client{Transport: transport}}
}

// registration is a tunnel as the control plane describes it. What to log in
// to frps with is there in the answer to its creation only.
type registration struct {
	ID         string   `json:"tunnel_id"`
	Name       string   `json:"name"`
	URL        string   `json:"url"`
	Labels     []string `json:"labels"`
	Status     string   `json:"status"`
	ExpiresAt  moment   `json:"expires_at"`
	FRPToken   string   `json:"frp_token"`
	Secret     string   `json:"binding_secret"`
	ServerHost string   `json:"server_host"`
	ServerPort int      `json:"server_port"`
}

const defaultServerPort = 7000

// usable says what is missing to connect by.
func (r *registration) usable() error {
	u, err := url.Parse(r.URL)
	switch {
	case r.ID == "":
		return errors.New("no tunnel_id")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("url %q is no http or https URL", r.URL)
	case r.ServerHost == "":
		return errors.New("no server_host")
	case r.ServerPort < 0 || r.ServerPort > 65535:
		return fmt.Errorf("server_port %d", r.ServerPort)
	}
	return nil
}

// over says whether the provider has ended the tunnel. Statuses are known in
// both cases, and a deleted tunnel's record stays readable.
func (r *registration) over() bool {
	return slices.Contains([]string{"expired", "terminated", "deleted"}, strings.ToLower(r.Status))
}

// moment is a time, UTC where it does not say, and zero where it is no time:
// what expires when is not worth losing a tunnel over.
type moment struct{ time.Time }

// UnmarshalJSON takes everything.
func (m *moment) UnmarshalJSON(text []byte) error {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(`"`+layout+`"`, string(text)); err == nil {
			m.Time = t
			break
		}
	}
	return nil
}

// create registers a tunnel, for as long as ctx allows: an answer that nobody
// waited for may well be a tunnel. Unless the error is a *notMadeError, a tunnel may have
// been made.
func (c *client) create(ctx context.Context, name string, port int, labels []string) (*registration, error) {
	in := struct {
		LocalPort int      `json:"local_port"`
		Name      string   `json:"name"`
		TeamID    string   `json:"teamId,omitempty"`
		Labels    []string `json:"labels"`
	}{port, name, c.team, labels}
	var out registration
	if err := c.call(ctx, http.MethodPost, path, in, &out); err != nil {
		return nil, err
	}
	if out.ID == "" {
		return nil, errors.New("answer without a tunnel_id")
	}
	if out.ServerPort == 0 {
		out.ServerPort = defaultServerPort
	}
	return &out, nil
}

func (c *client) get(ctx context.Context, id string) (*registration, error) {
	var out registration
	if err := c.ask(ctx, http.MethodGet, path+"/"+url.PathEscape(id), &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// delete removes a tunnel. One that is not there is no error.
func (c *client) delete(ctx context.Context, id string) error {
	err := c.ask(ctx, http.MethodDelete, path+"/"+url.PathEscape(id), nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

// list is every tunnel with this label.
func (c *client) list(ctx context.Context, label string) ([]registration, error) {
	var all []registration
	for page := range maxPages {
		query := url.Values{"page": {strconv.Itoa(page + 1)}, "perPage": {strconv.Itoa(perPage)}, "labels": {label}}
		if c.team != "" {
			query.Set("teamId", c.team)
		}
		var out struct {
			Tunnels []registration `json:"tunnels"`
			HasNext bool           `json:"has_next"`
		}
		if err := c.ask(ctx, http.MethodGet, path+"?"+query.Encode(), &out); err != nil {
			return nil, err
		}
		all = append(all, out.Tunnels...)
		if !out.HasNext || len(out.Tunnels) == 0 {
			break
		}
	}
	return all, nil
}

// ask makes a request that may be given up at any time.
func (c *client) ask(ctx context.Context, method, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.call(ctx, method, path, nil, out)
}

// call makes one request. The answer is decoded into out unless that is nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return &notMadeError{err}
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "muxproxy")
	response, err := c.http.Do(request)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return &notMadeError{err}
		}
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return c.refusal(response, answer)
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("answer %d is not what it should be: %w", response.StatusCode, err)
	}
	return nil
}
