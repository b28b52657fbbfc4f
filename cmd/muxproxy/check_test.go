package main_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
)

// checked is what 'muxproxy check' prints for an environment of these
// variables, given without their prefix.
func checked(t *testing.T, env ...string) string {
	t.Helper()
	for i, v := range env {
		env[i] = "MUXPROXY_" + v
	}
	var out bytes.Buffer
	if err := main.Run(t.Context(), []string{"check"}, env, &out, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// shown is the value that check shows for a variable.
func shown(t *testing.T, report, name string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^MUXPROXY_` + name + ` +(.*)$`).FindStringSubmatch(report)
	if line == nil {
		t.Fatalf("%s is not in the report:\n%s", name, report)
	}
	return line[1]
}

func TestCheckShowsValuesAsAPersonWritesThem(t *testing.T) {
	report := checked(t, "IDLE_TIMEOUT=90s", "MAX_BODY_BYTES=536870912", "MAX_INFLIGHT_BYTES=1500MiB", "MAX_TRACE_BYTES=6319125504",
		"ADMIN_TOKEN=s3cr3t", "UPSTREAM_URL=http://user:s3cr3t@h", "UPSTREAM_API_KEY=s3cr3t", "UPSTREAM_HEADERS=X-A=s3cr3t")
	for name, want := range map[string]string{
		"LISTEN": "127.0.0.1:8080", "ADVERTISE_URL": "http://127.0.0.1:8080 (computed)", "READY_FILE": "-",
		"IDLE_TIMEOUT": "90s", "ADMIT_TIMEOUT": "60s", "LEASE": "1h",
		"MAX_BODY_BYTES": "512MiB", "MAX_INFLIGHT_BYTES": "1500MiB", "MAX_TRACE_BYTES": "5.9GiB",
		"ADMIN_TOKEN": "(hidden)", "UPSTREAM_URL": "http://user:xxxxx@h", "UPSTREAM_HEADERS": "X-A",
	} {
		if got := shown(t, report, name); got != want {
			t.Errorf("%s: got %q; want %q", name, got, want)
		}
	}
	if strings.Contains(report, "s3cr3t") {
		t.Errorf("the report holds a secret:\n%s", report)
	}
	if !strings.HasSuffix(report, "\nok\n") || strings.Contains(report, "warning") {
		t.Errorf("got\n%s\nwant no warning, and ok at the end", report)
	}
}

func TestCheckSaysThatAStateDirectoryIsNotUsedInMemory(t *testing.T) {
	const warning = "warning: MUXPROXY_STATE_DIR has no effect with MUXPROXY_DURABILITY=memory\n"
	dir := "STATE_DIR=" + t.TempDir()
	if report := checked(t, dir, "DURABILITY=memory"); !strings.Contains(report, warning) {
		t.Errorf("got\n%s\nwant %s", report, warning)
	}
	if report := checked(t, dir, "DURABILITY=write"); strings.Contains(report, warning) {
		t.Errorf("got\n%s\nwant no such warning", report)
	}
}

func TestCheckShowsWhatIsComputed(t *testing.T) {
	report := checked(t, "LISTEN=127.0.0.1:0")
	for _, name := range []string{"MAX_TRACE_BYTES", "MAX_INFLIGHT_BYTES"} {
		if got := shown(t, report, name); !regexp.MustCompile(`^[0-9.]+[MG]iB \(computed\)$`).MatchString(got) {
			t.Errorf("%s: got %q; want a size that is computed", name, got)
		}
	}
	for name, want := range map[string]string{"STATE_DIR": "-", "DURABILITY": "memory (computed)", "TRACE_RETENTION": "1h (computed)"} {
		if got := shown(t, report, name); got != want {
			t.Errorf("%s: got %q; want %q", name, got, want)
		}
	}
	durable := checked(t, "STATE_DIR=/var/lib/muxproxy")
	for name, want := range map[string]string{"DURABILITY": "write (computed)", "TRACE_RETENTION": "168h (computed)"} {
		if got := shown(t, durable, name); got != want {
			t.Errorf("with a state directory %s: got %q; want %q", name, got, want)
		}
	}
	if got := shown(t, report, "ADVERTISE_URL"); got != "http://127.0.0.1:PORT (computed)" {
		t.Errorf("ADVERTISE_URL: got %q; want one without a port", got)
	}
	if !strings.Contains(report, "warning: no upstream is configured") || !strings.HasSuffix(report, "\nok\n") {
		t.Errorf("got\n%s\nwant a warning about upstreams, and ok at the end", report)
	}
}

func TestCheckListsTheRoutesThatAnUpstreamServes(t *testing.T) {
	for style, want := range map[string][]string{
		"anthropic": {"/v1/messages", "/v1/messages/count_tokens", "/v1/models"},
		"openai": {
			"/detokenize", "/tokenize", "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
			"/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/responses",
		},
	} {
		report := checked(t, "UPSTREAM_URL=https://model.example.com", "UPSTREAM_STYLE="+style)
		var routes []string
		for _, line := range regexp.MustCompile(`(?m)^  (\S+) +https://model\.example\.com(\S+)$`).FindAllStringSubmatch(report, -1) {
			routes = append(routes, line[1])
		}
		if !slices.Equal(routes, want) {
			t.Errorf("%s: got %q; want %q", style, routes, want)
		}
	}
}
