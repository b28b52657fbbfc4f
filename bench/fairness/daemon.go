package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

// startTimeout covers the first tunnel, too.
const startTimeout = 30 * time.Second

// daemon is a muxproxy whose servers are behind frps.
type daemon struct {
	command *exec.Cmd
	folder  string
	admin   string // URL of the admin API
}

// startDaemon starts one that reaches frps at addr and puts all rollouts on one
// tunnel.
func startDaemon(ctx context.Context, binary, proxyType, addr, upstream string, server *frpstest.Server) (*daemon, error) {
	folder, err := os.MkdirTemp("", "fairness-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	ready := filepath.Join(folder, "ready.json")
	url := server.PortURL()
	if proxyType == frp.TypeHTTP {
		url = server.SubdomainURL()
	}
	command := exec.CommandContext(ctx, binary)
	command.Env = append(os.Environ(),
		"MUXPROXY_ADMIN_LISTEN=127.0.0.1:0", "MUXPROXY_READY_FILE="+ready,
		"MUXPROXY_UPSTREAM_URL=http://"+upstream, "MUXPROXY_LOG_LEVEL=warn",
		"MUXPROXY_TUNNEL=frp", "MUXPROXY_FRP_SERVER_ADDR="+addr,
		"MUXPROXY_FRP_PROXY_TYPE="+proxyType, "MUXPROXY_FRP_PUBLIC_URL="+url,
		"MUXPROXY_MULTIPLEX=256", "MUXPROXY_POOL_MAX=1",
		"HTTP_PROXY=http://"+server.HTTPAddr(), // where probes of its subdomains go: there is no name server
		"XDG_CACHE_HOME="+folder,
	)
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = startTimeout
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start muxproxy: %w", err)
	}
	d := &daemon{command: command, folder: folder}
	if err := d.await(ctx, ready); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// await waits until the daemon has written its addresses.
func (d *daemon) await(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		var addresses struct {
			Admin string `json:"admin_url"`
		}
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &addresses) == nil {
			d.admin = addresses.Admin
			return nil
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return errors.New("muxproxy did not start")
		}
	}
}

func (d *daemon) stop() error {
	err := d.command.Process.Signal(os.Interrupt)
	waited := d.command.Wait()
	if _, exited := errors.AsType[*exec.ExitError](waited); !exited {
		err = errors.Join(err, waited)
	}
	return errors.Join(err, os.RemoveAll(d.folder))
}

// register makes so many rollouts, all behind one endpoint, and returns what
// ends them.
func (d *daemon) register(ctx context.Context, count int, server *frpstest.Server) (made []rollout, end func() error, err error) {
	var answer struct {
		Sessions []struct {
			ID       string
			Secret   string
			Endpoint struct{ URL string }
		}
	}
	if err := d.post(ctx, "/sessions/batch", map[string]any{"template": map[string]any{}, "count": count}, &answer); err != nil {
		return nil, nil, err
	}
	ids := make([]string, 0, count)
	for _, s := range answer.Sessions {
		if s.Endpoint.URL != answer.Sessions[0].Endpoint.URL {
			return nil, nil, errors.New("the rollouts are on more than one tunnel")
		}
		ids = append(ids, s.ID)
		made = append(made, rollout{s.Endpoint.URL, s.Secret, &http.Client{Transport: server.Transport()}})
	}
	return made, func() error {
		for _, r := range made {
			r.client.CloseIdleConnections()
		}
		return d.post(ctx, "/sessions/end?purge=true", map[string]any{"ids": ids}, nil)
	}, nil
}

func (d *daemon) post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.admin+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("POST %s: status %d: %s", path, response.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
