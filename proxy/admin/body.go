package admin

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// uploadTimeout is how long a client may pause while it sends a body.
const uploadTimeout = 30 * time.Second

// limitUpload cuts a client that stalls in the middle of its body. At the end of
// the body the deadline is taken back: left in place it would also cancel the
// request while it waits for a place.
func limitUpload(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &upload{ReadCloser: r.Body, conn: http.NewResponseController(w)}
		}
		next.ServeHTTP(w, r)
	})
}

// upload is a request body whose reads have a deadline, where the connection
// has deadlines at all.
type upload struct {
	io.ReadCloser
	conn    *http.ResponseController
	stalled bool // or broken; the deadline stays as it is
}

func (u *upload) Read(p []byte) (int, error) {
	_ = u.conn.SetReadDeadline(time.Now().Add(uploadTimeout))
	n, err := u.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = u.conn.SetReadDeadline(time.Time{})
	case err != nil:
		u.stalled = true
	}
	return n, err
}

// Close reads on for a while, so it needs a deadline too: the one that a stalled
// client has missed, or a new one.
func (u *upload) Close() error {
	if u.stalled {
		return u.ReadCloser.Close()
	}
	_ = u.conn.SetReadDeadline(time.Now().Add(uploadTimeout))
	err := u.ReadCloser.Close()
	_ = u.conn.SetReadDeadline(time.Time{})
	return err
}
