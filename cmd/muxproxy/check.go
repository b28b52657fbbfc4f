package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// check validates the configuration and prints what is in effect: every
// variable, secrets hidden, and the URLs at which upstreams will be called.
func check(_ context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	cfg, err := loadConfig(p.environ)
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for f := range variables() {
		fmt.Fprintf(out, "%s%s\t%s\n", prefix, f.Tag.Get("env"), setting(cfg, f))
	}
	if err := printUpstreams(out, cfg.Upstreams); err != nil {
		return err
	}
	return out.Flush()
}

func printUpstreams(out io.Writer, all map[string]upstream.Config) error {
	for _, name := range sortedKeys(all) {
		fmt.Fprintf(out, "\nupstream %s\n", name)
		for _, route := range proxy.UpstreamRoutes() {
			for _, replica := range all[name].Replicas {
				to, err := upstream.JoinURL(replica.URL, route, "")
				if err != nil {
					return fmt.Errorf("upstream %s: %w", name, err)
				}
				fmt.Fprintf(out, "  %s\t%s\n", route, to)
			}
		}
	}
	return nil
}
