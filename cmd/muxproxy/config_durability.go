package main

import "time"

// The values of DURABILITY.
const (
	durabilityMemory = "memory" // no journal
	durabilityWrite  = "write"  // what is recorded outlasts the process
	durabilityFsync  = "fsync"  // and the machine
)

// How long an ended session's trace can be read by default: memory is dearer
// than disk.
const (
	retentionInMemory = time.Hour
	retentionOnDisk   = 168 * time.Hour
)

// checkDurability fills in what follows from there being a state directory.
func (p *problems) checkDurability(cfg *Config) {
	if cfg.Durability == "" {
		cfg.Durability = durabilityMemory
		if cfg.StateDir != "" {
			cfg.Durability = durabilityWrite
		}
	}
	switch cfg.Durability {
	case durabilityMemory:
	case durabilityWrite, durabilityFsync:
		if cfg.StateDir == "" {
			p.add("STATE_DIR", "required, because %sDURABILITY is %s; accepts %s", prefix, cfg.Durability, fieldOf("STATE_DIR").Tag.Get("accepts"))
		}
	default:
		p.refuse("DURABILITY")
	}
	if cfg.TraceRetention == nil {
		cfg.TraceRetention = new(retentionInMemory)
		if cfg.Durability != durabilityMemory {
			cfg.TraceRetention = new(retentionOnDisk)
		}
	}
}
