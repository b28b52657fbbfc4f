package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

// Open runs the program until it has printed a URL, and is ready. A program
// that is not there is a *tunnel.ConfigError; one that ends or does not print
// anything useful in time is a *tunnel.TransientError with the last lines of
// its output.
func (d *Driver) Open(ctx context.Context, l tunnel.Local) (tunnel.Tunnel, error) {
	if l.Resume != "" {
		return nil, &tunnel.ConfigError{Err: errors.New("a program's URL cannot come back")}
	}
	args, err := d.args(l.Addr)
	if err != nil {
		return nil, &tunnel.ConfigError{Err: err}
	}
	w := watcher{o: &d.o, answer: make(chan answer, 1)}
	p := &program{mark: rand.Text(), grace: d.o.StopGrace, ledger: d.o.Ledger, output: &output{watch: w.line}}
	// The context of the start is not that of the program.
	command := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	command.Env = append(slices.Clip(d.o.Env), markName+"="+p.mark)
	command.SysProcAttr = attributes()
	if err := p.launch(command); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, &tunnel.ConfigError{Err: err}
		}
		return nil, &tunnel.TransientError{Err: err}
	}
	if p.url, err = d.wait(ctx, p, w.answer); err != nil {
		p.End(err)
		return nil, errors.Join(err, p.stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// args are the program and its arguments for a server at this address.
func (d *Driver) args(addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	local := strings.NewReplacer("{addr}", addr, "{host}", host, "{port}", port)
	args := make([]string, len(d.o.Args))
	for i, arg := range d.o.Args {
		args[i] = local.Replace(arg)
	}
	return args, nil
}

// wait waits for the program's answer, or for the reason why there is none.
func (d *Driver) wait(ctx context.Context, p *program, answered <-chan answer) (string, error) {
	timeout := time.NewTimer(d.o.StartTimeout)
	defer timeout.Stop()
	select {
	case a := <-answered:
		return a.result(p)
	case <-p.Done():
	case <-timeout.C:
		err := fmt.Errorf("%s has no URL that is ready after %s; %s", p.name, d.o.StartTimeout, p.output)
		return "", &tunnel.TransientError{Err: err}
	case <-ctx.Done():
		return "", fmt.Errorf("start %s: %w; %s", p.name, context.Cause(ctx), p.output)
	}
	select {
	case a := <-answered: // its last words; a URL with the program gone is none
		if a.fail != nil {
			return a.result(p)
		}
	default:
	}
	return "", &tunnel.TransientError{Err: p.Err()}
}

// answer is what the output says about the start: a URL, or how it failed.
type answer struct {
	url  string
	fail func(error) error
}

func (a answer) result(p *program) (string, error) {
	if a.fail != nil {
		return "", a.fail(fmt.Errorf("start %s; %s", p.name, p.output))
	}
	if u, err := url.Parse(a.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", &tunnel.ConfigError{Err: fmt.Errorf("the expression for the URL found %q, which is no http or https URL", a.url)}
	}
	return a.url, nil
}

// watcher looks for the answer, line by line.
type watcher struct {
	o      *Options
	url    string
	ready  bool
	answer chan answer
}

// line tells whether this line answered. The output calls it, for one line at a
// time.
func (w *watcher) line(line string) bool {
	switch {
	case matches(w.o.Limited, line):
		w.answer <- answer{fail: func(err error) error { return &tunnel.RateLimitError{Err: err} }}
		return true
	case matches(w.o.Quota, line):
		w.answer <- answer{fail: func(err error) error { return &tunnel.QuotaError{Err: err} }}
		return true
	case matches(w.o.Fatal, line):
		w.answer <- answer{fail: func(err error) error { return &tunnel.ConfigError{Err: err} }}
		return true
	}
	if at := w.o.URL.FindStringSubmatchIndex(line); at != nil && w.url == "" {
		w.url = strings.TrimRight(string(w.o.URL.ExpandString(nil, w.o.Template, line, at)), "/")
	}
	w.ready = w.ready || w.o.Ready == nil || w.o.Ready.MatchString(line)
	if w.url == "" || !w.ready {
		return false
	}
	w.answer <- answer{url: w.url}
	return true
}

func matches(r *regexp.Regexp, line string) bool {
	return r != nil && r.MatchString(line)
}
