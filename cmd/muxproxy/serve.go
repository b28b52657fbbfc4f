package main

import (
	"context"
	"flag"
)

// serve runs the daemon until ctx is done.
func serve(ctx context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	cfg, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	d, err := newDaemon(ctx, cfg, newLogger(cfg, p.stderr))
	if err != nil {
		return err
	}
	return d.run(ctx)
}
