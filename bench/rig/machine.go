package rig

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"time"
)

// Machine is what results were measured on, and when.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	Date  string `json:"date"`
}

// ThisMachine is the one that this process runs on, today.
func ThisMachine() Machine {
	return Machine{CPU: cpuName(), Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().Format(time.DateOnly)}
}

func cpuName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
