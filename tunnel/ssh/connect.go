package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/socket"
)

// deniedError says that the server does not listen on the port.
type deniedError struct {
	addr string // where it was asked to listen
	port int    // 0 was any
}

// Error names the settings of sshd that can be the reason.
func (e *deniedError) Error() string {
	if e.port == 0 {
		return fmt.Sprintf("the SSH server does not listen for this user on %s: see AllowTcpForwarding, DisableForwarding and PermitListen of sshd_config, and permitlisten and restrict in authorized_keys", e.addr)
	}
	return fmt.Sprintf("the SSH server does not listen on %s: the port may be taken, perhaps by an earlier connection that it takes for alive", e.addr)
}

// connect makes a connection whose far end listens on the port, 0 for any. Its
// error is a *deniedError or one of package tunnel's; then nothing is left.
func (d *Driver) connect(ctx context.Context, port int) (*session, error) {
	select {
	case d.logins <- struct{}{}:
		defer func() { <-d.logins }()
	case <-ctx.Done():
		return nil, transient(ctx, "connect", ctx.Err())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.ConnectTimeout,
		fmt.Errorf("no SSH connection within %s", d.o.ConnectTimeout))
	defer cancel()
	login, err := d.login(ctx)
	if err != nil {
		return nil, err
	}
	defer login.close()
	dialer := net.Dialer{Control: socket.ShortQueue}
	conn, err := dialer.DialContext(ctx, "tcp", d.o.Addr)
	if err != nil {
		return nil, transient(ctx, "connect", err)
	}
	l := newLink(conn)
	// The library takes no context: what it waits for ends with the deadline.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	s, err := d.handshake(ctx, l, login, port)
	if err == nil && !stop() {
		err = transient(ctx, "connect", context.Cause(ctx))
	}
	if err != nil {
		stop()
		_ = l.Close()
		return nil, err
	}
	return s, nil
}

// transient is the error of an attempt that may work later; when it was given
// up, the reason is why.
func transient(ctx context.Context, verb string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &tunnel.TransientError{Err: fmt.Errorf("%s to the SSH server: %w", verb, err)}
}

// handshake logs in over the link and has the server listen.
func (d *Driver) handshake(ctx context.Context, l *link, login *login, port int) (*session, error) {
	conn, channels, requests, err := ssh.NewClientConn(l, d.o.Addr, login.config(d.o.User))
	switch {
	case err == nil:
	case login.hostKey != nil:
		return nil, &tunnel.ConfigError{Err: login.hostKey}
	case login.asked && !l.failed():
		// The library says the same of a connection that broke meanwhile.
		return nil, &tunnel.AuthError{Err: err}
	default:
		return nil, transient(ctx, "log in", err)
	}
	client := ssh.NewClient(conn, channels, requests)
	s := &session{
		client: client, link: l, keepalive: d.o.Keepalive,
		incoming: client.HandleChannelOpen("forwarded-tcpip"),
	}
	if s.port, err = listen(client, d.o.RemoteHost, port); err != nil {
		_ = l.Close()
		_ = client.Wait()
		if _, ok := errors.AsType[*deniedError](err); ok {
			return nil, err
		}
		return nil, transient(ctx, "forward", err)
	}
	return s, nil
}

// listen asks the server to listen, and returns the port.
func listen(client *ssh.Client, host string, port int) (int, error) {
	request := struct {
		Host string
		Port uint32
	}{host, uint32(port)}
	ok, answer, err := client.SendRequest("tcpip-forward", true, ssh.Marshal(&request))
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, &deniedError{addr: net.JoinHostPort(host, strconv.Itoa(port)), port: port}
	case port != 0:
		return port, nil
	}
	var given struct{ Port uint32 }
	if err := ssh.Unmarshal(answer, &given); err != nil {
		return 0, fmt.Errorf("read the port: %w", err)
	}
	return int(given.Port), nil
}
