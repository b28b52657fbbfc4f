package admin

import (
	"net/http"
	"time"
)

const (
	// stallTimeout is how long a reader may keep one piece of an answer waiting.
	stallTimeout = time.Minute
	// piece is what is written under one deadline.
	piece = 256 << 10
)

// patientWriter writes answers that may be long. A reader may be slow, but not
// stand still: each piece has its own deadline, where connections have them.
type patientWriter struct {
	w http.ResponseWriter
	*http.ResponseController
}

func (p *patientWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		_ = p.SetWriteDeadline(time.Now().Add(stallTimeout))
		var m int
		m, err = p.w.Write(b[:min(len(b), piece)])
		n, b = n+m, b[m:]
	}
	_ = p.SetWriteDeadline(time.Time{})
	return n, err
}
