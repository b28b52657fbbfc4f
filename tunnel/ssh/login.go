package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/muxproxy/muxproxy/tunnel"
)

var errNoKey = errors.New("no key to log in to the SSH server with: none in an agent, and no id_ed25519, id_ecdsa or id_rsa without a passphrase")

// login is what one connection logs in with, and what became of it.
type login struct {
	signers []ssh.Signer
	hosts   *knownHosts
	agent   net.Conn // nil without an agent; signers work as long as it is open

	asked   bool  // the server has shown its key and wants to see ours
	hostKey error // why its key was not good enough
}

// login reads the keys and the known hosts.
func (d *Driver) login(ctx context.Context) (*login, error) {
	hosts, err := readKnownHosts(d.o.knownHosts(), d.o.Addr)
	if err != nil {
		return nil, &tunnel.ConfigError{Err: err}
	}
	l := &login{hosts: hosts}
	if err := l.findKeys(ctx, &d.o); err != nil {
		l.close()
		return nil, &tunnel.ConfigError{Err: err}
	}
	return l, nil
}

func (l *login) close() {
	if l.agent != nil {
		_ = l.agent.Close()
	}
}

// config is for one handshake.
func (l *login) config(user string) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User: user,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			l.asked = true
			return l.signers, nil
		})},
		HostKeyAlgorithms: l.hosts.algorithms,
		HostKeyCallback: func(_ string, remote net.Addr, key ssh.PublicKey) error {
			l.hostKey = l.hosts.check(remote, key)
			return l.hostKey
		},
		ClientVersion: "SSH-2.0-muxproxy",
	}
}

// findKeys takes the key of the file that is named or, if none is, those of the
// agent and then those with usual names.
func (l *login) findKeys(ctx context.Context, o *Options) error {
	held, noAgent := l.askAgent(ctx, o.AgentSocket)
	if o.KeyFile != "" {
		signer, err := readKey(o.KeyFile, held)
		if err != nil {
			return errors.Join(err, noAgent)
		}
		l.signers = []ssh.Signer{signer}
		return nil
	}
	l.signers = held
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		if o.Dir == "" {
			break
		}
		signer, err := readKey(filepath.Join(o.Dir, name), nil)
		if err == nil && !slices.ContainsFunc(held, func(h ssh.Signer) bool { return same(h.PublicKey(), signer.PublicKey()) }) {
			l.signers = append(l.signers, signer)
		}
	}
	if len(l.signers) == 0 {
		return errors.Join(errNoKey, noAgent)
	}
	return nil
}

// askAgent returns the keys that the agent holds.
func (l *login) askAgent(ctx context.Context, socket string) ([]ssh.Signer, error) {
	if socket == "" {
		return nil, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the SSH agent: %w", err)
	}
	l.agent = conn
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	held, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil, fmt.Errorf("ask the SSH agent for keys: %w", err)
	}
	return held, nil
}

// readKey reads a private key, or finds it among those of the agent when it has
// a passphrase.
func readKey(path string, held []ssh.Signer) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	locked, ok := errors.AsType[*ssh.PassphraseMissingError](err)
	if !ok {
		if err != nil {
			return nil, fmt.Errorf("read key %s: %w", path, err)
		}
		return signer, nil
	}
	for _, h := range held {
		if locked.PublicKey != nil && same(h.PublicKey(), locked.PublicKey) {
			return h, nil
		}
	}
	return nil, fmt.Errorf("key %s has a passphrase and is not in an SSH agent", path)
}

func same(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// knownHosts is the path of the file.
func (o *Options) knownHosts() string {
	if o.KnownHosts != "" {
		return o.KnownHosts
	}
	return filepath.Join(o.Dir, "known_hosts")
}

// missing tells whether the error is that there is no such file.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
