// Package hook calls the URLs that a session names: the simulator of its user, and
// stop conditions that are decided elsewhere.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// maxAnswer is how long a hook's answer may be, in bytes.
const maxAnswer = 16 << 20

// Options configure a [Client]. The zero value is usable.
type Options struct {
	Hosts Hosts // that may be called
	// Dial opens connections; the system's when nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client calls hooks. It is safe for concurrent use.
type Client struct {
	hosts Hosts
	http  *http.Client
}

// Error is a hook that could not be asked, or whose answer is of no use. Its text
// does not name the URL, which is the session's own affair and not its harness's.
type Error struct {
	Hook  string // what it is, such as "stop condition judge"
	Cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Hook + " failed: " + e.Cause.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes a client. It keeps connections until [Client.Close].
func New(o Options) *Client {
	dial := o.Dial
	if dial == nil {
		dial = dialer()
	}
	return &Client{hosts: o.Hosts, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 256, IdleConnTimeout: 30 * time.Second},
		// A redirect would lead past the check of the host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// dialer never takes another machine for localhost, whatever a resolver says.
func dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	anywhere := &net.Dialer{Timeout: 10 * time.Second}
	here := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, addr string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(addr); err != nil || !at.Addr().IsLoopback() {
			return errors.New("localhost is not this machine's loopback")
		}
		return nil
	}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(addr); err == nil && host == "localhost" {
			return here.DialContext(ctx, network, addr)
		}
		return anywhere.DialContext(ctx, network, addr)
	}
}

// Check says why a hook must not be called at this URL.
func (c *Client) Check(url string) error { return c.hosts.Check(url) }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends question to the hook as JSON and reads its JSON answer, within the
// timeout. The error is an *[Error].
func (c *Client) Post(ctx context.Context, hook, url string, timeout time.Duration, question, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	err := c.post(ctx, url, question, answer)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = withoutAddress(err)
	}
	return &Error{hook, err}
}

func (c *Client) post(ctx context.Context, url string, question, answer any) error {
	if err := c.Check(url); err != nil {
		return err
	}
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return fmt.Errorf("it answered with status %d", res.StatusCode)
	case len(raw) > maxAnswer:
		return fmt.Errorf("its answer is over %d bytes", maxAnswer)
	}
	err = json.Unmarshal(raw, answer)
	if shape, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return misshapen(shape)
	}
	if err != nil {
		return fmt.Errorf("its answer: %w", err)
	}
	return nil
}

// misshapen says in the words of JSON what encoding/json says in those of Go.
func misshapen(err *json.UnmarshalTypeError) error {
	kind, _, _ := strings.Cut(err.Value, " ") // of a number the rest is the number
	if err.Field == "" {
		return fmt.Errorf("its answer is no object but of type %s", kind)
	}
	return fmt.Errorf("its answer has a %q of type %s", err.Field, kind)
}

// withoutAddress is what net/http's client says, without the URL and the addresses
// behind it.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		err = errors.New("look up its host: " + name.Err)
	}
	return err
}
