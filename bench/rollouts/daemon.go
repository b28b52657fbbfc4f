package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// ratePerMinute is how fast tunnels are opened: the daemon's default.
	ratePerMinute = 500
	startTimeout  = 30 * time.Second
	stopTimeout   = 40 * time.Second
)

// daemon is the process that is measured.
type daemon struct {
	admin  string // URL
	client *http.Client

	command *exec.Cmd
	dir     string
}

// startDaemon starts one that is ready to place sessions. frps is named as its
// HTTP proxy, which is how it finds the tunnels' host names without a name
// server; what is on loopback it asks directly.
func startDaemon(ctx context.Context, binary, frps string, env ...string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "rollouts-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(dir, "ready.json")
	command := exec.CommandContext(ctx, binary)
	command.Env = append([]string{
		"HOME=" + dir, "XDG_CACHE_HOME=" + filepath.Join(dir, "cache"), "HTTP_PROXY=http://" + frps,
		"MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE=" + ready, "MUXPROXY_LOG_LEVEL=warn",
	}, env...)
	command.Dir, command.Stderr = dir, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		return nil, err
	}
	d := &daemon{
		command: command, dir: dir,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: rollouts}},
	}
	if err := d.wait(ctx, ready); err != nil {
		_ = d.stop()
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	return d, nil
}

// wait waits until the daemon has written where it is and is ready.
func (d *daemon) wait(ctx context.Context, ready string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := d.locate(ready)
		if err == nil {
			err = d.call(ctx, http.MethodGet, "/readyz", "", nil)
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (d *daemon) locate(ready string) error {
	text, err := os.ReadFile(ready)
	if err != nil {
		return err
	}
	var addresses struct {
		Admin string `json:"admin_url"`
	}
	if err := json.Unmarshal(text, &addresses); err != nil {
		return err
	}
	d.admin = addresses.Admin
	return nil
}

// call asks the admin API.
func (d *daemon) call(ctx context.Context, method, path, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, d.admin+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	text, err := do(d.client.Transport, request)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// do makes a request and reads the whole answer, which must be a success.
func do(transport http.RoundTripper, request *http.Request) ([]byte, error) {
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %.200s", request.Method, request.URL.Path, response.StatusCode, text)
	}
	return text, err
}

// stop ends the process as a supervisor does, and waits for it.
func (d *daemon) stop() error {
	d.client.CloseIdleConnections()
	err := d.command.Process.Signal(os.Interrupt)
	if err == nil {
		err = d.command.Wait()
	}
	if removeErr := os.RemoveAll(d.dir); err == nil {
		err = removeErr
	}
	return err
}
