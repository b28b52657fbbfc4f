package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"
)

// healthcheckTimeout leaves a loaded daemon time, and a container's health
// check its own.
const healthcheckTimeout = 5 * time.Second

// healthcheck asks the daemon that has this environment whether it is alive. It
// is what a container without a shell can run as its health check.
func healthcheck(ctx context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	cfg, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	addr, err := adminAddress(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	// The daemon is on this machine: no proxy of the environment is asked.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("ask for health: %s answered %s", addr, response.Status)
	}
	_, err = fmt.Fprintln(p.stdout, "ok")
	return err
}

// adminAddress is where the daemon's admin listener can be reached from here.
func adminAddress(cfg Config) (string, error) {
	if _, port, _ := net.SplitHostPort(cfg.AdminListen); port != "0" {
		return reachable(cfg.AdminListen), nil
	}
	if cfg.ReadyFile == "" {
		return "", fmt.Errorf("%sADMIN_LISTEN has port 0: the port is told by %[1]sREADY_FILE, which is not set", prefix)
	}
	ready, err := readReadyFile(cfg.ReadyFile)
	return reachable(ready.AdminListen), err
}
