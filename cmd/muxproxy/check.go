package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// What check and the daemon say of a configuration that is valid and hardly
// meant.
const (
	noUpstream = "no upstream is configured: set " + prefix + "UPSTREAM_URL, or PUT /upstreams/{name}"
	noJournal  = prefix + "STATE_DIR has no effect with " + prefix + "DURABILITY=" + durabilityMemory
)

// warnings are those of these that apply.
func (c Config) warnings() (all []string) {
	if len(c.Upstreams) == 0 {
		all = append(all, noUpstream)
	}
	if c.StateDir != "" && c.Durability == durabilityMemory {
		all = append(all, noJournal)
	}
	return all
}

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
	vars := env.ToMap(p.environ)
	for f := range variables() {
		name := f.Tag.Get("env")
		fmt.Fprintf(out, "%s%s\t%s\n", prefix, name, cmp.Or(setting(cfg, f, vars[prefix+name]), "-"))
	}
	if err := printUpstreams(out, cfg.Upstreams); err != nil {
		return err
	}
	for _, warning := range cfg.warnings() {
		fmt.Fprintf(out, "\nwarning: %s\n", warning)
	}
	for _, name := range cfg.Ineffective {
		fmt.Fprintf(out, "\nwarning: %s has no effect with %sTUNNEL=%s\n", name, prefix, cfg.Tunnel)
	}
	fmt.Fprint(out, "\nok\n")
	return out.Flush()
}

// setting is the value that a variable has in effect, as text without secrets.
// Given is what the environment says.
func setting(cfg Config, f reflect.StructField, given string) string {
	switch v := reflect.ValueOf(cfg).FieldByIndex(f.Index).Interface().(type) {
	case time.Duration:
		return cmp.Or(given, f.Tag.Get("envDefault")) // 60s stays 60s
	case *time.Duration:
		if given == "" {
			return strings.TrimSuffix(v.String(), "0m0s") + " (computed)"
		}
		return given
	case *ByteSize:
		if given == "" {
			return v.String() + " (computed)"
		}
		return v.String()
	case URLs:
		shown := make([]string, len(v))
		for i, u := range v {
			shown[i] = redacted(u)
		}
		return strings.Join(shown, ",")
	case Rate:
		return cmp.Or(given, f.Tag.Get("envDefault"))
	case *regexp.Regexp:
		return given
	case Headers:
		return strings.Join(sortedKeys(v), ",")
	case string:
		if f.Tag.Get("env") == "ADVERTISE_URL" && v == "" {
			if cfg.Tunnel != tunnelNone {
				return ""
			}
			return boundURL(cfg.Listen) + " (computed)"
		}
		if given == "" && v != "" && v != f.Tag.Get("envDefault") {
			return v + " (computed)"
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

// boundURL is the URL of a listener that is told no other.
func boundURL(addr string) string {
	if host, port, _ := net.SplitHostPort(addr); port == "0" {
		addr = net.JoinHostPort(host, "PORT")
	}
	return "http://" + addr
}

func printUpstreams(out io.Writer, all map[string]upstream.Config) error {
	for _, name := range sortedKeys(all) {
		fmt.Fprintf(out, "\nupstream %s\n", name)
		for _, route := range routesOf(all[name].Style) {
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

// routesOf are the routes that an upstream of this style serves.
func routesOf(style upstream.Style) []string {
	routes := proxy.UpstreamRoutes()
	if style != upstream.StyleAnthropic {
		return routes
	}
	return slices.DeleteFunc(routes, func(route string) bool {
		switch metrics.Route(route) {
		case metrics.RouteMessages, metrics.RouteCountTokens, metrics.RouteModels:
			return false
		default:
			return true
		}
	})
}
