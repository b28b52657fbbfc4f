package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// A Stand is a control plane on loopback with the frps that asks it, which
// together are the whole of a provider.
type Stand struct {
	*ControlPlane
	// FRPS is the server; its Transport finds the tunnels' host names.
	FRPS *frpstest.Server
	// BaseURL is the API's.
	BaseURL string

	http    *http.Server
	serving sync.WaitGroup
}

// Start starts both. Where o says nothing of frps, its tunnels are those of
// the one that is started.
func Start(ctx context.Context, o Options, frps frpstest.Options) (*Stand, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Stand{BaseURL: "http://" + listener.Addr().String()}
	frps.Plugin = s.BaseURL + PluginPath
	if s.FRPS, err = frpstest.Start(ctx, frps); err != nil {
		_ = listener.Close()
		return nil, err
	}
	if o.ServerHost == "" {
		host, port, err := net.SplitHostPort(s.FRPS.Addr())
		if err == nil {
			o.ServerHost = host
			o.ServerPort, err = strconv.Atoi(port)
		}
		if err != nil {
			s.FRPS.Stop()
			_ = listener.Close()
			return nil, fmt.Errorf("read address of frps: %w", err)
		}
		o.FRPToken = frps.Token
		o.URL = strings.ReplaceAll(s.FRPS.SubdomainURL(), "{subdomain}", "{id}")
	}
	s.ControlPlane = New(o)
	s.http = &http.Server{Handler: s.ControlPlane, ReadHeaderTimeout: 10 * time.Second}
	s.serving.Go(func() { _ = s.http.Serve(listener) })
	return s, nil
}

// Close ends both.
func (s *Stand) Close() {
	s.Mend()
	s.FRPS.Stop()
	_ = s.http.Close()
	s.serving.Wait()
}
