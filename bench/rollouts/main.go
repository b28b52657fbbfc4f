// Command rollouts measures what asking for many rollouts at once costs, on
// few tunnels and, as the baseline, on a tunnel each.
//
// Each run starts a provider of its own (the control plane of package
// controlplane in front of a real frps), a scripted model, and the daemon with
// TUNNEL=prime. Then N rollouts begin at once: each asks the admin API for a
// session, makes one model call through the public URL that it was given, and
// is done when it has read the last byte. Sessions are held until all rollouts
// of the run are done, so that a tunnel for each really is one for each.
//
// How long the model takes for each call, and the provider for each creation,
// is drawn once and recorded in drawn.json.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/muxproxy/muxproxy/bench/rig"
)

func main() { rig.Main("rollouts", run) }

func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	flags := rig.NewFlags("rollouts")
	counts := flags.String("n", "32,64,128,256,1024", "numbers of rollouts")
	multiplexes := flags.String("multiplex", "1,32,64", "numbers of rollouts on a tunnel")
	scale := flags.Float64("scale", 1, "what all times are divided by")
	draw := flags.String("draw", "", "instead, draw the times anew and write them there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *draw != "" {
		return writeJSON(*draw, drawTimes())
	}
	b := &bench{binary: flags.Muxproxy, scale: *scale, log: log}
	if b.drawn, err = recordedTimes(); err != nil {
		return err
	}
	ns, err := numbers(*counts, len(b.drawn.Generations))
	if err != nil {
		return fmt.Errorf("-n: %w", err)
	}
	ms, err := numbers(*multiplexes, len(b.drawn.Generations))
	if err != nil {
		return fmt.Errorf("-multiplex: %w", err)
	}
	if *scale <= 0 {
		return errors.New("-scale must be above 0")
	}
	r, err := b.runAll(ctx, ns, ms)
	if err != nil {
		return err
	}
	if err := writeJSON(flags.Out, r); err != nil {
		return err
	}
	return r.print(out, b.drawn)
}

func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // results are for everybody
}

// numbers reads a list of numbers from 1 to most.
func numbers(list string, most int) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("%q is not a number from 1 to %d", word, most)
		}
		all = append(all, n)
	}
	return all, nil
}
