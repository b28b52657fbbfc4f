package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// fallbackMemory is taken for the memory limit where nothing tells it.
const fallbackMemory = 4 << 30

// quarterOfMemory is what each of traces and request bodies may take where nothing is
// said: of the memory that the process may use.
func quarterOfMemory() ByteSize {
	return ByteSize(memoryLimit(os.DirFS("/"), debug.SetMemoryLimit(-1)) / 4)
}

// heedControlGroup makes the collector keep the process within the limit of its
// control group, under root, unless GOMEMLIMIT says what to keep to. The runtime does
// not know that limit, and the kernel kills who goes beyond it: for garbage, too. A
// tenth is left for what is not Go's, such as the buffers of sockets.
func heedControlGroup(root fs.FS, environ []string) (undo func()) {
	limit := cgroupLimit(root)
	set := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") })
	if total := meminfoTotal(root); set || limit == math.MaxInt64 || total > 0 && limit >= total {
		return func() {}
	}
	before := debug.SetMemoryLimit(limit / 10 * 9)
	return func() { debug.SetMemoryLimit(before) }
}

// ballast is memory that is never touched, so that it takes addresses alone. The
// collector lets the heap double before it runs; a proxy whose sessions are young
// has next to none, and would be collected every few hundred requests.
func ballast() []byte {
	const most, share = 128 << 20, 64 // a small part of a small machine
	return make([]byte, min(most, memoryLimit(os.DirFS("/"), debug.SetMemoryLimit(-1))/share))
}

// memoryLimit is the bytes that the process may use: the Go runtime's limit
// (GOMEMLIMIT; math.MaxInt64 is none), else the control group's, else the
// machine's memory, as the files under root, which is /, tell.
func memoryLimit(root fs.FS, goLimit int64) int64 {
	if goLimit < math.MaxInt64 {
		return goLimit
	}
	machine := int64(fallbackMemory)
	if total := meminfoTotal(root); total > 0 {
		machine = total
	}
	// A control group without a limit says "max" (version 2) or a number near
	// the largest (version 1).
	return min(machine, cgroupLimit(root))
}

// cgroupLimit is the smallest limit of the process's control group and the
// groups that hold it, math.MaxInt64 when there is none.
func cgroupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy-ID:controllers:path; version 2 has no controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var mount, file string
		switch parts[1] {
		case "":
			mount, file = "sys/fs/cgroup", "memory.max"
		case "memory":
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be the host's, under which only the
		// mount's own files are visible: all the way up is asked.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if n, ok := readNumber(root, path.Join(mount, group, file)); ok {
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}

func readNumber(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0
}

// meminfoTotal is the machine's memory in bytes, 0 when it is not known.
func meminfoTotal(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
