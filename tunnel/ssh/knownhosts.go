package ssh

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knownHosts is what a file of known hosts says of one server.
type knownHosts struct {
	path, addr string
	callback   ssh.HostKeyCallback
	// algorithms are those of the keys in the file; nil when it has none. A server
	// has keys of several kinds, and must be asked for one that can be checked.
	algorithms []string
}

// readKnownHosts reads the file. One that is not there knows nobody.
func readKnownHosts(path, addr string) (*knownHosts, error) {
	callback, err := knownhosts.New(path)
	if missing(err) {
		callback, err = knownhosts.New()
	}
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	k := &knownHosts{path: path, addr: addr, callback: callback}
	k.algorithms, err = k.known()
	return k, err
}

// known finds the algorithms of the server's keys by asking about a key that
// nobody has.
func (k *knownHosts) known() ([]string, error) {
	nobodys, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil, err
	}
	unknown, ok := errors.AsType[*knownhosts.KeyError](k.callback(k.addr, &net.TCPAddr{}, nobodys))
	if !ok {
		return nil, nil
	}
	var algorithms []string
	for _, want := range unknown.Want {
		kind := want.Key.Type()
		if slices.Contains(algorithms, kind) {
			continue
		}
		if kind == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		}
		algorithms = append(algorithms, kind)
	}
	return algorithms, nil
}

// check tells why the key is not the server's, and what to do about it.
func (k *knownHosts) check(remote net.Addr, key ssh.PublicKey) error {
	err := k.callback(k.addr, remote, key)
	if err == nil {
		return nil
	}
	fingerprint := ssh.FingerprintSHA256(key)
	problem, ok := errors.AsType[*knownhosts.KeyError](err)
	switch {
	case !ok:
		return fmt.Errorf("check the key of %s, %s %s: %w", k.addr, key.Type(), fingerprint, err)
	case len(problem.Want) == 0:
		line := knownhosts.Line([]string{knownhosts.Normalize(k.addr)}, key)
		return fmt.Errorf("the key of %s is unknown: if its fingerprint is really %s, add this line to %s: %s", k.addr, fingerprint, k.path, line)
	default:
		was := problem.Want[0]
		return fmt.Errorf("the key of %s is not the one in %s, line %d, but %s %s: somebody may be listening in, or the server was set up anew", k.addr, was.Filename, was.Line, key.Type(), fingerprint)
	}
}
