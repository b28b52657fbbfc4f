package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime/debug"
)

// build is what the toolchain wrote into the binary.
type build struct {
	version  string // of the module; "devel" when not built from a release
	revision string // of the repository; "unknown" when not built from one
	goVer    string
}

func readBuild() build {
	b := build{version: "devel", revision: "unknown", goVer: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.revision = cmp.Or(s.Value, b.revision)
		}
	}
	b.goVer = info.GoVersion
	return b
}

// version prints what was built.
func version(_ context.Context, p process, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	b := readBuild()
	_, err := fmt.Fprintf(p.stdout, "muxproxy %s (revision %s, %s)\n", b.version, b.revision, b.goVer)
	return err
}
