package main

import (
	"context"
	"flag"
	"os"
	"runtime"
)

// serve runs the daemon until ctx is done. What goes wrong once it logs, it
// logs.
func serve(ctx context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	cfg, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	defer heedControlGroup(os.DirFS("/"), p.environ)()
	log := newLogger(cfg, p.stderr)
	d, err := newDaemon(ctx, cfg, log)
	if err != nil {
		return err
	}
	headroom := ballast()
	defer runtime.KeepAlive(headroom)
	if err := d.run(ctx); err != nil {
		log.Error().Err(err).Msg("stopped, but not in order")
		return errReported
	}
	log.Info().Msg("stopped")
	return nil
}
