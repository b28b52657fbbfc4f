package proxy

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

// A bodyMemory is what the body of one request is read into, with room on both sides
// for what a session's overrides add to it. It comes from a pool and goes back there
// when nothing needs the body any more: a request of a megabyte would otherwise cost
// more to find memory for, and to clear it, than to relay.
type bodyMemory struct {
	pool  *bodyPool
	block *[]byte // nil is none of the pool's
}

// bodyPool keeps memory for bodies, each entry blocks of one size.
type bodyPool [maxBlock - minBlock + 1]sync.Pool

const (
	editRoom = 1 << 10 // on each side of a body
	minBlock = 12      // the smallest block is for 4 KiB,
	maxBlock = 22      // the largest one for 4 MiB; a larger body's memory is not kept
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
	text := (*block)[editRoom : len(*block)-editRoom]
	copy(text, body)
	m.recycle()
	m.block = block
	return text[:len(body)]
}

func (p *bodyPool) take(class int) *[]byte {
	if block, ok := p[class-minBlock].Get().(*[]byte); ok {
		return block
	}
	return new(make([]byte, 1<<class+2*editRoom))
}

// lend lets a request whose body is in the memory use the room around it.
func (m *bodyMemory) lend(r *dialect.Request) {
	if m.block != nil {
		r.Own(*m.block, editRoom)
	}
}

// recycle gives the memory back. Nothing of the body may be used from then on.
func (m *bodyMemory) recycle() {
	if m.block == nil {
		return
	}
	scrub(*m.block)
	class := bits.Len(uint(len(*m.block)-2*editRoom)) - 1 //nolint:gosec // a length
	m.pool[class-minBlock].Put(m.block)
	m.block = nil
}
