package proxy

// AttemptBytes is what a remembered attempt counts.
const AttemptBytes = attemptBytes

// KeptForRetries is how many bytes count as kept for retries.
func (p *Proxy) KeptForRetries() int64 {
	p.attempts.mu.Lock()
	defer p.attempts.mu.Unlock()
	return p.attempts.bytes
}

// BodyBytes is how much of the room for bodies is held.
func (p *Proxy) BodyBytes() int64 {
	p.bodies.mu.Lock()
	defer p.bodies.mu.Unlock()
	return p.bodies.room - p.bodies.free
}

// A BodyPool keeps memory for bodies.
type BodyPool struct{ pool bodyPool }

// Body gives memory for a body of that size, and how to give it back.
func (p *BodyPool) Body(size int) (body []byte, recycle func()) {
	m := &bodyMemory{pool: &p.pool}
	return m.grow(nil, size)[:size], m.recycle
}

// Unused is how many bytes are kept that nobody uses.
func (p *BodyPool) Unused() int {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	return p.pool.bytes
}

// UnusedBodies is the same of a Proxy's.
func (p *Proxy) UnusedBodies() int {
	p.bodyPool.mu.Lock()
	defer p.bodyPool.mu.Unlock()
	return p.bodyPool.bytes
}
