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
