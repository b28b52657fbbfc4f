// Package prime opens tunnels of Prime Intellect. A [Driver] registers each
// tunnel with the provider's control plane and connects it, with the
// credentials that the registration came with, to the provider's frps.
//
// A registration outlives the process that made it, so each is recorded in a
// ledger from before it is asked for until it is gone; [Driver.Run] deletes
// what killed processes have left there, and what could not be deleted, or was
// perhaps made without an answer, in this one.
//
// The control plane is asked about every tunnel from time to time, because the
// provider ends tunnels without closing their connection. Only its word that a
// tunnel is over ends it: that the control plane fails says nothing.
package prime

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

// DefaultBaseURL is where Prime's API is.
const DefaultBaseURL = "https://api.primeintellect.ai"

const (
	// headerLimit is frps' vhostHTTPTimeout as it comes.
	headerLimit = time.Minute
	// createTimeout is how long a tunnel may take to be made.
	createTimeout = time.Minute
	// callTimeout is that of Prime's own client.
	callTimeout = 30 * time.Second
	// deleteTimeout bounds a deletion, which must end even when nobody is left
	// to wait for it.
	deleteTimeout = 5 * time.Second
	pollInterval  = time.Minute
)

// Options configure a [Driver].
type Options struct {
	// APIKey is the account's key.
	APIKey string
	// BaseURL is the API's, with or without /api/v1; DefaultBaseURL when empty.
	BaseURL string
	// TeamID makes the tunnels the team's; empty is the account's own.
	TeamID string
	// TLS is how frps is verified. Nil encrypts without verifying, as Prime's
	// own client does.
	TLS *tls.Config
	// Ledger keeps the registrations on record. Nil keeps none, so that those of
	// a killed process stay until the provider expires them.
	Ledger *ledger.Ledger
	// PollInterval is the time between two questions about a tunnel, a minute
	// when zero. It is varied by a quarter.
	PollInterval time.Duration
	// Transport carries the API's calls; nil is one of net/http's own.
	Transport http.RoundTripper
	// Logger gets what nobody is told otherwise: faults of the control plane
	// while tunnels run, and what is cleaned up.
	Logger zerolog.Logger
}

// Driver opens tunnels of one account. It is safe for concurrent use.
type Driver struct {
	api      *client
	tls      *tls.Config
	ledger   *ledger.Ledger
	poll     time.Duration
	log      zerolog.Logger
	connect  connector
	logins   *frp.Logins
	instance string // this process, in names and labels
	kind     string // of the registrations in the ledger: one for each account

	closing sync.WaitGroup // deletions whose caller has left
	rest    leftovers
}

// New returns a driver; nothing is asked of the provider yet.
func New(o Options) (*Driver, error) {
	if o.APIKey == "" {
		return nil, errors.New("no API key")
	}
	base := strings.TrimSuffix(strings.TrimRight(cmp.Or(o.BaseURL, DefaultBaseURL), "/"), "/api/v1")
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("base URL %q is no http or https URL", base)
	}
	account := sha256.Sum256([]byte(base + "\n" + o.APIKey))
	return &Driver{
		api:      newClient(base, o.APIKey, o.TeamID, o.Transport),
		tls:      o.TLS,
		ledger:   o.Ledger,
		poll:     cmp.Or(o.PollInterval, pollInterval),
		log:      o.Logger,
		connect:  connectFRP,
		logins:   frp.NewLogins(0),
		instance: strings.ToLower(rand.Text()[:10]),
		kind:     "prime-" + hex.EncodeToString(account[:6]),
		rest:     leftovers{wake: make(chan struct{}, 1), all: make(map[string]leftover)},
	}, nil
}

// Name is "prime".
func (d *Driver) Name() string { return "prime" }

// HeaderLimit is how long the provider's frps waits for response headers.
func (d *Driver) HeaderLimit() time.Duration { return headerLimit }

// detached is a context that ends after limit, and otherwise only grace after
// ctx does: for what has to be finished whoever waits for it.
func detached(ctx context.Context, limit, grace time.Duration) (context.Context, context.CancelFunc) {
	free, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(free, func() { timer.Stop() })
	})
	return free, func() {
		stop()
		cancel()
	}
}
