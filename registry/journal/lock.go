package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock is the right to write in a state directory. The kernel takes it back when the process dies, however it dies.
type lock struct{ file *os.File }

// LockedError says that another process has the state directory.
type LockedError struct {
	Dir string
	PID string // as that process says; "" if it says none
}

func (e *LockedError) Error() string {
	owner := "another muxproxy"
	if e.PID != "" {
		owner += " (process " + e.PID + ")"
	}
	return fmt.Sprintf("state directory %s is in use by %s: give each its own", e.Dir, owner)
}

func acquire(dir string) (*lock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := io.ReadAll(io.LimitReader(file, 20)) // it is for the message alone
		return nil, errors.Join(&LockedError{Dir: dir, PID: strings.TrimSpace(string(pid))}, file.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
	}
	// Who has it is for the message alone, too: a full disk is no reason not to start.
	if file.Truncate(0) == nil {
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &lock{file}, nil
}

func (l *lock) release() error { return l.file.Close() }
