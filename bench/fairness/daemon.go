package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// daemon is a muxproxy whose servers are behind frps.
type daemon struct{ *rig.Daemon }

// stopFor is how long it has to end its calls and its tunnel.
const stopFor = 30 * time.Second

// startDaemon starts one that reaches frps at addr and puts all rollouts on one
// tunnel.
func startDaemon(ctx context.Context, binary, proxyType, addr, upstream string, server *frpstest.Server) (daemon, error) {
	url := server.PortURL()
	if proxyType == frp.TypeHTTP {
		url = server.SubdomainURL()
	}
	d, err := rig.StartDaemon(ctx, rig.Program{Args: []string{binary}, StopFor: stopFor, Env: []string{
		"MUXPROXY_UPSTREAM_URL=http://" + upstream,
		"MUXPROXY_TUNNEL=frp", "MUXPROXY_FRP_SERVER_ADDR=" + addr,
		"MUXPROXY_FRP_PROXY_TYPE=" + proxyType, "MUXPROXY_FRP_PUBLIC_URL=" + url,
		"MUXPROXY_MULTIPLEX=256", "MUXPROXY_POOL_MAX=1",
		"HTTP_PROXY=http://" + server.HTTPAddr(), // where probes of its subdomains go: there is no name server
	}})
	return daemon{d}, err
}

// register makes so many rollouts, all behind one endpoint, and returns what
// ends them.
func (d daemon) register(ctx context.Context, count int, server *frpstest.Server) (made []rollout, end func() error, err error) {
	sessions, err := d.Register(ctx, count, "{}")
	if err != nil {
		return nil, nil, err
	}
	for _, s := range sessions {
		if s.Endpoint.URL != sessions[0].Endpoint.URL {
			return nil, nil, errors.New("the rollouts are on more than one tunnel")
		}
		made = append(made, rollout{s.Endpoint.URL, s.Secret, &http.Client{Transport: server.Transport()}})
	}
	return made, func() error {
		for _, r := range made {
			r.client.CloseIdleConnections()
		}
		return d.End(ctx, sessions)
	}, nil
}
