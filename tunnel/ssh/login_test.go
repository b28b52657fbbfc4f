package ssh_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cryptossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ssh"
	"github.com/muxproxy/muxproxy/tunnel/ssh/sshdtest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnUnknownHostIsRefusedWithTheLineToAdd(t *testing.T) {
	sshd := sshdtest.Start(t)
	known, err := os.ReadFile(sshd.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	o := options(sshd)
	for _, path := range []string{"absent", "empty"} {
		o.KnownHosts = filepath.Join(t.TempDir(), path)
		if path == "empty" {
			write(t, o.KnownHosts, "# nobody\n")
		}
		err := openError(t, o)
		if !is[*tunnel.ConfigError](err) || !strings.Contains(err.Error(), "SHA256:") {
			t.Errorf("%s: got %v; want a ConfigError with the fingerprint", path, err)
		}
		if !strings.Contains(err.Error(), o.KnownHosts+": "+strings.TrimSpace(string(known))) {
			t.Errorf("%s: got %v; want the line and the file", path, err)
		}
	}
	_, line, _ := strings.Cut(openError(t, o).Error(), o.KnownHosts+": ")
	write(t, o.KnownHosts, line+"\n")
	open(t, o, text("hello"))
}

func TestAChangedHostKeyIsRefused(t *testing.T) {
	sshd, other := sshdtest.Start(t), sshdtest.Start(t)
	theirs, err := os.ReadFile(other.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	write(t, sshd.KnownHosts, strings.ReplaceAll(string(theirs), other.Port(), sshd.Port()))
	if err := openError(t, options(sshd)); !is[*tunnel.ConfigError](err) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %T %v; want a ConfigError with the line", err, err)
	}
}

func TestAServerIsAskedForTheKeyThatIsKnown(t *testing.T) {
	// sshd has two keys, of which the one that is usually taken is not in the file.
	dir := t.TempDir()
	generate := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", filepath.Join(dir, "rsa"))
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sshd := sshdtest.Start(t, "HostKey "+filepath.Join(dir, "rsa"))
	known, err := os.ReadFile(filepath.Join(dir, "rsa.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, sshd.KnownHosts, "["+strings.Replace(sshd.Addr, ":", "]:", 1)+" "+string(known))
	open(t, options(sshd), text("hello"))
}

func TestAWrongKeyIsAnAuthError(t *testing.T) {
	sshd := sshdtest.Start(t)
	sshdtest.Key(t, sshd.UserKey) // another one
	if err := openError(t, options(sshd)); !is[*tunnel.AuthError](err) {
		t.Errorf("got %T %v; want an AuthError", err, err)
	}
	o := options(sshd)
	o.User = "nobody-of-that-name"
	if err := openError(t, o); !is[*tunnel.AuthError](err) {
		t.Errorf("unknown user: got %T %v; want an AuthError", err, err)
	}
}

func TestAServerThatBreaksOffIsNoAuthError(t *testing.T) {
	// Every connection is dropped before anybody can log in.
	sshd := sshdtest.Start(t, "MaxStartups 1:100:1")
	first, err := net.Dial("tcp", sshd.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	eventually(t, "refusal", func() bool {
		up, err := driver(t, options(sshd)).Open(t.Context(), tunnel.Local{Serve: func(net.Conn) {}})
		if err == nil {
			_ = up.Close(context.Background())
			return false
		}
		if !is[*tunnel.TransientError](err) {
			t.Errorf("got %T %v; want a TransientError", err, err)
		}
		return true
	})
}

func TestKeysThatCannotBeUsedAreConfigErrors(t *testing.T) {
	sshd := sshdtest.Start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "garbage"), "no key")
	write(t, filepath.Join(dir, "garbage_hosts"), "not a line of known hosts\n")
	lock(t, sshd.UserKey, filepath.Join(dir, "locked"))
	for name, change := range map[string]func(*ssh.Options){
		"no file":         func(o *ssh.Options) { o.KeyFile = filepath.Join(dir, "absent") },
		"garbage":         func(o *ssh.Options) { o.KeyFile = filepath.Join(dir, "garbage") },
		"passphrase":      func(o *ssh.Options) { o.KeyFile = filepath.Join(dir, "locked") },
		"no key anywhere": func(o *ssh.Options) { o.KeyFile, o.Dir = "", dir },
		"no agent":        func(o *ssh.Options) { o.KeyFile, o.AgentSocket = "", filepath.Join(dir, "absent") },
		"hosts":           func(o *ssh.Options) { o.KnownHosts = filepath.Join(dir, "garbage_hosts") },
	} {
		o := options(sshd)
		change(&o)
		if err := openError(t, o); !is[*tunnel.ConfigError](err) {
			t.Errorf("%s: got %T %v; want a ConfigError", name, err, err)
		}
	}
}

// lock copies a private key and gives the copy a passphrase.
func lock(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(text))
	out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", to).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// runAgent is the socket of an agent that holds the key in the file.
func runAgent(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key, err := cryptossh.ParseRawPrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	keys := agent.NewKeyring()
	if err := keys.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _ = agent.ServeAgent(keys, conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return socket
}

func TestKeysOfTheAgentAndOfTheUsersFolderLogIn(t *testing.T) {
	sshd := sshdtest.Start(t)
	socket := runAgent(t, sshd.UserKey)
	locked := filepath.Join(t.TempDir(), "locked")
	lock(t, sshd.UserKey, locked)
	home := t.TempDir()
	for from, to := range map[string]string{sshd.UserKey: "id_ed25519", sshd.KnownHosts: "known_hosts"} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(home, to), string(data))
	}
	for name, change := range map[string]func(*ssh.Options){
		"agent":                  func(o *ssh.Options) { o.KeyFile, o.AgentSocket = "", socket },
		"file that agent opened": func(o *ssh.Options) { o.KeyFile, o.AgentSocket = locked, socket },
		"folder":                 func(o *ssh.Options) { o.KeyFile, o.KnownHosts, o.Dir = "", "", home },
		"folder, agent is gone":  func(o *ssh.Options) { o.KeyFile, o.Dir, o.AgentSocket = "", home, socket+"x" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(sshd)
			change(&o)
			if got, err := get(t, open(t, o, text("hello")).URL()); err != nil || got != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
