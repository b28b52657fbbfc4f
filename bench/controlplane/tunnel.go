package controlplane

import (
	"crypto/rand"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Status is what a tunnel's record says about it.
type Status string

// The statuses. Prime's command line compares them without regard to case.
const (
	Pending      Status = "PENDING"
	Connected    Status = "CONNECTED"
	Disconnected Status = "DISCONNECTED"
	Expired      Status = "EXPIRED"
	Terminated   Status = "terminated" // deleted
)

// Terminal says whether the tunnel is over.
func (s Status) Terminal() bool { return s == Expired || s == Terminated }

// A Tunnel is a registration.
type Tunnel struct {
	ID            string
	Name          string
	LocalPort     int
	Labels        []string
	TeamID        string
	Status        Status
	CreatedAt     time.Time
	ConnectedAt   time.Time // zero before the first time
	TerminatedAt  time.Time // zero before
	ExpiresAt     time.Time
	BindingSecret string

	url       string
	key       string // whose it is
	run       string // the client's run id, while it is connected
	awaySince time.Time
}

// newID is a name that does as a host name's first label.
func newID() string { return "t-" + strings.ToLower(rand.Text()[:12]) }

func (t *Tunnel) end(s Status) {
	t.Status = s
	t.TerminatedAt = time.Now()
}

func (t *Tunnel) hostname() string {
	u, err := url.Parse(t.url)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func (t *Tunnel) has(labels []string) bool {
	for _, l := range labels {
		if !slices.Contains(t.Labels, l) {
			return false
		}
	}
	return true
}

// record is a tunnel as the API gives it out. What a client logs in with is
// shown once, in the answer to the creation.
type record struct {
	ID           string   `json:"tunnel_id"`
	Name         string   `json:"name,omitempty"`
	Hostname     string   `json:"hostname"`
	URL          string   `json:"url"`
	LocalPort    int      `json:"local_port"`
	Labels       []string `json:"labels"`
	HTTPUser     *string  `json:"http_user"`
	UserID       string   `json:"user_id,omitempty"`
	TeamID       *string  `json:"team_id"`
	Status       Status   `json:"status"`
	CreatedAt    string   `json:"created_at"`
	ConnectedAt  *string  `json:"connected_at,omitempty"`
	TerminatedAt *string  `json:"terminated_at,omitempty"`
	ExpiresAt    string   `json:"expires_at"`

	*credentials
}

type credentials struct {
	FRPToken      string `json:"frp_token"`
	BindingSecret string `json:"binding_secret"`
	ServerHost    string `json:"server_host"`
	ServerPort    int    `json:"server_port"`
}

func (t *Tunnel) record() record {
	r := record{
		ID: t.ID, Name: t.Name, Hostname: t.hostname(), URL: t.url, LocalPort: t.LocalPort, Labels: t.Labels,
		UserID: "user", Status: t.Status, CreatedAt: stamp(t.CreatedAt), ExpiresAt: stamp(t.ExpiresAt),
	}
	if t.TeamID != "" {
		r.TeamID = &t.TeamID
	}
	if !t.ConnectedAt.IsZero() {
		r.ConnectedAt = new(stamp(t.ConnectedAt))
	}
	if !t.TerminatedAt.IsZero() {
		r.TerminatedAt = new(stamp(t.TerminatedAt))
	}
	return r
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// creation is the body of a POST.
type creation struct {
	LocalPort int      `json:"local_port"`
	Name      string   `json:"name"`
	TeamID    string   `json:"teamId"`
	Labels    []string `json:"labels"`
	HTTPUser  string   `json:"http_user"`
}

// deletion is the body of a bulk DELETE.
type deletion struct {
	AllUsers bool     `json:"all_users"`
	IDs      []string `json:"tunnel_ids"`
	Labels   []string `json:"labels"`
	Status   string   `json:"status"`
	TeamID   string   `json:"teamId"`
	UserID   string   `json:"userId"`
}

// problem is the body of a refusal.
func problem(detail any) []byte {
	body, err := json.Marshal(map[string]any{"detail": detail})
	if err != nil {
		return nil
	}
	return body
}
