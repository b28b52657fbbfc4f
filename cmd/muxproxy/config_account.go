package main

import (
	"cmp"
	"os/user"
	"path/filepath"
	"strings"
)

// account is the user that the daemon runs as, so far as the environment says;
// what it does not say is empty.
type account struct {
	Name     string
	Home     string
	SSHAgent string   // the socket of the user's agent
	CacheDir string   // where the user's processes keep what they share
	Environ  []string // without this program's own variables, for other programs
}

func accountOf(vars map[string]string) account {
	a := account{Name: cmp.Or(vars["USER"], vars["LOGNAME"]), Home: vars["HOME"], SSHAgent: vars["SSH_AUTH_SOCK"]}
	if me, err := user.Current(); a.Name == "" && err == nil {
		a.Name = me.Username
	}
	switch {
	case filepath.IsAbs(vars["XDG_CACHE_HOME"]):
		a.CacheDir = vars["XDG_CACHE_HOME"]
	case a.Home != "":
		a.CacheDir = filepath.Join(a.Home, ".cache")
	}
	for _, name := range sortedKeys(vars) {
		if !strings.HasPrefix(name, prefix) {
			a.Environ = append(a.Environ, name+"="+vars[name])
		}
	}
	return a
}
