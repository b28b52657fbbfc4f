package pacing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long the folder's lock may be held by others, who need it for moments,
// and how often it is tried.
const (
	lockTimeout = 5 * time.Second
	firstTry    = time.Millisecond
	lastTry     = 16 * time.Millisecond
)

// errLocked means that another process holds the lock and does not go on.
var errLocked = errors.New("locked by another process")

// book is where the cursor is kept, and how many wait: in memory, and in a
// folder when it is shared.
type book struct {
	busy    chan struct{} // capacity 1, held by whoever uses what follows
	cursor  cursor        // when it is not shared
	waiting int           // of this process

	path  string   // of the cursor in the folder; empty when it is not shared
	own   string   // path of this process's file, which is there while some wait
	mine  *os.File // that file, locked; nil when it is not there
	shown int      // what it says
}

// share makes the folder and names the files in it.
func (b *book) share(dir, key string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	hash := sha256.Sum256([]byte("muxproxy pacing " + key))
	b.path = filepath.Join(dir, "pace-"+hex.EncodeToString(hash[:12]))
	b.own = b.path + "." + rand.Text()
	return nil
}

// update lets f read and change the book. When it fails, waiting is as before.
func (b *book) update(ctx context.Context, f func(*cursor)) (err error) {
	select {
	case b.busy <- struct{}{}:
		defer func() { <-b.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if b.path == "" {
		b.cursor.settle(time.Now())
		f(&b.cursor)
		return nil
	}
	file, err := os.OpenFile(b.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open cursor: %w", err)
	}
	defer func() { _ = file.Close() }() // which unlocks it
	if err := lock(ctx, file); err != nil {
		return fmt.Errorf("lock %s: %w", b.path, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, cursorSize))
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	c, waiting := parseCursor(text, time.Now()), b.waiting
	defer func() {
		if err != nil {
			b.waiting = waiting
		}
	}()
	f(&c)
	if _, err := file.WriteAt(c.text(), 0); err != nil {
		return fmt.Errorf("write cursor: %w", err)
	}
	return b.show()
}

// drop counts one that waits no longer in memory alone; the folder gets to know
// with the next change.
func (b *book) drop() {
	b.busy <- struct{}{}
	b.waiting--
	<-b.busy
}

// show brings this process's file up to date.
func (b *book) show() error {
	switch {
	case b.waiting == b.shown:
		return nil
	case b.waiting == 0:
		_ = os.Remove(b.own)
		_ = b.mine.Close()
		b.mine, b.shown = nil, 0
		return nil
	case b.mine == nil:
		file, err := os.OpenFile(b.own, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("show who waits: %w", err)
		}
		if err := flock(file); err != nil {
			_ = file.Close()
			return fmt.Errorf("show who waits: %w", err)
		}
		b.mine = file
	}
	if _, err := b.mine.WriteAt(fmt.Appendf(nil, "%020d\n", b.waiting), 0); err != nil {
		return fmt.Errorf("show who waits: %w", err)
	}
	b.shown = b.waiting
	return nil
}

// others is how many wait in other processes, at most most in each, and removes
// what dead ones have left.
func (b *book) others(most int) int {
	if b.path == "" {
		return 0
	}
	paths, _ := filepath.Glob(b.path + ".*") // the pattern is well-formed
	n := 0
	for _, path := range paths {
		if path != b.own {
			n += min(waitingIn(path), most)
		}
	}
	return n
}

func waitingIn(path string) int {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	if flock(file) == nil {
		_ = os.Remove(path) // nobody holds it: its process is dead
		return 0
	}
	text, _ := io.ReadAll(io.LimitReader(file, 64))
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// lock waits for the lock without blocking, because whoever holds it may have
// been stopped.
func lock(ctx context.Context, file *os.File) error {
	deadline := time.Now().Add(lockTimeout)
	for try := firstTry; ; try = min(2*try, lastTry) {
		err := flock(file)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return errLocked
		}
		select {
		case <-time.After(try):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flock takes the lock of an open file or fails at once.
func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
