package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A target is something that model calls go through.
type target struct {
	name     string
	start    func(ctx context.Context, upstream string) (*process, error)
	sessions bool // it knows sessions and keeps what they say
}

const (
	nameDirect  = "direct"
	nameReverse = "reverseproxy"
	nameTuned   = "reverseproxy-tuned"
	nameHandler = "handler" // what serves and calls in muxproxy, and nothing between
	nameNginx   = "nginx"
	nameMux     = "muxproxy"
	nameControl = "muxproxy-control" // the same binary once more
)

func (b *bench) targets() []target {
	ours := func(name string) target {
		return target{name, func(ctx context.Context, upstream string) (*process, error) {
			return startSelf(ctx, b.self, "-serve", upstream, "-as", name)
		}, false}
	}
	mux := func(ctx context.Context, upstream string) (*process, error) {
		return startMuxproxy(ctx, b.muxproxy, upstream, b.override)
	}
	return []target{
		{nameDirect, func(_ context.Context, upstream string) (*process, error) { return &process{addr: upstream}, nil }, false},
		{nameNginx, startNginx, false},
		ours(nameReverse),
		ours(nameTuned),
		ours(nameHandler),
		{nameMux, mux, true},
		{nameControl, mux, true},
	}
}

// A process is a running target. A direct call has none.
type process struct {
	addr    string // host:port of the data plane
	metrics string // URL of Go's memory statistics, "" has none
	admin   string // URL of muxproxy's admin API, "" for others
	pid     int    // that does the work, with its children

	// Of targets other than muxproxy that have sessions.
	open func(ctx context.Context, count int, model string) ([]access, error)
	end  func(ctx context.Context, sessions []access) error

	override bool // register sessions with a model, which then replaces that of the requests

	command *exec.Cmd
	dir     string
}

// start runs a command on the target's core.
func start(ctx context.Context, dir string, env []string, stdout io.Writer, name string, args ...string) (*exec.Cmd, error) {
	command := onTargetCore(ctx, dir, env, name, args...)
	command.Stdout, command.Stderr = stdout, os.Stderr
	return command, command.Start()
}

func onTargetCore(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "taskset", append([]string{"-c", strconv.Itoa(targetCore), name}, args...)...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	return command
}

// stopFor is how long a process has to end by itself.
const stopFor = 5 * time.Second

// stop ends the process and waits for it.
func (p *process) stop() error {
	if p.command == nil {
		return nil
	}
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	late := time.AfterFunc(stopFor, func() { _ = p.command.Process.Kill() })
	defer late.Stop()
	err := p.command.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = nil // it was told to
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// startSelf starts this program as a target.
func startSelf(ctx context.Context, self string, args ...string) (*process, error) {
	addresses := &lines{line: make(chan string, 2)}
	command, err := start(ctx, "", nil, addresses, self, args...)
	if err != nil {
		return nil, err
	}
	p := &process{command: command, pid: command.Process.Pid}
	if p.addr, err = addresses.next(ctx); err != nil {
		return nil, err
	}
	p.metrics, err = addresses.next(ctx)
	return p, err
}

// lines hands on what a process prints, a line at a time.
type lines struct {
	partial []byte
	line    chan string
}

func (l *lines) Write(b []byte) (int, error) {
	l.partial = append(l.partial, b...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.line <- string(line)
		l.partial = rest
	}
}

func (l *lines) next(ctx context.Context) (string, error) {
	select {
	case line := <-l.line:
		return line, nil
	case <-time.After(startFor):
		return "", errors.New("the target did not start")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func startMuxproxy(ctx context.Context, binary, upstream string, override bool) (*process, error) {
	dir, err := os.MkdirTemp("", "muxproxy-bench-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(dir, "ready.json")
	command, err := start(ctx, dir, []string{
		"MUXPROXY_LISTEN=127.0.0.1:0", "MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE=" + ready,
		"MUXPROXY_UPSTREAM_URL=http://" + upstream, "MUXPROXY_UPSTREAM_API_KEY=bench", "MUXPROXY_LOG_LEVEL=warn",
	}, io.Discard, binary)
	if err != nil {
		return nil, err
	}
	p := &process{command: command, pid: command.Process.Pid, dir: dir, override: override}
	return p, waitFor(ctx, startFor, func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		var addresses struct {
			Listen string `json:"listen"`
			Admin  string `json:"admin_listen"`
		}
		if err := json.Unmarshal(text, &addresses); err != nil {
			return err
		}
		p.addr, p.admin = addresses.Listen, "http://"+addresses.Admin
		p.metrics = p.admin + "/metrics"
		return nil
	})
}

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
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muxproxy-bench-nginx-")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, upstream, port), 0o600); err != nil {
		return nil, err
	}
	command, err := start(ctx, dir, nil, io.Discard, "nginx", "-p", dir, "-c", config)
	if err != nil {
		return nil, err
	}
	p := &process{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: command, dir: dir}
	return p, waitFor(ctx, startFor, func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		if err != nil {
			return err
		}
		conn.Close()
		p.pid, err = onlyChild(command.Process.Pid)
		return err
	})
}

// onlyChild finds nginx's worker, which does the work of its master.
func onlyChild(pid int) (int, error) {
	path := fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// startFor is how long a target has to be ready.
const startFor = 10 * time.Second

// waitFor tries until there is no error, for a time.
func waitFor(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the target did not start: %w", err)
		}
	}
}
