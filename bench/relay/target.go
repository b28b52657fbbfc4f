package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
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
	mux := func(ctx context.Context, upstream string) (*process, error) { return b.startMuxproxy(ctx, upstream) }
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
	running interface { // a *rig.Process or *rig.Daemon
		Await(ctx context.Context, limit time.Duration, try func(context.Context) error) error
		Stop() error
	}
	daemon *rig.Daemon // nil for targets other than muxproxy

	addr    string // host:port of the data plane
	metrics string // URL of Go's memory statistics, "" has none
	pid     int    // that does the work, with its children

	// Of targets other than muxproxy that have sessions.
	open func(ctx context.Context, count int, model string) ([]access, error)
	end  func(ctx context.Context, sessions []access) error

	override bool // register sessions with a model, which then replaces that of the requests
}

// stopFor is how long a target has to end by itself.
const stopFor = 5 * time.Second

// stop ends the process and waits for it.
func (p *process) stop() error {
	if p.running == nil {
		return nil
	}
	err := p.running.Stop()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil // it was told to
	}
	return err
}

func (b *bench) startMuxproxy(ctx context.Context, upstream string, env ...string) (*process, error) {
	d, err := rig.StartDaemon(ctx, rig.Program{
		Args: []string{b.muxproxy}, Alone: true, StopFor: stopFor,
		Env: append(env, "MUXPROXY_LISTEN=127.0.0.1:0", "MUXPROXY_UPSTREAM_URL=http://"+upstream, "MUXPROXY_UPSTREAM_API_KEY=bench"),
	})
	if err != nil {
		return nil, err
	}
	return &process{running: d, daemon: d, addr: d.Listen, metrics: d.Admin + "/metrics", pid: d.PID(), override: b.override}, nil
}

// startSelf starts this program as a target.
func startSelf(ctx context.Context, self string, args ...string) (*process, error) {
	addresses := &lines{line: make(chan string, 2)}
	running, err := rig.Start(ctx, rig.Program{
		Args: append([]string{self}, args...), Stdout: addresses, Stderr: os.Stderr, Alone: true, StopFor: stopFor,
	})
	if err != nil {
		return nil, err
	}
	p := &process{running: running, pid: running.PID()}
	if p.addr, err = addresses.next(ctx); err == nil {
		p.metrics, err = addresses.next(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// startFor is how long a reverse proxy has to say where it is.
const startFor = 10 * time.Second

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
		return "", fmt.Errorf("start the target: %w", context.Cause(ctx))
	}
}
