package proxy

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// A bodyMemory is what the body of one request is read into, with room on both sides
// for what a session's overrides add to it. It comes from a pool and goes back there
// when nothing needs the body any more: a request of a megabyte would otherwise cost
// more to find memory for, and to clear it, than to relay.
type bodyMemory struct {
	pool  *bodyPool
	block []byte // nil is none of the pool's
}

const (
	editRoom = 1 << 10 // on each side of a body
	minBlock = 12      // the smallest block is for 4 KiB,
	maxBlock = 24      // the largest one for 16 MiB; a larger body's memory is not kept

	mostUnused = 64 << 20        // bytes that are kept though nobody needs them,
	keptUnused = 5 * time.Second // and for how long, or twice that
)

// grow gives body room for at least n bytes more, as [slices.Grow] does. It must be
// given what it gave before, or nil.
func (m *bodyMemory) grow(body []byte, n int) []byte {
	class := max(bits.Len(uint(max(len(body)+n, 1)-1)), minBlock) //nolint:gosec // a length
	if class > maxBlock {
		m.block = nil
		return slices.Grow(body, n)
	}
	block := m.pool.take(class)
	text := block[editRoom : len(block)-editRoom]
	copy(text, body)
	m.recycle()
	m.block = block
	return text[:len(body)]
}

// lend lets a request whose body is in the memory use the room around it.
func (m *bodyMemory) lend(r *dialect.Request) {
	if m.block != nil {
		r.Own(m.block, editRoom)
	}
}

// recycle gives the memory back. Nothing of the body may be used from then on.
func (m *bodyMemory) recycle() {
	if m.block != nil {
		scrub(m.block)
		m.pool.put(m.block)
		m.block = nil
	}
}

// bodyPool keeps memory for bodies that is not in use. It gives what came back last,
// which the processor's caches still have. A [sync.Pool] would have its own for each
// processor, and nothing for a call that goes on on another.
type bodyPool struct {
	mu      sync.Mutex
	unused  [maxBlock - minBlock + 1]unusedBlocks // by their size
	bytes   int                                   // of all of them
	tidying *time.Timer                           // for tidy; nil is that there is nothing to do
}

// unusedBlocks are of one size.
type unusedBlocks struct {
	blocks [][]byte // the one that came back last is the last
	idle   int      // how many of them, from the first on, have not been needed since the last tidying
}

func (p *bodyPool) take(class int) []byte {
	p.mu.Lock()
	of := &p.unused[class-minBlock]
	last := len(of.blocks) - 1
	if last < 0 {
		p.mu.Unlock()
		return make([]byte, 1<<class+2*editRoom)
	}
	defer p.mu.Unlock()
	block := of.blocks[last]
	of.blocks[last] = nil
	of.blocks = of.blocks[:last]
	of.idle = min(of.idle, last)
	p.bytes -= len(block)
	return block
}

func (p *bodyPool) put(block []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+len(block) > mostUnused {
		return
	}
	class := bits.Len(uint(len(block)-2*editRoom)) - 1 //nolint:gosec // a length
	of := &p.unused[class-minBlock]
	of.blocks = append(of.blocks, block)
	p.bytes += len(block)
	if p.tidying == nil {
		p.tidying = time.AfterFunc(keptUnused, p.tidy)
	}
}

// tidy lets go of what has not been needed for a while.
func (p *bodyPool) tidy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.unused {
		of := &p.unused[i]
		for _, block := range of.blocks[:of.idle] {
			p.bytes -= len(block)
		}
		of.blocks = slices.Delete(of.blocks, 0, of.idle)
		of.idle = len(of.blocks)
	}
	p.tidying = nil
	if p.bytes > 0 {
		p.tidying = time.AfterFunc(keptUnused, p.tidy)
	}
}
