package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readyFile is what READY_FILE holds while the daemon serves.
type readyFile struct {
	PID         int    `json:"pid"`
	Listen      string `json:"listen,omitempty"` // the data plane's address as bound, with driver none
	AdminListen string `json:"admin_listen"`     // the admin API's address as bound
	URL         string `json:"url,omitempty"`    // the data plane's public URL, with driver none
	AdminURL    string `json:"admin_url"`
}

// write puts the file in place in one step, so that a reader never sees a part
// of it.
func (r readyFile) write(name string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode ready file: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	_, err = temp.Write(append(text, '\n'))
	// Whoever waits for the file may run as another user; it holds no secret.
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write ready file: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// removeReadyFile removes the file; one that has gone already is no error.
func removeReadyFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove ready file: %w", err)
	}
	return nil
}

// readReadyFile reads what a running daemon wrote.
func readReadyFile(name string) (readyFile, error) {
	var r readyFile
	text, err := os.ReadFile(name)
	if err != nil {
		return r, fmt.Errorf("read ready file: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read ready file %s: %w", name, err)
	}
	return r, nil
}
