package command

import (
	"strings"
	"sync"
)

const (
	// tailLines and tailLine bound what of the output goes into an error.
	tailLines = 50
	tailLine  = 400
)

// output remembers the end of what a program printed on either pipe and, until
// it has answered, lets watch see every line. It is safe for concurrent use.
type output struct {
	mu    sync.Mutex
	tail  []string
	watch func(line string) (answered bool)
}

func (o *output) line(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == tailLines {
		copy(o.tail, o.tail[1:])
		o.tail = o.tail[:tailLines-1]
	}
	o.tail = append(o.tail, strings.ToValidUTF8(line[:min(len(line), tailLine)], ""))
	if o.watch != nil && o.watch(line) {
		o.watch = nil
	}
}

// String is what to show of it in an error.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == 0 {
		return "it printed nothing"
	}
	return "it printed:\n" + strings.Join(o.tail, "\n")
}
