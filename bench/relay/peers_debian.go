package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// nginxConfig relays JSON buffered, as it does best, and streams unbuffered,
// as it must; client bodies stay in memory.
const nginxConfig = `daemon off; worker_processes 1; error_log stderr error; pid nginx.pid;
events { worker_connections 32768; }
http {
  access_log off; client_body_buffer_size 2m; client_max_body_size 0; client_body_temp_path body;
  proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_requests 100000000; keepalive_timeout 300s;
  upstream model { server %s; keepalive 16384; keepalive_requests 100000000; keepalive_timeout 4s; }
  server {
    listen 127.0.0.1:%d backlog=4096;
    location / {
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer bench"; proxy_buffering off; proxy_read_timeout 300s;
    }
  }
}
`

func startNginx(ctx context.Context, upstream string) (*process, error) {
	p, err := startConfigured(ctx, upstream, nginxConfig, "nginx", "-p", ".", "-c")
	if err != nil {
		return nil, err
	}
	if err := p.running.Await(ctx, launchFor, p.onlyChild); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// onlyChild finds nginx's worker, which does the work of its master.
func (p *process) onlyChild(context.Context) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.pid))
	if err != nil {
		return err
	}
	worker, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("the only child of process %d: %w", p.pid, err)
	}
	p.pid = worker
	return nil
}

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
