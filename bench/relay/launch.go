package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// launchFor is how long a peer has to be ready: Python takes its time.
const launchFor = 2 * time.Minute

// launch runs a peer in a folder of its own, with the command that prepare
// returns for it and for the port that it is to listen on. What the peer prints
// is shown where it does not start.
func launch(ctx context.Context, prepare func(dir string, port int) ([]string, error), env ...string) (*process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muxproxy-bench-peer-")
	if err != nil {
		return nil, err
	}
	args, err := prepare(dir, port)
	if err != nil {
		return nil, err
	}
	printed, err := os.Create(filepath.Join(dir, "printed"))
	if err != nil {
		return nil, err
	}
	defer printed.Close()
	// What it would keep for the user goes away with the folder.
	env = append(env, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	running, err := rig.Start(ctx, rig.Program{
		Args: args, Env: env, Dir: dir, Stdout: printed, Stderr: printed, Alone: true, StopFor: stopFor,
	})
	if err != nil {
		return nil, err
	}
	p := &process{running: running, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), pid: running.PID()}
	err = running.Await(ctx, launchFor, p.accepts)
	if err == nil {
		return p, nil
	}
	text, readErr := os.ReadFile(printed.Name())
	return nil, errors.Join(fmt.Errorf("%w; it printed: %s", err, lastOf(string(text))), readErr, p.stop())
}

// accepts is whether the target takes connections.
func (p *process) accepts(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// lastOf is the end of what was printed, on one line.
func lastOf(text string) string {
	const enough = 300
	text = strings.Join(strings.Fields(text), " ")
	return text[max(0, len(text)-enough):]
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
