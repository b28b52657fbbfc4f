package frp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"
)

const (
	// protocolVersion is the release whose protocol this is.
	protocolVersion = "0.66.0"
	// poolCount is how many connections the server may keep in store, if it
	// allows so many.
	poolCount = 10
	// receiveWindow is how much of one stream may be under way to here. It is
	// what others have to wait for while something large is uploaded, and caps
	// the upload at a window a round trip. yamux takes no smaller one.
	receiveWindow = 256 << 10
	// maxPending is how many connections may wait for a visitor. The server
	// asks for one for each of its waiting visitors and keeps 20.
	maxPending = 4096
	// missedPongs is how many pings may go without an answer.
	missedPongs = 3
)

// session is one login: a connection and the proxy registered on it.
type session struct {
	options *ClientOptions
	conn    net.Conn
	mux     *yamux.Session
	control net.Conn // the stream under in and out
	runID   string   // what the server knows the client by
	early   int      // connections asked for before run
	in      io.Reader
	out     io.Writer // one writer at a time

	over   sync.Once
	reason error // why the session is over; written in over
}

// connect makes a session: the connection, the login and the proxy, whose
// remote address comes back. When it fails, nothing is left.
func connect(ctx context.Context, o *ClientOptions, runID string, p Proxy) (s *session, remote string, err error) {
	release, err := o.Logins.acquire(ctx, o.ServerAddr)
	if err != nil {
		return nil, "", fmt.Errorf("wait for other logins: %w", err)
	}
	defer release()
	conn, err := dial(ctx, o)
	if err != nil {
		return nil, "", err
	}
	config := yamux.DefaultConfig()
	config.KeepAliveInterval = o.KeepAlive
	config.ConnectionWriteTimeout = o.Timeout
	config.MaxStreamWindowSize = receiveWindow
	config.LogOutput = io.Discard // why it ends is what the session says
	mux, err := yamux.Client(conn, config)
	if err != nil {
		_ = conn.Close()
		return nil, "", fmt.Errorf("multiplex: %w", err)
	}
	s = &session{options: o, conn: conn, mux: mux}
	if err = s.within(ctx, stepLogin, func() error { return s.login(runID) }); err == nil {
		err = s.within(ctx, "registration", func() error {
			remote, err = s.register(p)
			return err
		})
	}
	if err != nil {
		s.end(err)
		return nil, "", err
	}
	return s, remote, nil
}

// within gives a step of the set-up its time. When that is over, or ctx is
// done, closing the connection ends the step.
func (s *session) within(ctx context.Context, what string, step func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, &silenceError{to: what})
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	err := step()
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// login opens the control stream and introduces the client, as the one that it
// was before if runID says so.
func (s *session) login(runID string) error {
	stream, err := s.mux.Open()
	if err != nil {
		return fmt.Errorf("open control stream: %w", err)
	}
	s.control = stream
	o, now := s.options, time.Now().Unix()
	err = writeMessage(stream, kindLogin, login{
		Version: protocolVersion, OS: runtime.GOOS, Arch: runtime.GOARCH,
		User: o.User, Metas: o.Metas, RunID: runID, PoolCount: poolCount,
		PrivilegeKey: privilegeKey(o.Token, now), Timestamp: now,
	})
	if err != nil {
		return err
	}
	answer, err := expect[loginResp](stream, kindLoginResp)
	if err != nil {
		return err
	}
	if answer.Error != "" {
		return &refusal{text: answer.Error, login: true}
	}
	s.runID = answer.RunID
	s.in, s.out, err = encryptControl(stream, o.Token)
	return err
}

// register registers the proxy and returns where the server put it. Requests
// for connections that come before the answer are counted.
func (s *session) register(p Proxy) (remote string, err error) {
	err = writeMessage(s.out, kindNewProxy, newProxy(p))
	if err != nil {
		return "", err
	}
	for {
		kind, content, err := readMessage(s.in)
		if err != nil {
			return "", err
		}
		if kind == kindReqWorkConn {
			s.early++
		}
		if kind != kindNewProxyResp {
			continue
		}
		answer, err := decode[newProxyResp](content)
		if err != nil {
			return "", err
		}
		if answer.Error != "" {
			return "", &refusal{text: answer.Error}
		}
		return answer.RemoteAddr, nil
	}
}

// run serves until the connection is lost or ctx is done, and says why it is
// over. Nothing of the session is left then but the connections that serve has
// been given, which are dead.
func (s *session) run(ctx context.Context, serve func(net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	defer stop()
	var workers errgroup.Group
	workers.SetLimit(maxPending)
	var wait sync.WaitGroup
	wait.Go(s.ping)
	wait.Go(s.watch)
	ask := func() {
		workers.TryGo(func() error {
			s.work(serve)
			return nil
		})
	}
	for range s.early {
		ask()
	}
	s.listen(ask)
	wait.Wait()
	_ = workers.Wait()
	return s.reason
}

// end closes the connection, and keeps why if it is the first to do so.
func (s *session) end(why error) {
	s.over.Do(func() {
		s.reason = why
		_ = s.conn.Close()
		_ = s.mux.Close()
	})
}

// fail ends the session, unless yamux has, which then knows better why.
func (s *session) fail(err error) {
	if !s.mux.IsClosed() {
		s.end(err)
	}
}

// watch ends the session when yamux gives the connection up. A server opens no
// streams.
func (s *session) watch() {
	for {
		stream, err := s.mux.Accept()
		if err != nil {
			s.end(fmt.Errorf("connection lost: %w", err))
			return
		}
		_ = stream.Close()
	}
}

// listen does what the server asks for, until the session is over.
func (s *session) listen(ask func()) {
	for {
		if s.options.Ping > 0 {
			_ = s.control.SetReadDeadline(time.Now().Add(missedPongs * s.options.Ping))
		}
		kind, content, err := readMessage(s.in)
		if err == nil && kind == kindPong {
			err = refusedPing(content)
		}
		if err != nil {
			s.fail(fmt.Errorf("control stream: %w", err))
			return
		}
		if kind == kindReqWorkConn {
			ask()
		}
	}
}

// ping tells the server that the client is alive until the session is over.
func (s *session) ping() {
	if s.options.Ping < 0 {
		return
	}
	ticker := time.NewTicker(s.options.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.mux.CloseChan():
			return
		}
		now := time.Now().Unix()
		err := writeMessage(s.out, kindPing, ping{PrivilegeKey: privilegeKey(s.options.Token, now), Timestamp: now})
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// refusedPing is the server's complaint in an answer to a ping.
func refusedPing(content []byte) error {
	answer, err := decode[pong](content)
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("ping refused: %s", answer.Error)
	}
	return err
}

// work opens a connection for the server's store and hands it over when a
// visitor comes.
func (s *session) work(serve func(net.Conn)) {
	stream, err := s.mux.Open()
	if err != nil {
		return // the session is over
	}
	now := time.Now().Unix()
	err = writeMessage(stream, kindNewWorkConn, newWorkConn{
		RunID: s.runID, PrivilegeKey: privilegeKey(s.options.Token, now), Timestamp: now,
	})
	var start startWorkConn
	if err == nil {
		start, err = expect[startWorkConn](stream, kindStartWorkConn)
	}
	if err == nil && start.Error != "" {
		err = errors.New(start.Error)
	}
	if err != nil {
		// The server had no use for it, or the session is over.
		_ = stream.Close()
		return
	}
	serve(newWorkConnection(stream, start))
}
