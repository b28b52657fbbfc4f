package prime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

const (
	// label is on every registration that muxproxy makes.
	label = "muxproxy"
	// createGrace is how long an answer is waited for when nobody wants the
	// tunnel any more: with its id, what was made can be deleted at once.
	createGrace = 5 * time.Second
	// logins is how often the first login is tried before the registration is
	// given up: frps or its look at a new registration may be a moment late.
	logins          = 6
	loginTimeout    = 10 * time.Second
	loginBackoff    = 200 * time.Millisecond
	loginMaxBackoff = 5 * time.Second
)

// Open registers a tunnel and connects it. A creation that may have been
// carried out is never repeated; what it perhaps made is left to [Driver.Run].
func (d *Driver) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if l.Resume != "" {
		return nil, &tunnel.ConfigError{Err: errors.New("a Prime tunnel cannot be resumed")}
	}
	made, err := d.register(ctx, l)
	if err != nil {
		return nil, err
	}
	forward, err := d.login(ctx, made, l.Serve)
	if err != nil {
		d.remove(ctx, made.ID)
		return nil, err
	}
	return d.newTunnel(ctx, made, forward), nil
}

// register makes the registration and puts it on record: at first by the name
// that it is to get, in case the process dies before the answer.
func (d *Driver) register(ctx context.Context, l tunnel.Local) (*registration, error) {
	name := fmt.Sprintf("%s-%s-%s", label, d.instance, strings.ToLower(rand.Text()[:10]))
	d.record(d.kind+creation, name)
	calling, done := detached(ctx, createTimeout, createGrace)
	defer done()
	made, err := d.api.create(calling, name, localPort(l.Addr), []string{label, label + "-" + d.instance})
	if err != nil {
		if _, certain := errors.AsType[*notMadeError](err); certain {
			d.forget(d.kind+creation, name)
		} else {
			d.leave(d.own(d.kind+creation, name))
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, openError(err)
	}
	d.record(d.kind, made.ID)
	d.forget(d.kind+creation, name)
	switch unusable := made.usable(); {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case unusable != nil:
		err = &tunnel.TransientError{Err: fmt.Errorf("create tunnel: %w", unusable)}
	default:
		return made, nil
	}
	d.remove(ctx, made.ID)
	return nil, err
}

// localPort is what a registration shows. Nothing connects to it, and there may
// be none, but the control plane wants one.
func localPort(addr string) int {
	const some = 8080
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return some
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return some
	}
	return n
}

// login connects the tunnel to frps. Whatever the refusal, the next creation
// comes with other credentials, so that it is never final.
func (d *Driver) login(ctx context.Context, r *registration, serve func(net.Conn)) (tunnel.Tunnel, error) {
	backoff := loginBackoff
	for attempt := 1; ; attempt++ {
		trying, cancel := context.WithTimeout(ctx, loginTimeout)
		forward, err := d.connect(trying, d, r, serve)
		cancel()
		if err == nil {
			return forward, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if attempt == logins {
			return nil, &tunnel.TransientError{Err: fmt.Errorf("log in to %s %d times: %s", r.ServerHost, logins, err.Error())}
		}
		if err := tunnel.Pause(ctx, backoff/2+mathrand.N(backoff)); err != nil { //nolint:gosec // not for secrecy
			return nil, err
		}
		backoff = min(2*backoff, loginMaxBackoff)
	}
}

// remove deletes a registration and its record, whoever still waits for it. If
// that fails or takes too long it is left to Run.
func (d *Driver) remove(ctx context.Context, id string) {
	deleting, done := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer done()
	if err := d.api.delete(deleting, id); err != nil {
		d.log.Warn().Err(err).Str("tunnel", id).Msg("deletion of a tunnel failed, to be tried again")
		d.leave(d.own(d.kind, id))
		return
	}
	d.forget(d.kind, id)
}

// record puts something on record. Without it a tunnel is still worth having:
// the provider expires what is left of it.
func (d *Driver) record(kind, id string) {
	if err := d.ledger.Record(kind, id, nil); err != nil {
		d.log.Warn().Err(err).Msg("ledger not updated")
	}
}

// forget takes something that is gone off the record.
func (d *Driver) forget(kind, id string) {
	if err := d.ledger.Forget(kind, id); err != nil {
		d.log.Warn().Err(err).Msg("ledger not updated")
	}
}
