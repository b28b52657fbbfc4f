package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muxproxy/muxproxy/nonblock"
)

var (
	// errUnsent means that a connection broke before one byte was written to it.
	errUnsent = errors.New("not one byte was written")
	// errClosed is what reading a body gives after it was closed.
	errClosed = errors.New("the answer is closed")
)

const (
	// readSize is how much is read at once of a connection before its answer's body.
	readSize = 4 << 10
	// maxTogether is how long a body may be to leave in one piece with its header.
	maxTogether = 64 << 10
	// refusalGrace is how long an answer is waited for that a replica may have
	// given before it closed its connection on a request.
	refusalGrace = time.Second
)

// exchange is one request and its answer on a connection. It is the body of the
// answer, for one reader. The connection goes back to the pool when the body was
// read to its end, and is closed otherwise.
type exchange struct {
	pool     *direct
	conn     *connection
	ctx      context.Context // the call's, which ends with the body
	unwatch  func() bool     // keeps the end of ctx from closing the connection
	message  *message        // until it has been written
	buffer   *[]byte         // that it is written from in one piece
	upload   *upload         // of a long request; nil when it left in one piece
	response http.Response
	held     atomic.Bool // conn is the call's: whoever clears it decides on its end
	broke    error       // what cut the request short

	mu       sync.Mutex    // guards what follows
	reader   *bufio.Reader // of the header; nil once nothing is left in it
	framing  framing
	reusable bool
	err      error // what reading gives from now on
}

// run sends the request and reads the header of the answer. The error matches
// errUnsent when the connection took nothing of the request.
func (x *exchange) run(m *message) error {
	x.held.Store(true)
	x.reusable = true
	x.unwatch = afterFunc(x.ctx, x.conn.abort)
	err := x.send(m)
	if err == nil {
		err = x.receive(m.method == http.MethodHead)
	}
	if err == nil {
		return nil
	}
	if broke := x.failedToSend(); broke != nil {
		err = broke // and so no answer came
	}
	x.release(false)
	if x.upload != nil && x.upload.n == 0 {
		err = fmt.Errorf("%w: %w", errUnsent, err)
	}
	return x.cause(err)
}

// afterFunc is [context.AfterFunc], without a context between ctx and f where ctx
// itself can do it.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if direct, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return direct.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// isWritten implements sending.
func (x *exchange) isWritten() bool {
	return x.broke == nil && (x.upload == nil || x.upload.succeeds(0))
}

// failedToSend is what has cut the request short until now.
func (x *exchange) failedToSend() error {
	if x.upload != nil {
		select {
		case <-x.upload.ended:
			return x.upload.err
		default:
		}
	}
	return x.broke
}

// send writes the request, or begins to.
func (x *exchange) send(m *message) error {
	x.message, x.buffer = m, x.pool.buffer()
	b, err := m.appendHead((*x.buffer)[:0])
	if err != nil {
		return &DialError{Replica: x.pool.replica.target.replica, Err: err}
	}
	if len(m.body) > maxTogether {
		if x.conn.used && !nonblock.Quiet(x.conn.Conn) {
			return errUnsent
		}
		x.message, x.buffer = nil, nil // the upload's
		x.upload = startUpload(x.conn, b, m)
		return nil
	}
	b = append(b, m.body...)
	*x.buffer = b
	// Whoever is ready comes first: writes right after each other wake a peer once.
	runtime.Gosched()
	n, err := x.write(b)
	switch {
	case err == nil:
		return nil
	case n == 0:
		return fmt.Errorf("%w: %w", errUnsent, err)
	default:
		x.reusable, x.broke = false, err
		x.conn.awaitRefusal()
		return nil
	}
}

// write writes the request in one piece. On a connection that was idle it waits for
// the answer too; a new one may have been answered already, with a refusal.
func (x *exchange) write(b []byte) (int, error) {
	if x.conn.used {
		return nonblock.Ask(x.conn.Conn, b, x)
	}
	n, err := x.conn.Write(b)
	if err == nil {
		x.Written()
	}
	return n, err
}

// Written implements nonblock.Request: it lets go of the request's memory.
func (x *exchange) Written() {
	x.pool.buffers.Put(x.buffer)
	x.message.written()
	x.buffer, x.message = nil, nil
}

// receive reads the header of the answer.
func (x *exchange) receive(toHead bool) error {
	x.reader = x.pool.reader(x.conn)
	err := readHead(x.reader, &x.response)
	if err == nil {
		x.framing, err = frame(&x.response, toHead)
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", noEOF(err))
	}
	x.reusable = x.reusable && !x.response.Close
	x.response.Body = x
	if x.framing.kind == bodyNone {
		x.finish()
	}
	return nil
}

// Read implements io.Reader. It gives what there is without waiting for more, and
// io.EOF with the last of it.
func (x *exchange) Read(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil || len(p) == 0 {
		return 0, x.err
	}
	n, err := x.read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		x.finish()
	default:
		x.release(false)
		x.err = x.cause(err)
	}
	return n, x.err
}

func (x *exchange) read(p []byte) (n int, err error) {
	for err == nil && n < len(p) && (n == 0 || len(x.unread()) > 0) {
		var k int
		k, err = x.framing.read((*rest)(x), p[n:])
		n += k
	}
	return n, err
}

// A rest is an exchange whose header has been read: what came with that, and then
// the connection itself. A body is read straight to where it is wanted; a silent
// stream holds no buffer for what may come.
type rest exchange

// Read implements io.Reader.
func (x *rest) Read(p []byte) (int, error) {
	if x.reader != nil && x.reader.Buffered() > 0 {
		return x.reader.Read(p)
	}
	(*exchange)(x).recycle()
	return x.conn.Read(p)
}

func (x *exchange) recycle() {
	if x.reader != nil {
		x.pool.recycle(x.reader)
		x.reader = nil
	}
}

// unread is what is left of what came with the header.
func (x *exchange) unread() []byte {
	if x.reader == nil {
		return nil
	}
	b, _ := x.reader.Peek(x.reader.Buffered()) // it is there
	return b
}

// Close implements io.Closer. It ends a Read that waits.
func (x *exchange) Close() error {
	if !x.mu.TryLock() {
		if x.held.Swap(false) {
			x.conn.abort()
		}
		x.mu.Lock()
	}
	defer x.mu.Unlock()
	if x.err == nil && x.framing.skip(x.unread()) {
		x.release(x.reusable && !x.framing.beyond)
	}
	x.release(false)
	x.err = errClosed
	return nil
}

// finish ends an answer that was read to its end.
func (x *exchange) finish() {
	x.err = io.EOF
	x.release(x.reusable && !x.framing.beyond && len(x.unread()) == 0)
}

// release lets go of the connection, if that was not done before.
func (x *exchange) release(reuse bool) {
	if x.unwatch == nil {
		return
	}
	reuse = reuse && (x.upload == nil || x.upload.succeeds(uploadGrace))
	reuse = x.unwatch() && x.held.Swap(false) && reuse
	x.unwatch = nil
	x.recycle()
	if reuse {
		x.conn.used = true
		x.pool.put(x.conn)
		return
	}
	x.conn.abort()
	if x.upload != nil {
		<-x.upload.ended
	}
}

// cause is why the call ended, if it did, or else err.
func (x *exchange) cause(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}

// noEOF makes an end that came too early an error that cannot be taken for one
// in time.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
