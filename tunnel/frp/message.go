package frp

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A message is a byte that says of which kind it is, the length of what follows
// as a big-endian int64, and so much JSON.
const (
	kindLogin         = 'o'
	kindLoginResp     = '1'
	kindNewProxy      = 'p'
	kindNewProxyResp  = '2'
	kindReqWorkConn   = 'r'
	kindNewWorkConn   = 'w'
	kindStartWorkConn = 's'
	kindPing          = 'h'
	kindPong          = '4'
)

const (
	messageHeader = 1 + 8
	// maxMessage is how much JSON both sides take.
	maxMessage = 10240
)

// errMessage says that what the peer sent is no message.
var errMessage = errors.New("malformed message")

type login struct {
	Version      string            `json:"version,omitempty"`
	OS           string            `json:"os,omitempty"`
	Arch         string            `json:"arch,omitempty"`
	User         string            `json:"user,omitempty"`
	PrivilegeKey string            `json:"privilege_key,omitempty"`
	Timestamp    int64             `json:"timestamp,omitempty"`
	RunID        string            `json:"run_id,omitempty"`
	Metas        map[string]string `json:"metas,omitempty"`
	PoolCount    int               `json:"pool_count,omitempty"`
}

type loginResp struct {
	RunID string `json:"run_id"`
	Error string `json:"error"`
}

type newProxy struct {
	Name       string `json:"proxy_name"`
	Type       string `json:"proxy_type"`
	Subdomain  string `json:"subdomain,omitempty"`
	RemotePort int    `json:"remote_port,omitempty"`
}

type newProxyResp struct {
	Name       string `json:"proxy_name"`
	RemoteAddr string `json:"remote_addr"`
	Error      string `json:"error"`
}

type newWorkConn struct {
	RunID        string `json:"run_id"`
	PrivilegeKey string `json:"privilege_key"`
	Timestamp    int64  `json:"timestamp"`
}

type startWorkConn struct {
	SrcAddr string `json:"src_addr"`
	SrcPort uint16 `json:"src_port"`
	Error   string `json:"error"`
}

type ping struct {
	PrivilegeKey string `json:"privilege_key"`
	Timestamp    int64  `json:"timestamp"`
}

type pong struct {
	Error string `json:"error"`
}

// writeMessage writes it in one piece.
func writeMessage(w io.Writer, kind byte, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode message %q: %w", kind, err)
	}
	if len(text) > maxMessage {
		return fmt.Errorf("encode message %q: %d bytes, at most %d are taken", kind, len(text), maxMessage)
	}
	message := append(make([]byte, 0, messageHeader+len(text)), kind)
	message = binary.BigEndian.AppendUint64(message, uint64(len(text)))
	if _, err := w.Write(append(message, text...)); err != nil {
		return fmt.Errorf("write message %q: %w", kind, err)
	}
	return nil
}

// readMessage reads one message and not a byte more.
func readMessage(r io.Reader) (kind byte, content []byte, err error) {
	var header [messageHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, fmt.Errorf("read message: %w", err)
	}
	length := binary.BigEndian.Uint64(header[1:])
	if length > maxMessage {
		return 0, nil, fmt.Errorf("%w: %d bytes of %q, at most %d are taken", errMessage, length, header[0], maxMessage)
	}
	content = make([]byte, length)
	if _, err := io.ReadFull(r, content); err != nil {
		return 0, nil, fmt.Errorf("read message %q: %w", header[0], err)
	}
	return header[0], content, nil
}

// decode reads a message's content.
func decode[T any](content []byte) (T, error) {
	var message T
	if err := json.Unmarshal(content, &message); err != nil {
		return message, fmt.Errorf("%w: %w", errMessage, err)
	}
	return message, nil
}

// expect reads a message that can only be of this kind.
func expect[T any](r io.Reader, kind byte) (T, error) {
	got, content, err := readMessage(r)
	if err == nil && got != kind {
		err = fmt.Errorf("%w: %q where %q was due", errMessage, got, kind)
	}
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](content)
}
