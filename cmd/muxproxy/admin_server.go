package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
)

// adminServer is the listener of the admin API, bound before the API exists.
type adminServer struct {
	listener net.Listener
	http     http.Server
}

func listenAdmin(ctx context.Context, addr string, logger zerolog.Logger) (*adminServer, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &adminServer{listener: listener, http: http.Server{
		// No WriteTimeout: a long trace to a slow reader takes what it takes,
		// and registering waits for a place.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          log.New(logger.With().Str("server", "admin").Logger(), "", 0),
	}}, nil
}

func (s *adminServer) addr() string { return s.listener.Addr().String() }

// serve says what run serves.
func (s *adminServer) serve(h http.Handler) { s.http.Handler = h }

// run serves until shutdown.
func (s *adminServer) run() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin API: %w", err)
	}
	return nil
}

// shutdown gives requests being answered teardownReserve at most, then cuts
// them: nobody is owed an answer by a daemon that has stopped serving.
func (s *adminServer) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, teardownReserve)
	defer cancel()
	// Bound but never served, the listener is not the HTTP server's to close.
	defer func() { _ = s.listener.Close() }()
	if s.http.Shutdown(ctx) == nil {
		return nil
	}
	return s.http.Close()
}

// reachable is an address at which this machine reaches a listener bound to
// addr. A wildcard is reached through IPv4's loopback even if it is IPv6's:
// Go's wildcards take both, and a container may lack ::1.
func reachable(addr string) string {
	if _, port, err := net.SplitHostPort(addr); err == nil && isWildcard(addr) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
