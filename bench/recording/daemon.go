package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// The daemon has one core for itself; load and upstream share the other.
const (
	daemonCore = 0
	loadCore   = 1
)

func pinSelf() error {
	var set unix.CPUSet
	set.Set(loadCore)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return err
		}
	}
	return nil
}

// A daemon is a running muxproxy with its upstream.
type daemon struct {
	binary, mode  string
	dir, state    string
	upstream      *http.Server
	serving       sync.WaitGroup
	url           string // of the upstream
	listen, admin string // addresses
	command       *exec.Cmd
}

func (b *bench) start(ctx context.Context, mode string) (*daemon, error) {
	dir, err := os.MkdirTemp(b.dir, "muxproxy-bench-")
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &daemon{binary: b.binary, mode: mode, dir: dir, state: filepath.Join(dir, "state"), url: "http://" + listener.Addr().String()}
	d.upstream = &http.Server{Handler: scripted.NewInstant()} //nolint:gosec // a benchmark on loopback
	d.serving.Go(func() { _ = d.upstream.Serve(listener) })
	if err := d.launch(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// launch starts the process and waits until it serves.
func (d *daemon) launch(ctx context.Context) error {
	ready := filepath.Join(d.dir, "ready.json")
	if err := os.RemoveAll(ready); err != nil {
		return err
	}
	d.command = exec.CommandContext(ctx, "taskset", "-c", strconv.Itoa(daemonCore), d.binary)
	d.command.Stderr = os.Stderr
	d.command.Env = append(os.Environ(),
		"MUXPROXY_LISTEN=127.0.0.1:0", "MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE="+ready,
		"MUXPROXY_UPSTREAM_URL="+d.url, "MUXPROXY_LOG_LEVEL=error")
	if d.mode == modeWrite || d.mode == modeFsync {
		d.command.Env = append(d.command.Env, "MUXPROXY_STATE_DIR="+d.state, "MUXPROXY_DURABILITY="+d.mode)
	}
	if err := d.command.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		text, err := os.ReadFile(ready)
		if err == nil {
			return d.read(text)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon did not start: %w", err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) read(ready []byte) error {
	var addresses struct {
		Listen string `json:"listen"`
		Admin  string `json:"admin_listen"`
	}
	err := json.Unmarshal(ready, &addresses)
	d.listen, d.admin = addresses.Listen, addresses.Admin
	return err
}

func (d *daemon) kill() error {
	if err := d.command.Process.Kill(); err != nil {
		return err
	}
	_ = d.command.Wait() // it was killed
	return nil
}

// stop ends the process and removes what it has written.
func (d *daemon) stop() error {
	var err error
	if d.command != nil && d.command.ProcessState == nil {
		err = d.command.Process.Signal(os.Interrupt)
		_ = d.command.Wait() // it was told to
	}
	_ = d.upstream.Close() // nothing is left to lose
	d.serving.Wait()
	return errors.Join(err, os.RemoveAll(d.dir))
}

// cpu is the processor time that the daemon has taken, by its own clock
// (clock_getcpuclockid(3)).
func (d *daemon) cpu() (time.Duration, error) {
	const schedulerClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^d.command.Process.Pid)<<3|schedulerClock, &t); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

func (d *daemon) resident() (megabytes float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return float64(pages*int64(os.Getpagesize())) / (1 << 20), err
}

// transactions is how many the journal has committed.
func (d *daemon) transactions(ctx context.Context) (float64, error) {
	text, err := d.ask(ctx, http.MethodGet, "/metrics", "")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return 0, err
	}
	return float64(families["muxproxy_journal_commit_duration_seconds"].GetMetric()[0].GetHistogram().GetSampleCount()), nil
}

// register makes sessions and returns their secrets.
func (d *daemon) register(ctx context.Context, count int) (secrets []string, err error) {
	text, err := d.ask(ctx, http.MethodPost, "/sessions/batch", fmt.Sprintf(`{"template":{},"count":%d}`, count))
	if err != nil {
		return nil, err
	}
	var answer struct{ Sessions []struct{ Secret string } }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	for _, s := range answer.Sessions {
		secrets = append(secrets, s.Secret)
	}
	return secrets, nil
}

func (d *daemon) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+d.admin+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, response.StatusCode, text)
	}
	return text, err
}
