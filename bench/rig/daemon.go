package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// startFor is how long a daemon may take to be ready: it opens a tunnel, or
	// reads its journal.
	startFor = time.Minute
	// batch is how many sessions the admin API registers or ends at once.
	batch = 1000
)

// A Daemon is a muxproxy that runs.
type Daemon struct {
	*Process
	// Listen is the host:port of its data plane, empty where that is behind
	// tunnels.
	Listen string
	// Admin is the URL of its admin API.
	Admin string

	client *http.Client
}

// StartDaemon starts the muxproxy that p is, in a folder for temporary files if
// it has none, and returns when it is ready to place sessions. One that was
// killed is started again in its folder.
func StartDaemon(ctx context.Context, p Program) (_ *Daemon, err error) {
	if p.Dir == "" {
		if p.Dir, err = os.MkdirTemp("", "muxproxy-bench-"); err != nil {
			return nil, err
		}
	}
	ready := filepath.Join(p.Dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	p.Env = append([]string{
		"MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE=" + ready, "MUXPROXY_LOG_LEVEL=warn", "XDG_CACHE_HOME=" + p.Dir,
	}, p.Env...)
	p.Stderr = os.Stderr
	process, err := Start(ctx, p)
	if err != nil {
		return nil, err
	}
	d := &Daemon{Process: process, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: batch}}}
	if err := d.Await(ctx, startFor, func(ctx context.Context) error { return d.ready(ctx, ready) }); err != nil {
		return nil, errors.Join(fmt.Errorf("start muxproxy: %w", err), d.Stop())
	}
	return d, nil
}

// ready is whether the daemon has written where it is, and places sessions.
func (d *Daemon) ready(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var addresses struct {
		Listen string `json:"listen"`
		Admin  string `json:"admin_url"`
	}
	if err := json.Unmarshal(text, &addresses); err != nil {
		return err
	}
	d.Listen, d.Admin = addresses.Listen, addresses.Admin
	return d.Call(ctx, http.MethodGet, "/readyz", "", nil)
}

// Stop ends the daemon, see [Process.Stop].
func (d *Daemon) Stop() error {
	d.client.CloseIdleConnections()
	return d.Process.Stop()
}

// Call asks the admin API, see [Call].
func (d *Daemon) Call(ctx context.Context, method, path, body string, answer any) error {
	return Call(ctx, d.client, method, d.Admin+path, body, answer)
}

// A Session is what a rollout is given.
type Session struct {
	ID       string
	Secret   string
	Endpoint struct{ URL string }
}

// Register registers so many sessions, each with this JSON.
func (d *Daemon) Register(ctx context.Context, count int, template string) ([]Session, error) {
	var all []Session
	for len(all) < count {
		var answer struct{ Sessions []Session }
		body := fmt.Sprintf(`{"template":%s,"count":%d}`, template, min(batch, count-len(all)))
		if err := d.Call(ctx, http.MethodPost, "/sessions/batch", body, &answer); err != nil {
			return nil, err
		}
		all = append(all, answer.Sessions...)
	}
	return all, nil
}

// End ends sessions and gives the memory of their traces back.
func (d *Daemon) End(ctx context.Context, sessions []Session) error {
	for some := range slices.Chunk(sessions, batch) {
		var ended struct {
			IDs []string `json:"ids"`
		}
		for _, s := range some {
			ended.IDs = append(ended.IDs, s.ID)
		}
		body, err := json.Marshal(ended)
		if err != nil {
			return err
		}
		if err := d.Call(ctx, http.MethodPost, "/sessions/end?purge=true", string(body), nil); err != nil {
			return err
		}
	}
	return nil
}
