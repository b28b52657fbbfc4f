package frp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// After the login both sides encrypt the control stream under the token, each
// with an initialisation vector of its own, which it sends first. That hides
// and authenticates nothing that TLS does not; it is what the protocol says.
const (
	controlSalt       = "frp"
	controlIterations = 64
)

// privilegeKey proves knowledge of the token.
func privilegeKey(token string, timestamp int64) string {
	sum := md5.Sum([]byte(token + strconv.FormatInt(timestamp, 10)))
	return hex.EncodeToString(sum[:])
}

// encryptControl is the control stream as both sides go on after the login.
func encryptControl(stream io.ReadWriter, token string) (io.Reader, io.Writer, error) {
	key, err := pbkdf2.Key(sha1.New, token, []byte(controlSalt), controlIterations, aes.BlockSize)
	if err != nil {
		return nil, nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make cipher: %w", err)
	}
	iv := make([]byte, aes.BlockSize)
	_, _ = rand.Read(iv) // never fails
	if _, err := stream.Write(iv); err != nil {
		return nil, nil, fmt.Errorf("write initialisation vector: %w", err)
	}
	encrypter := cipher.NewCFBEncrypter(block, iv) //nolint:staticcheck // the protocol's
	return &decrypter{stream: stream, block: block}, cipher.StreamWriter{S: encrypter, W: stream}, nil
}

// decrypter decrypts from the peer's initialisation vector on.
type decrypter struct {
	stream io.Reader
	block  cipher.Block
	cipher cipher.Stream // nil before the vector came
}

// Read waits for the vector first.
func (d *decrypter) Read(p []byte) (int, error) {
	if d.cipher == nil {
		iv := make([]byte, aes.BlockSize)
		if _, err := io.ReadFull(d.stream, iv); err != nil {
			return 0, err
		}
		d.cipher = cipher.NewCFBDecrypter(d.block, iv) //nolint:staticcheck // the protocol's
	}
	n, err := d.stream.Read(p)
	d.cipher.XORKeyStream(p[:n], p[:n])
	return n, err
}
