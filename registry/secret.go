package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// secretHash is all that is kept of a secret.
type secretHash [sha256.Size]byte

const (
	secretPrefix = "mxp_"
	minSecret    = 22 // characters of a base of 64 that hold 128 bits
	maxSecret    = 512
	maxID        = 128
)

func hashSecret(secret string) secretHash { return sha256.Sum256([]byte(secret)) }

// newSecret returns a secret with 130 random bits.
func newSecret() string { return secretPrefix + rand.Text() }

// NewID makes an id for a session whose client gave none.
func NewID() string { return "s-" + strings.ToLower(rand.Text()[:20]) }

func validSecret(secret string) bool {
	return len(secret) >= minSecret && len(secret) <= maxSecret &&
		!strings.ContainsFunc(secret, func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("_-.~", c) })
}

func validID(id string) bool {
	return id != "" && len(id) <= maxID && isAlphanumeric(rune(id[0])) &&
		!strings.ContainsFunc(id, func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("._-", c) })
}

func isAlphanumeric(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
