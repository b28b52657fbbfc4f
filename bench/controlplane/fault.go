package controlplane

import (
	"maps"
	"net/http"
	"time"
)

// Op is something that can be asked of a [ControlPlane].
type Op string

// The operations of the API, and those of frps.
const (
	Create     Op = "create"
	Get        Op = "get"
	Delete     Op = "delete"
	List       Op = "list"
	BulkDelete Op = "bulk delete"

	Login       Op = "Login"
	NewProxy    Op = "NewProxy"
	CloseProxy  Op = "CloseProxy"
	Ping        Op = "Ping"
	NewWorkConn Op = "NewWorkConn"
)

// A Fault replaces the answer to an operation. The zero value cuts the
// connection without an answer.
type Fault struct {
	// Status and Body are answered as they stand. Without a status there is no
	// answer.
	Status int
	Body   string
	// Header goes with them.
	Header http.Header
	// Hang keeps the request open until the client leaves or the fault is
	// lifted, and then cuts the connection.
	Hang bool
	// Late carries the operation out and loses only its answer.
	Late bool
	// Delay is a wait before all of this. With Pass the right answer follows
	// it.
	Delay time.Duration
	Pass  bool
	// Times is how many requests meet the fault; zero is all until it is lifted.
	Times int
}

type fault struct {
	Fault
	met    int
	lifted chan struct{}
}

// Fail makes an operation fail from now on, in place of its earlier fault.
func (c *ControlPlane) Fail(op Op, f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lift(op)
	c.faults[op] = &fault{Fault: f, lifted: make(chan struct{})}
}

// Mend lifts the faults of these operations, or all.
func (c *ControlPlane) Mend(ops ...Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ops) == 0 {
		for op := range c.faults {
			c.lift(op)
		}
	}
	for _, op := range ops {
		c.lift(op)
	}
}

// lift lets go of those who hang in the operation's fault. The caller holds mu.
func (c *ControlPlane) lift(op Op) {
	if f, ok := c.faults[op]; ok {
		close(f.lifted)
		delete(c.faults, op)
	}
}

// fault is what this request meets, nil for none.
func (c *ControlPlane) fault(op Op) *fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.faults[op]
	if !ok || f.Times > 0 && f.met >= f.Times {
		return nil
	}
	f.met++
	return f
}

// serve fails the request, unless the fault is one of time alone.
func (f *fault) serve(w http.ResponseWriter, r *http.Request) (done bool) {
	if !wait(r, f.Delay) {
		panic(http.ErrAbortHandler)
	}
	if f.Pass {
		return false
	}
	if f.Hang {
		select {
		case <-r.Context().Done():
		case <-f.lifted:
		}
	}
	if f.Status == 0 || f.Hang {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), f.Header)
	answer(w, f.Status, []byte(f.Body))
	return true
}

// wait waits, and says whether the client is still there.
func wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
