package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What is measured alone has one core for itself; load and upstream share the
// other.
const (
	targetCore = 0
	loadCore   = 1
)

// PinLoad keeps this process off the core of what is measured.
func PinLoad() error {
	var set unix.CPUSet
	set.Set(loadCore)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return err
		}
	}
	return nil
}

// CPUTime is the user and system time of a process, by its own clock
// (clock_getcpuclockid(3)), which is exact where /proc counts ticks.
func CPUTime(pid int) (time.Duration, error) {
	const schedulerClock = 2
	clock := int32(^pid)<<3 | schedulerClock
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// Resident is the memory that a process has in core, in bytes.
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
