package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/muxproxy/muxproxy/tunnel"
)

// keptServers is the file of STATE_DIR that says how the servers of the pool
// come back under their URLs after a restart. It is written before a session is
// placed on a server, so that the journal knows of no server that is not in it.
// It is safe for concurrent use.
type keptServers struct {
	path   string
	tunnel string

	mu      sync.Mutex
	servers map[string]keptServer // by id
}

// keptServer is a server in the file.
type keptServer struct {
	URL    string `json:"url"`
	Resume string `json:"resume,omitempty"` // see tunnel.Tunnel
}

// keptServersFile is the file. What another driver has opened cannot come back.
type keptServersFile struct {
	Tunnel  string                `json:"tunnel"`
	Servers map[string]keptServer `json:"servers"`
}

// readKeptServers reads what an earlier life of the process has left.
func readKeptServers(dir, driver string) (*keptServers, error) {
	k := &keptServers{path: filepath.Join(dir, "servers.json"), tunnel: driver, servers: make(map[string]keptServer)}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read servers: %w", err)
	}
	var file keptServersFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read servers: %s: %w", k.path, err)
	}
	if file.Tunnel == driver && file.Servers != nil {
		k.servers = file.Servers
	}
	return k, nil
}

// restore says how the servers of the records come back, and forgets those that
// nobody needs.
func (k *keptServers) restore(records []tunnel.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	needed := make(map[string]keptServer)
	for i, r := range records {
		if kept, ok := k.servers[r.Server]; ok && kept.URL == r.URL {
			records[i].Resume, needed[r.Server] = kept.Resume, kept
		}
	}
	k.servers = needed
}

func (k *keptServers) opened(r tunnel.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.servers[r.Server] = keptServer{URL: r.URL, Resume: r.Resume}
	return k.write()
}

func (k *keptServers) closed(server string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.servers, server)
	return k.write()
}

// write puts the file in place in one step. mu must be held.
func (k *keptServers) write() error {
	text, err := json.Marshal(keptServersFile{k.tunnel, k.servers})
	if err != nil {
		return fmt.Errorf("encode servers: %w", err)
	}
	next := k.path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("write servers: %w", err)
	}
	if err := os.Rename(next, k.path); err != nil {
		return fmt.Errorf("write servers: %w", err)
	}
	return nil
}

// wireKeptServers makes the pool's servers outlast the process, where sessions
// do.
func (d *daemon) wireKeptServers(o *tunnel.PoolOptions) (err error) {
	if d.journal == nil || d.driver == nil {
		return nil
	}
	if d.kept, err = readKeptServers(d.cfg.StateDir, d.cfg.Tunnel); err != nil {
		return fmt.Errorf("%sSTATE_DIR: %w", prefix, err)
	}
	o.Opened = func(r tunnel.Record) { d.notKept(d.kept.opened(r), r.Server) }
	o.Closed = func(server string) { d.notKept(d.kept.closed(server), server) }
	return nil
}

func (d *daemon) notKept(err error, server string) {
	if err != nil {
		d.log.Warn().Err(err).Str("server", server).Msg("a restart will not bring servers back as they are")
	}
}
