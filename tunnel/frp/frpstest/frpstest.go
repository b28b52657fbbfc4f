// Package frpstest runs real frps processes, the server side of frp, for tests
// and benchmarks. "make frps" builds the programs, as .bin/frps-<version> in
// the repository.
package frpstest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The releases that "make frps" builds. V066 is what Prime's tunnels run.
const (
	V066 = "0.66.0"
	V071 = "0.71.0"
)

// Domain is what subdomains hang from: the server knows "a.tunnels.test".
const Domain = "tunnels.test"

const (
	startTimeout = 20 * time.Second
	startTries   = 5   // the ports that were free may be taken meanwhile
	keptLines    = 200 // of what the process prints
)

// Options describe a server. The zero value is V071 without a token.
type Options struct {
	// Version is V066 or V071.
	Version string
	// Token is what clients log in with.
	Token string
	// AuthEverything also asks for the token in pings and work connections.
	AuthEverything bool
	// Plugin is a URL that is asked about every login, proxy, ping and work
	// connection; see frp's documentation of server plugins.
	Plugin string
	// HeaderTimeout is how long a response's headers may take through an HTTP
	// proxy, in whole seconds; a minute when zero.
	HeaderTimeout time.Duration
	// HeartbeatTimeout is how long a client may go without a ping, in whole
	// seconds; zero is for ever.
	HeartbeatTimeout time.Duration
	// KeepAlive is how often the server asks whether a connection is alive, in
	// whole seconds; 30 s when zero. It waits 10 s for the answer.
	KeepAlive time.Duration
	// CertFile and KeyFile are the server's certificate; it makes one up when
	// they are empty.
	CertFile, KeyFile string
	// MaxPorts is how many ports a client may have; zero is no limit.
	MaxPorts int
}

// Server is a running frps. It is safe for concurrent use.
type Server struct {
	options Options
	binary  string
	config  string // path
	bind    int
	vhost   int

	mu      sync.Mutex
	process *os.Process
	exited  chan struct{} // closed once the process has been waited for
	lines   []string      // the last that it printed
}

// New starts a server that ends with the test, which fails when it cannot.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			tb.Logf("frps printed:\n%s", s.Output())
		}
	})
	return s
}

// Start starts a server and returns once it listens. Stop it in the end.
func Start(ctx context.Context, o Options) (*Server, error) {
	binary, err := find(cmp.Or(o.Version, V071))
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "frps-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	s := &Server{options: o, binary: binary, config: filepath.Join(folder, "frps.json")}
	for range startTries {
		if err = s.configure(ctx); err != nil {
			break
		}
		if err = s.launch(ctx); err == nil {
			return s, nil
		}
	}
	_ = os.RemoveAll(folder)
	return nil, err
}

// find is the path of a release that "make frps" has built.
func find(version string) (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		binary := filepath.Join(folder, ".bin", "frps-"+version)
		if _, err := os.Stat(binary); err == nil {
			return binary, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("no .bin/frps-%s here or above: run \"make frps\"", version)
		}
		folder = parent
	}
}

// launch starts the process and waits until it listens.
func (s *Server) launch(ctx context.Context) error {
	process := exec.Command(s.binary, "-c", s.config) //nolint:noctx // it outlives ctx
	process.SysProcAttr = endWithParent()
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = writer.Close() }()
	process.Stdout, process.Stderr = writer, writer
	if err := process.Start(); err != nil {
		_ = reader.Close()
		return fmt.Errorf("start frps: %w", err)
	}
	listening, exited := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.process, s.exited, s.lines = process.Process, exited, nil
	s.mu.Unlock()
	go func() {
		defer close(exited)
		s.follow(reader, listening)
		_ = process.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-listening:
		return nil
	case <-exited:
		return fmt.Errorf("frps ended at once:\n%s", s.Output())
	case <-ctx.Done():
		s.Kill()
		return fmt.Errorf("start frps: %w:\n%s", context.Cause(ctx), s.Output())
	}
}

// follow keeps what the process prints, until it ends.
func (s *Server) follow(reader io.ReadCloser, listening chan<- struct{}) {
	defer func() { _ = reader.Close() }()
	started := false
	for scanner := bufio.NewScanner(reader); scanner.Scan(); {
		s.mu.Lock()
		s.lines = append(s.lines[max(0, len(s.lines)+1-keptLines):], scanner.Text())
		s.mu.Unlock()
		if !started && strings.Contains(scanner.Text(), "frps started successfully") {
			started = true
			close(listening)
		}
	}
}

// Addr is where clients log in.
func (s *Server) Addr() string { return local(s.bind) }

// HTTPAddr is where requests to subdomains of [Domain] go.
func (s *Server) HTTPAddr() string { return local(s.vhost) }

// SubdomainURL is the template of the URLs of HTTP proxies.
func (s *Server) SubdomainURL() string {
	return fmt.Sprintf("http://{subdomain}.%s:%d", Domain, s.vhost)
}

// PortURL is the template of the URLs of TCP proxies.
func (s *Server) PortURL() string { return "http://127.0.0.1:{port}" }

// Transport finds subdomains of [Domain] without a name server. Its owner
// closes its idle connections.
func (s *Server) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(addr); err == nil && strings.HasSuffix(host, "."+Domain) {
				addr = s.HTTPAddr()
			}
			return dialer.DialContext(ctx, network, addr)
		},
	}
}

// Output is what the process printed last.
func (s *Server) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// Kill ends the process as kill -9 does and returns once it is gone.
func (s *Server) Kill() {
	s.signal(syscall.SIGKILL)
	s.mu.Lock()
	exited := s.exited
	s.mu.Unlock()
	<-exited
}

// Restart starts the server that Kill ended, on the same ports.
func (s *Server) Restart(ctx context.Context) error { return s.launch(ctx) }

// Freeze stops the process without closing anything, as a silent death of its
// machine would look.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// Stop kills the process and removes what it had on disk.
func (s *Server) Stop() {
	s.Kill()
	_ = os.RemoveAll(filepath.Dir(s.config))
}

func (s *Server) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.lines = append(s.lines, fmt.Sprintf("could not be sent %s: %v", signal, err))
	}
}
