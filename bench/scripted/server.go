package scripted

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// KeepAlive is how long a [Server] leaves an idle connection open: what uvicorn, and so vLLM and SGLang, do.
const KeepAlive = 5 * time.Second

// Server serves an [Upstream] on one listener.
type Server struct {
	URL string // "http://" and the listener's address

	http   *http.Server
	served chan struct{}
}

// Start serves u on ln, or on a free port of the loopback interface when ln is nil. Connections are counted by
// [Upstream.Connections]. Close ends it.
func Start(u *Upstream, ln net.Listener) (*Server, error) {
	if ln == nil {
		var err error
		if ln, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("listen for the scripted upstream: %w", err)
		}
	}
	s := &Server{
		URL:    "http://" + ln.Addr().String(),
		http:   u.Server(),
		served: make(chan struct{}),
	}
	go s.serve(u.Listener(ln))
	return s, nil
}

func (s *Server) serve(ln net.Listener) {
	defer close(s.served)
	_ = s.http.Serve(ln) // always http.ErrServerClosed, or the listener was closed by its owner
}

// Close cuts every connection, so that scripts which hang end, and waits for the server to stop accepting. It is safe
// to call again.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.served
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the scripted upstream: %w", err)
	}
	return nil
}

// Server returns an http.Server set up for u, for a caller that serves by itself on a listener from
// [Upstream.Listener].
func (u *Upstream) Server() *http.Server {
	return &http.Server{
		Handler:           u,
		IdleTimeout:       KeepAlive,
		ReadHeaderTimeout: time.Minute,
		ConnContext:       withConn,
		ErrorLog:          silent(),
	}
}

// Connections is how many connections were accepted in all.
func (u *Upstream) Connections() int64 { return u.connections.Load() }

// Listener returns ln with its connections counted and their request heads kept for [Request.Head].
func (u *Upstream) Listener(ln net.Listener) net.Listener { return &listener{ln, u} }

type listener struct {
	net.Listener
	upstream *Upstream
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.upstream.connections.Add(1)
	return &conn{Conn: c}, nil
}
