package tunnel

import "sync"

// Condition is what a [Tunnel] tells of itself, for drivers to embed: they say
// it with Become and End, and whoever uses the tunnel hears it by the methods
// of the interface. The zero value is up. It is safe for concurrent use.
type Condition struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // nil as long as nobody waits
	done    chan struct{} // likewise
	err     error         // not nil from End on
}

// State is what Become said last.
func (c *Condition) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Changed is closed at the next Become.
func (c *Condition) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Become says that the state is this one now.
func (c *Condition) Become(state State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Done is closed by End.
func (c *Condition) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err is what End said first, and nil before.
func (c *Condition) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// End says why the tunnel is done, which must not be nil. Only the first one
// counts.
func (c *Condition) End(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
}
