package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a number of events a second. Its text is a number, a slash and a unit
// of time: 500/m.
type Rate float64

// UnmarshalText reads a rate; it must be above zero.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(string(text), "/")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[strings.TrimSpace(unit)]
	if err != nil || per == 0 || !(n > 0) || math.IsInf(n, 0) {
		return fmt.Errorf("%q is not a rate", text)
	}
	*r = Rate(n / per.Seconds())
	return nil
}

// StaticServers are servers that something else makes reachable.
type StaticServers []StaticServer

// StaticServer is where a server listens, and the URL that leads to it.
type StaticServer struct{ URL, Addr string }

// UnmarshalText reads "https://a.example=127.0.0.1:9001,...".
func (s *StaticServers) UnmarshalText(text []byte) error {
	for entry := range strings.SplitSeq(string(text), ",") {
		at := strings.LastIndex(entry, "=")
		if at < 0 {
			return errors.New("not URL=host:port")
		}
		*s = append(*s, StaticServer{
			URL:  strings.TrimRight(strings.TrimSpace(entry[:at]), "/"),
			Addr: strings.TrimSpace(entry[at+1:]),
		})
	}
	return nil
}

// String is the list as it is written.
func (s StaticServers) String() string {
	entries := make([]string, len(s))
	for i, server := range s {
		entries[i] = server.URL + "=" + server.Addr
	}
	return strings.Join(entries, ",")
}

// Argv is a program and its arguments, which may hold credentials: only the
// program is ever printed.
type Argv []string

// UnmarshalText reads a JSON array of strings.
func (a *Argv) UnmarshalText(text []byte) error {
	if err := json.Unmarshal(text, (*[]string)(a)); err != nil {
		return errors.New("not a JSON array of strings")
	}
	if len(*a) == 0 || (*a)[0] == "" {
		return errors.New("no program")
	}
	return nil
}

// String is the program, and how many arguments follow it.
func (a Argv) String() string {
	if len(a) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, then %d hidden", a[0], len(a)-1)
}

// GoString hides the arguments from %#v as well.
func (a Argv) GoString() string { return a.String() }
