package frp

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// protocolVersion is the release whose protocol this is.
	protocolVersion = "0.66.0"
	// poolCount is how many connections the server may keep in store, if it
	// allows so many.
	poolCount = 10
	// farewell is how long a server may take to read what was written and to
	// close, too.
	farewell = 500 * time.Millisecond
	// receiveWindow is how much of one stream may be under way to here. It is
	// what others have to wait for while something large is uploaded, and caps
	// the upload at a window a round trip. yamux takes no smaller one.
	receiveWindow = 256 << 10
)

// session is one login: a connection and the proxy registered on it.
type session struct {
	options *ClientOptions
	conn    *connection
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

// leave ends the session after the server has read what was written. A socket
// that is closed with something unread drops what it has not sent.
func (s *session) leave(why error) {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	if s.conn.CloseWrite() == nil {
		select {
		case <-s.mux.CloseChan():
		case <-timer.C:
		}
	}
	s.end(why)
}

// end closes the connection, and keeps why if it is the first to do so.
func (s *session) end(why error) {
	s.over.Do(func() {
		s.reason = why
		_ = s.conn.Close()
		_ = s.mux.Close()
	})
}
