// Command fairness measures what the rollouts on one tunnel do to each other:
// many of them stream events through muxproxy and a real frps over a slow and
// long link, and one more uploads or downloads something large beside them.
//
// The link is between muxproxy and frps: so many bytes a second, a delay and a
// buffer for each TCP connection and direction. An event's latency is from its
// sending by the upstream to its arrival at the harness. The three kinds of
// bulk are measured in turn in each round, ratios are taken inside a round, and
// medians of the rounds reported.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
	"github.com/muxproxy/muxproxy/tunnel/frp"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func main() { rig.Main("fairness", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	b := &bench{log: log, link: shape{Rate: 5_000_000, Delay: 10 * time.Millisecond, Buffer: 128 << 10}}
	flags := rig.NewFlags("fairness")
	flags.StringVar(&b.version, "frps", frpstest.V071, "the release of frps")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each load is measured")
	flags.DurationVar(&b.window, "window", 5*time.Second, "for how long")
	flags.DurationVar(&b.interval, "interval", 50*time.Millisecond, "between the events of a stream")
	flags.IntVar(&b.upload, "upload", 1<<20, "bytes of an upload, one follows the other")
	flags.IntVar(&b.download, "download", 16<<20, "bytes of a download")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.muxproxy = flags.Muxproxy
	var samples []labelled
	for _, proxyType := range []string{frp.TypeHTTP, frp.TypeTCP} {
		measured, err := b.measure(ctx, proxyType)
		if err != nil {
			return fmt.Errorf("%s: %w", proxyType, err)
		}
		samples = append(samples, measured...)
	}
	r := b.report(samples)
	if err := rig.Save(flags.Out, r); err != nil {
		return err
	}
	return errors.Join(r.table(out), r.judge())
}

// bench is one run.
type bench struct {
	log              io.Writer
	muxproxy         string
	version          string
	link             shape
	rounds           int
	window, interval time.Duration
	upload, download int
}

// labelled says what a sample is of.
type labelled struct {
	*sample
	proxyType string
	streams   int
	bulk      string
	round     int
}

// measure measures one proxy type, with one daemon and one tunnel.
func (b *bench) measure(ctx context.Context, proxyType string) (samples []labelled, err error) {
	server, err := frpstest.Start(ctx, frpstest.Options{Version: b.version})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	line, err := newLink(ctx, b.link, server.Addr())
	if err != nil {
		return nil, err
	}
	defer line.close()
	model, err := startUpstream(ctx, b.interval, b.download)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	d, err := startDaemon(ctx, b.muxproxy, proxyType, line.addr(), model.Addr, server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	for round := range b.rounds {
		for _, streams := range streamCounts() {
			for _, bulk := range []string{bulkNone, bulkUpload, bulkDownload} {
				s, err := b.sample(ctx, d, server, streams, bulk)
				if err != nil {
					return nil, fmt.Errorf("%d streams, bulk %s: %w", streams, bulk, err)
				}
				samples = append(samples, labelled{s, proxyType, streams, bulk, round})
				fmt.Fprintf(b.log, "%s round %d: %d streams, bulk %-8s  events %6.1f ms  requests %6.1f ms\n", proxyType, round+1,
					streams, bulk, percentiles(s.events).P50, percentiles(s.requests).P50)
			}
		}
	}
	if n := line.connections(); n != 1 {
		return nil, fmt.Errorf("the tunnel was connected %d times", n)
	}
	return samples, nil
}

func streamCounts() []int { return []int{32, 64} }

// sample measures one load with rollouts of its own.
func (b *bench) sample(ctx context.Context, d daemon, server *frpstest.Server, streams int, bulk string) (*sample, error) {
	rollouts, end, err := d.register(ctx, streams+1, server)
	if err != nil {
		return nil, err
	}
	l := &load{streams: rollouts[:streams], bulk: rollouts[streams], kind: bulk, size: b.upload, window: b.window}
	s, err := l.measure(ctx)
	return s, errors.Join(err, end())
}
