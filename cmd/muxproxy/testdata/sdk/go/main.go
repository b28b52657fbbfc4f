// Command checks drives the official OpenAI SDK for Go against a running muxproxy.
//
// Environment: OPENAI_BASE_URL, OPENAI_API_KEY and CHECK_KEY_{ENDED,STOPPED,ONE_TURN,CONTEXT,UNKNOWN}. Output: one JSON
// object a line for each check, then a summary. Exit status: 0 all passed, 1 one failed, 2 environment incomplete.
// ../README.md has the whole contract.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	module = "github.com/openai/openai-go/v3"
	budget = time.Minute // of one check
)

// check is one of the checks. Run returns what is wrong.
type check struct {
	name string
	run  func(context.Context) error
}

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout))
}

// run makes the checks whose name contains one of names, or all, and returns the exit status.
func run(names []string, getenv func(string) string, stdout io.Writer) int {
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	s, err := stageFrom(getenv)
	if err != nil {
		return status(out.Encode(map[string]string{"error": err.Error()}), 2)
	}
	count, failed := 0, 0
	for _, c := range slices.Concat(answers(s), formats(s), extensions(s), refusals(s), faults(s), loads(s)) {
		contained := func(name string) bool { return strings.Contains(c.name, name) }
		if len(names) > 0 && !slices.ContainsFunc(names, contained) {
			continue
		}
		count++
		line := outcome(c)
		if !line.OK {
			failed++
		}
		if err := out.Encode(line); err != nil {
			return status(err, 1)
		}
	}
	err = out.Encode(map[string]any{"checks": count, "failed": failed, "sdk": version()})
	if failed > 0 || count == 0 {
		return status(err, 1)
	}
	return status(err, 0)
}

// status is the exit status, which a failure to print makes 1.
func status(printing error, otherwise int) int {
	if printing != nil {
		return 1
	}
	return otherwise
}

// line is what is printed of a check.
type line struct {
	Check   string  `json:"check"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

func outcome(c check) line {
	began := time.Now()
	err := attempt(c)
	l := line{Check: c.name, OK: err == nil, Seconds: math.Round(time.Since(began).Seconds()*1000) / 1000}
	if err != nil {
		l.Error = err.Error()
	}
	return l
}

// attempt runs a check within its budget. A panic fails this check alone: answers are read without looking whether they
// have what is read.
func attempt(c check) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c.run(ctx)
}

// stage is what the program is given to check with.
type stage struct {
	baseURL string
	active  string            // secret of the session that most checks use
	keys    map[string]string // ENDED, STOPPED, ONE_TURN, CONTEXT, UNKNOWN
}

func stageFrom(getenv func(string) string) (stage, error) {
	var missing []string
	need := func(name string) string {
		value := getenv(name)
		if value == "" {
			missing = append(missing, name)
		}
		return value
	}
	s := stage{baseURL: need("OPENAI_BASE_URL"), active: need("OPENAI_API_KEY"), keys: map[string]string{}}
	for _, key := range []string{"ENDED", "STOPPED", "ONE_TURN", "CONTEXT", "UNKNOWN"} {
		s.keys[key] = need("CHECK_KEY_" + key)
	}
	if missing != nil {
		return s, errors.New("not set: " + strings.Join(missing, ", "))
	}
	return s, nil
}

// version is the SDK's, as the binary was linked with it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
