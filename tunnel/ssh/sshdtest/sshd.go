// Package sshdtest runs OpenSSH's sshd for tests: as the current user, on a
// port of its own, with keys and a configuration made for the test.
package sshdtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// program is where Debian installs sshd, which refuses to run under a relative
// path.
const program = "/usr/sbin/sshd"

// Server is an sshd that logs in the current user with UserKey.
type Server struct {
	// Addr is where it listens.
	Addr string
	// User is the only user that can log in.
	User string
	// UserKey, KnownHosts and Dir are paths: of the private key, of a file with
	// the host's key, and of the folder in which all of it is.
	UserKey, KnownHosts, Dir string

	command *exec.Cmd
}

// Start starts an sshd, with these lines added to its configuration, and ends
// it with the test.
func Start(tb testing.TB, lines ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	me, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{
		Addr: freeAddr(tb), User: me.Username, Dir: dir,
		UserKey: filepath.Join(dir, "user"), KnownHosts: filepath.Join(dir, "known_hosts"),
	}
	userKey := Key(tb, s.UserKey)
	write(tb, filepath.Join(dir, "authorized_keys"), string(ssh.MarshalAuthorizedKey(userKey)))
	hostKey := Key(tb, filepath.Join(dir, "host"))
	write(tb, s.KnownHosts, knownhosts.Line([]string{knownhosts.Normalize(s.Addr)}, hostKey)+"\n")
	write(tb, s.config(), strings.Join(append([]string{
		"ListenAddress " + s.Addr,
		"HostKey " + filepath.Join(dir, "host"),
		"AuthorizedKeysFile " + filepath.Join(dir, "authorized_keys"),
		"PidFile none", "UsePAM no", "StrictModes no", "PermitRootLogin yes",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"GatewayPorts clientspecified", "MaxStartups 100",
	}, lines...), "\n")+"\n")
	if os.Geteuid() == 0 { // without privileges it needs no such folder
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() { s.Kill(tb) })
	s.Restart(tb)
	return s
}

// Restart starts it, after [Server.Kill], on the same port and with the same
// keys, and waits until it listens. It may be called by a part of the test that
// ends before the sshd does.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.command = exec.CommandContext(context.WithoutCancel(tb.Context()), program, "-D", "-e", "-f", s.config())
	s.command.Stderr = log
	if err := s.command.Start(); err != nil {
		tb.Fatalf("start sshd (Debian: openssh-server): %v", err)
	}
	for range 500 {
		var d net.Dialer
		if c, err := d.DialContext(tb.Context(), "tcp", s.Addr); err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatalf("sshd does not listen:\n%s", s.Log(tb))
}

// Kill kills it and all its sessions with SIGKILL. It may be called again.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if s.command == nil {
		return
	}
	sessions := s.Sessions(tb)
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	s.command = nil
	for _, pid := range sessions {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Sessions are the processes, other than the one that listens, that serve
// connections. Unless it runs as root a connection may have two.
func (s *Server) Sessions(tb testing.TB) []int {
	tb.Helper()
	return descendants(tb, s.command.Process.Pid)
}

// Cut kills what serves one of the connections.
func (s *Server) Cut(tb testing.TB) {
	tb.Helper()
	all := children(tb, s.command.Process.Pid)
	if len(all) == 0 {
		tb.Fatal("sshd serves no connection")
	}
	for _, pid := range append(descendants(tb, all[0]), all[0]) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// Signal sends a signal to all sessions.
func (s *Server) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	for _, pid := range slices.Backward(s.Sessions(tb)) {
		_ = syscall.Kill(pid, signal)
	}
}

// Log is what it has had to say.
func (s *Server) Log(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Port is the port in Addr.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

func (s *Server) config() string { return filepath.Join(s.Dir, "config") }

// Key makes a private key at this path and returns its public half.
func Key(tb testing.TB, path string) ssh.PublicKey {
	tb.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		tb.Fatal(err)
	}
	write(tb, path, string(pem.EncodeToMemory(block)))
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		tb.Fatal(err)
	}
	return public
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	var config net.ListenConfig
	l, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// descendants are the processes below this one.
func descendants(tb testing.TB, of int) []int {
	tb.Helper()
	all := []int{of}
	for i := 0; i < len(all); i++ {
		all = append(all, children(tb, all[i])...)
	}
	return all[1:]
}

// children are the processes whose parent this is.
func children(tb testing.TB, parent int) []int {
	tb.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	var pids []int
	for _, path := range processes {
		text, _ := os.ReadFile(path) // one that has gone has no parent
		_, afterName, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(afterName); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}
