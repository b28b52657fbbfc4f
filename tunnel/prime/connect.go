package prime

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/frp"
)

// refusalPatience is how long frps may refuse a tunnel that the control plane
// says is alive.
const refusalPatience = time.Minute

// connector logs in to frps as the registration says. It makes one attempt.
type connector func(ctx context.Context, d *Driver, r *registration, serve func(net.Conn)) (tunnel.Tunnel, error)

// connectFRP connects as Prime's own client does: the tunnel's id is the user,
// the name of its proxy and its subdomain. Like that client it sends no pings,
// with which frps would cut the calls of a tunnel that is over but still works.
func connectFRP(ctx context.Context, d *Driver, r *registration, serve func(net.Conn)) (tunnel.Tunnel, error) {
	refused := refusals{driver: d, id: r.ID}
	return frp.Connect(ctx, frp.ClientOptions{
		ServerAddr: net.JoinHostPort(r.ServerHost, strconv.Itoa(r.ServerPort)),
		Token:      r.FRPToken,
		User:       r.ID,
		Metas:      map[string]string{"binding_secret": r.Secret},
		Proxy:      frp.Proxy{Name: r.ID, Type: frp.TypeHTTP, Subdomain: r.ID},
		URL:        r.URL,
		TLS:        d.frpsTLS(r.ServerHost),
		Logins:     d.logins,
		Refused:    refused.judge,
		Ping:       -1,
		Logger:     d.log.With().Str("tunnel", r.ID).Logger(),
	}, serve)
}

// frpsTLS is the configured TLS, for this host.
func (d *Driver) frpsTLS(host string) *tls.Config {
	if d.tls == nil {
		return &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: host,
			InsecureSkipVerify: true, // as documented at Options.TLS
		}
	}
	c := d.tls.Clone()
	c.ServerName = cmp.Or(c.ServerName, host)
	return c
}

// refusals judges what frps refuses to a tunnel that was connected before.
type refusals struct {
	driver *Driver
	id     string

	mu          sync.Mutex
	first, last time.Time // of a row of them
}

// judge asks the control plane. If the registration is over, so is the tunnel;
// if frps goes on refusing a living one, its credentials have changed and only
// a new registration helps. While the control plane cannot say, it is alive.
func (r *refusals) judge(ctx context.Context, refusal error) error {
	over, err := r.driver.over(ctx, r.id)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.last) > refusalPatience {
		r.first = now
	}
	r.last = now
	switch {
	case over:
		return tunnel.ErrExpired
	case err == nil && now.Sub(r.first) > refusalPatience:
		return &tunnel.LostError{Reason: fmt.Sprintf("refused although registered: %v", refusal)}
	}
	return nil
}

// over asks the control plane about a tunnel. Everything but its clear word
// means no.
func (d *Driver) over(ctx context.Context, id string) (bool, error) {
	r, err := d.api.get(ctx, id)
	switch {
	case isNotFound(err):
		return true, nil
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			d.log.Debug().Err(err).Str("tunnel", id).Msg("status of a tunnel unknown, taken as alive")
		}
		return false, err
	case r.ID != id:
		return false, fmt.Errorf("answer about %q", r.ID)
	}
	return r.over(), nil
}
