package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// haproxyConfig sends on what it has at once, as streams need it.
const haproxyConfig = `global
  nbthread 1
  maxconn 4096
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 300s
  timeout server 300s
frontend calls
  bind 127.0.0.1:%[2]d backlog 4096
  default_backend model
backend model
  http-request set-header Authorization "Bearer bench"
  http-reuse always
  server model %[1]s
`

func startHAProxy(ctx context.Context, upstream string) (*process, error) {
	return startConfigured(ctx, upstream, haproxyConfig, "haproxy", "-f")
}

// caddyConfig leaves the flushing of event streams to caddy, which flushes each
// event, and raises the number of idle connections as for net/http's proxy.
const caddyConfig = `{
  admin off
  auto_https off
  log {
    level ERROR
  }
}
http://127.0.0.1:%[2]d {
  reverse_proxy %[1]s {
    header_up Authorization "Bearer bench"
    transport http {
      keepalive_idle_conns_per_host 16384
    }
  }
}
`

func startCaddy(ctx context.Context, upstream string) (*process, error) {
	return startConfigured(ctx, upstream, caddyConfig, "caddy", "run", "--adapter", "caddyfile", "--config")
}

// startConfigured runs a command with the name of a file behind its arguments,
// that holds a configuration with the upstream and a port.
func startConfigured(ctx context.Context, upstream, config, name string, args ...string) (*process, error) {
	return launch(ctx, func(dir string, port int) ([]string, error) {
		file := filepath.Join(dir, name+".conf")
		return append(append([]string{name}, args...), file), os.WriteFile(file, fmt.Appendf(nil, config, upstream, port), 0o600)
	})
}
