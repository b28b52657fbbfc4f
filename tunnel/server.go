// Package tunnel makes the data plane reachable. A [Server] is one listener and
// its HTTP server; a [Driver] opens a [Tunnel], a public URL, to it; a [Pool]
// holds servers, opens and closes them as they are needed, and places sessions
// on them. What a server serves is an http.Handler that its owner hands in:
// this package knows nothing of model calls.
//
// A server answers with a nonce of its own, so that whoever asks through its
// public URL can tell that it was this very server that answered.
package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/nonblock"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 5 * time.Minute
	maxHeaderBytes    = 64 << 10
	// cutGrace is how long Shutdown waits for handlers whose connections it
	// has closed, so that they can write down how their call ended.
	cutGrace = time.Second
)

// ServerOptions describe a [Server].
type ServerOptions struct {
	// ID names the server in the admin API and in logs; "srv-1" when empty.
	ID string
	// Addr is the TCP address to listen on; port 0 picks a free one. When empty
	// the server has only the connections handed to Serve.
	Addr string
	// URL is the public base URL of a server to which the pool opens no tunnel;
	// when empty, http:// and the bound address.
	URL string
	// Handler makes what the server serves, given the server's nonce.
	Handler func(nonce string) http.Handler
	// Logger takes what net/http has to say; the zero value is silent.
	Logger zerolog.Logger
}

// Server is a listener and its HTTP server. It is safe for concurrent use.
type Server struct {
	id       string
	url      string
	nonce    string
	listener net.Listener // nil without an address
	inbox    *inbox
	http     *http.Server

	mu     sync.Mutex
	active map[net.Conn]struct{} // with a request whose answer is not yet written to its end
	idle   chan struct{}         // closed when active gets empty; nil when nobody waits
}

// Listen binds the address, so that a busy port is an error here, and serves
// nothing before Run. Whoever called it must call Shutdown, Run or no Run.
func Listen(ctx context.Context, o ServerOptions) (*Server, error) {
	id := cmp.Or(o.ID, "srv-1")
	s := &Server{id: id, nonce: rand.Text(), inbox: newInbox(id), active: make(map[net.Conn]struct{})}
	if o.Addr != "" {
		var config net.ListenConfig
		var err error
		if s.listener, err = config.Listen(ctx, "tcp", o.Addr); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	s.url = strings.TrimRight(cmp.Or(o.URL, "http://"+s.Addr().String()), "/")
	s.http = &http.Server{
		Handler:           s.counted(o.Handler(s.nonce)),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ConnState:         s.connState,
		// "OPTIONS *" gets the answer that every unknown route gets.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(o.Logger.With().Str("server", s.id).Logger(), "", 0),
	}
	return s, nil
}

// ID is the server's name.
func (s *Server) ID() string { return s.id }

// Addr is the address that the server is bound to; without one, a name for
// where Serve puts connections.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return s.inbox.Addr()
	}
	return s.listener.Addr()
}

// URL is the base URL without a tunnel, and without a slash at its end.
func (s *Server) URL() string { return s.url }

// Nonce tells this server from every other.
func (s *Server) Nonce() string { return s.nonce }

// Serve answers the requests of a connection that did not come through the
// listener. It does not block. The connection becomes the server's to close,
// which it does at once when it has been shut down.
func (s *Server) Serve(conn net.Conn) { s.inbox.put(conn) }

// Run serves until Shutdown is called, which makes it return nil at once while
// calls in flight go on, or until ctx is done, which cuts them.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	var serving errgroup.Group
	for _, l := range s.listeners() {
		serving.Go(func() error {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				_ = s.http.Close()
				return fmt.Errorf("serve %s: %w", s.id, err)
			}
			return nil
		})
	}
	return serving.Wait()
}

func (s *Server) listeners() []net.Listener {
	if s.listener == nil {
		return []net.Listener{s.inbox}
	}
	return []net.Listener{nonblock.Listen(s.listener), s.inbox}
}

// Drain waits until no request is being answered. The server goes on
// listening: that it takes no new work is the handler's business. When ctx is
// done first, the error says how many requests are left.
func (s *Server) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		left := len(s.active)
		if left > 0 && s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%d calls still running: %w", left, context.Cause(ctx))
		}
	}
}

// Shutdown closes the listener, waits for requests being answered until ctx is
// done, and then cuts those that are left, which is an error.
func (s *Server) Shutdown(ctx context.Context) error {
	// Bound but never served, the listener is not the HTTP server's to close.
	defer func() {
		for _, l := range s.listeners() {
			_ = l.Close()
		}
	}()
	if s.http.Shutdown(ctx) == nil {
		return nil
	}
	cut := s.running()
	err := s.http.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	_ = s.Drain(grace)
	if cut > 0 {
		err = errors.Join(err, fmt.Errorf("%d calls cut: %w", cut, context.Cause(ctx)))
	}
	return err
}

func (s *Server) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// connKey is the context key of a request's connection.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(nonblock.Context(ctx, conn), connKey{}, conn)
}

// counted counts requests from when their handler is called. The ResponseWriter
// is passed on as it is: a wrapper would cost streams their flushes.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			s.mu.Lock()
			s.active[conn] = struct{}{}
			s.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// connState ends the count. The handler's return would be too early: the end of
// the answer is written after that, and lost if its tunnel is closed meanwhile.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	if state == http.StateNew || state == http.StateActive {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, conn)
	if len(s.active) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}
