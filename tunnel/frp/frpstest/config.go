package frpstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
)

// All ports are below those that the system gives to outgoing connections, so
// that a restarted server finds its own free.
const (
	firstPort, lastPort           = 10000, 19999
	firstProxyPort, lastProxyPort = 20000, 31999
	portTries                     = 100
)

// configure chooses free ports and writes the configuration.
func (s *Server) configure(ctx context.Context) error {
	var err error
	if s.bind, err = freePort(ctx); err != nil {
		return err
	}
	if s.vhost, err = freePort(ctx); err != nil {
		return err
	}
	settings, err := s.settings()
	if err != nil {
		return err
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// settings are the server's configuration in frp's own names.
func (s *Server) settings() (map[string]any, error) {
	o := s.options
	auth := map[string]any{"method": "token", "token": o.Token}
	if o.AuthEverything {
		auth["additionalScopes"] = []string{"HeartBeats", "NewWorkConns"}
	}
	transport := map[string]any{}
	if o.KeepAlive > 0 {
		transport["tcpMuxKeepaliveInterval"] = int(o.KeepAlive.Seconds())
	}
	if o.HeartbeatTimeout > 0 {
		transport["heartbeatTimeout"] = int(o.HeartbeatTimeout.Seconds())
	}
	if o.CertFile != "" {
		transport["tls"] = map[string]any{"certFile": o.CertFile, "keyFile": o.KeyFile}
	}
	settings := map[string]any{
		"bindAddr":      "127.0.0.1",
		"bindPort":      s.bind,
		"vhostHTTPPort": s.vhost,
		"subDomainHost": Domain,
		"auth":          auth,
		"transport":     transport,
		"log":           map[string]any{"disablePrintColor": true},
		"allowPorts":    []any{map[string]any{"start": firstProxyPort, "end": lastProxyPort}},
	}
	if o.HeaderTimeout > 0 {
		settings["vhostHTTPTimeout"] = int(o.HeaderTimeout.Seconds())
	}
	if o.MaxPorts > 0 {
		settings["maxPortsPerClient"] = o.MaxPorts
	}
	if o.Plugin != "" {
		plugin, err := url.Parse(o.Plugin)
		if err != nil {
			return nil, fmt.Errorf("read plugin URL: %w", err)
		}
		settings["httpPlugins"] = []any{map[string]any{
			"name": "control", "addr": plugin.Scheme + "://" + plugin.Host, "path": plugin.Path,
			"ops": []string{"Login", "NewProxy", "CloseProxy", "Ping", "NewWorkConn"},
		}}
	}
	return settings, nil
}

// freePort is a port of this machine that nobody listens on.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := config.Listen(ctx, "tcp", local(port))
		if err == nil {
			_ = listener.Close()
			return port, nil
		}
	}
	return 0, errors.New("no free port for frps")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
