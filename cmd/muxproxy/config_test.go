package main_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
)

func TestAnURLAndAKeyAreEnoughOfAConfiguration(t *testing.T) {
	cfg, err := main.LoadConfig([]string{"MUXPROXY_UPSTREAM_URL=https://api.example.com/v1", "MUXPROXY_UPSTREAM_API_KEY=sk-1", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	u := cfg.Upstreams["default"]
	if u.APIKey != "sk-1" || len(u.Replicas) != 1 || u.Replicas[0].URL != "https://api.example.com/v1" || u.Style != upstream.StyleOpenAI {
		t.Errorf("upstream default: got %+v", u)
	}
	if cfg.Listen != "127.0.0.1:8080" || cfg.FirstByteTimeout != 15*time.Minute || cfg.MaxBodyBytes != 256<<20 {
		t.Errorf("defaults: got %+v", cfg)
	}
	if *cfg.MaxTraceBytes <= 0 {
		t.Errorf("MAX_TRACE_BYTES: got %d; want a part of the memory", *cfg.MaxTraceBytes)
	}
}

func TestAnEmptyEnvironmentAndEmptyVariablesGiveTheDefaults(t *testing.T) {
	bare, err := main.LoadConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := main.LoadConfig([]string{"MUXPROXY_LISTEN=", "MUXPROXY_LEASE=", "MUXPROXY_UPSTREAM_URL=", "MUXPROXY_UPSTREAM_API_KEY=", "MUXPROXY_MAX_TRACE_BYTES=", "MUXPROXY_MAX_INFLIGHT_BYTES="})
	if err != nil {
		t.Fatal(err)
	}
	if bare.Listen != empty.Listen || bare.Lease != empty.Lease || len(empty.Upstreams) != 0 || *bare.MaxTraceBytes != *empty.MaxTraceBytes || *bare.MaxInflightBytes != *empty.MaxInflightBytes {
		t.Errorf("got %+v; want %+v", empty, bare)
	}
}

func TestValuesAreReadInTheirDocumentedForms(t *testing.T) {
	cfg, err := main.LoadConfig([]string{
		"MUXPROXY_MAX_INFLIGHT_BYTES=1.5",
	})
	if err == nil {
		t.Errorf("MAX_INFLIGHT_BYTES=1.5: got %v; want an error", cfg.MaxInflightBytes)
	}
	cfg, err = main.LoadConfig([]string{
		"MUXPROXY_UPSTREAM_URL=http://10.0.0.1:8000, http://10.0.0.2:8000/api", "MUXPROXY_UPSTREAM_STYLE=vllm",
		`MUXPROXY_UPSTREAM_HEADERS={"X-List":"a,b"}`, "MUXPROXY_UPSTREAM_USAGE=never",
		"MUXPROXY_MAX_INFLIGHT_BYTES=512mib", "MUXPROXY_MAX_BODY_BYTES=1000", "MUXPROXY_MAX_TRACE_BYTES=0",
		"MUXPROXY_REQUESTS_PER_SECOND=0.5", "MUXPROXY_KEEPALIVE=0", "MUXPROXY_METRICS_AUTH=true", "MUXPROXY_ADMIN_TOKEN=t", "MUXPROXY_TUNNEL=none",
		"MUXPROXY_LISTEN=0.0.0.0:0", "MUXPROXY_ADVERTISE_URL=https://mux.example.net/",
	})
	if err != nil {
		t.Fatal(err)
	}
	u := cfg.Upstreams["default"]
	if len(u.Replicas) != 2 || u.Replicas[1].URL != "http://10.0.0.2:8000/api" || u.Headers["X-List"] != "a,b" || u.Style != "vllm" || u.Usage != "never" {
		t.Errorf("upstream: got %+v", u)
	}
	if *cfg.MaxInflightBytes != 512<<20 || cfg.MaxBodyBytes != 1000 || *cfg.MaxTraceBytes != 0 || cfg.RequestsPerSecond != 0.5 || cfg.Keepalive != 0 {
		t.Errorf("numbers: got %+v", cfg)
	}
	if cfg.AdvertiseURL != "https://mux.example.net" {
		t.Errorf("ADVERTISE_URL: got %s; want it without the slash at its end", cfg.AdvertiseURL)
	}
}

func TestEveryBadValueIsNamedWithWhatTheVariableAccepts(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := write(t, "")
	for _, test := range []struct {
		name string
		env  []string
		want []string // parts of the one problem
	}{
		{"no address", []string{"LISTEN=8080"}, []string{"LISTEN", `"8080"`, "host:port"}},
		{"port over 65535", []string{"ADMIN_LISTEN=127.0.0.1:70000"}, []string{"ADMIN_LISTEN", "host:port"}},
		{"one address for both", []string{"LISTEN=127.0.0.1:9", "ADMIN_LISTEN=127.0.0.1:9"}, []string{"ADMIN_LISTEN", "same address"}},
		{"wildcard without a URL", []string{"LISTEN=:8080"}, []string{"ADVERTISE_URL", "required", "MUXPROXY_LISTEN"}},
		{"IPv6 wildcard without a URL", []string{"LISTEN=[::]:8080"}, []string{"ADVERTISE_URL", "required"}},
		{"URL without a scheme", []string{"ADVERTISE_URL=mux.example.net"}, []string{"ADVERTISE_URL", "http or https URL"}},
		{"URL with a query", []string{"ADVERTISE_URL=https://mux.example.net/?a=b"}, []string{"ADVERTISE_URL", "query"}},
		{"open admin API", []string{"ADMIN_LISTEN=0.0.0.0:8081"}, []string{"ADMIN_TOKEN", "required", "not loopback"}},
		{"metrics under a token that there is not", []string{"METRICS_AUTH=true"}, []string{"ADMIN_TOKEN", "required", "METRICS_AUTH"}},
		{"admin API on a host name", []string{"ADMIN_LISTEN=trainer:8081"}, []string{"ADMIN_TOKEN", "required"}},
		{"driver", []string{"TUNNEL=bore"}, []string{"TUNNEL", `"bore"`, "none, static, frp, prime, ssh or command"}},
		{"no duration", []string{"KEEPALIVE=3"}, []string{"KEEPALIVE", `"3"`, "a duration such as 3s"}},
		{"negative duration", []string{"LEASE=-1h"}, []string{"LEASE", `"-1h"`, "a duration"}},
		{"zero duration", []string{"FIRST_BYTE_TIMEOUT=0"}, []string{"FIRST_BYTE_TIMEOUT", "a duration"}},
		{"negative number", []string{"MAX_SESSIONS=-1"}, []string{"MAX_SESSIONS", "0 is no cap"}},
		{"no number", []string{"MAX_INFLIGHT=many"}, []string{"MAX_INFLIGHT", `"many"`}},
		{"rate that is no number", []string{"REQUESTS_PER_SECOND=NaN"}, []string{"REQUESTS_PER_SECOND"}},
		{"infinite rate", []string{"REQUESTS_PER_SECOND=Inf"}, []string{"REQUESTS_PER_SECOND"}},
		{"size without sense", []string{"MAX_TRACE_BYTES=4 gigs"}, []string{"MAX_TRACE_BYTES", "a size such as"}},
		{"size too large", []string{"MAX_INFLIGHT_BYTES=9999999999TiB"}, []string{"MAX_INFLIGHT_BYTES"}},
		{"negative size", []string{"MAX_TRACE_BYTES=-1GiB"}, []string{"MAX_TRACE_BYTES"}},
		{"durability", []string{"STATE_DIR=/state", "DURABILITY=always"}, []string{"DURABILITY", "memory, write or fsync"}},
		{"durability without a place", []string{"DURABILITY=fsync"}, []string{"STATE_DIR", "required", "fsync"}},
		{"no retention", []string{"TRACE_RETENTION=0s"}, []string{"TRACE_RETENTION"}},
		{"no body at all", []string{"MAX_BODY_BYTES=0"}, []string{"MAX_BODY_BYTES", "a size"}},
		{"no truth value", []string{"PPROF=perhaps"}, []string{"PPROF", "true or false"}},
		{"level", []string{"LOG_LEVEL=loud"}, []string{"LOG_LEVEL", "debug, info, warn or error"}},
		{"format", []string{"LOG_FORMAT=xml"}, []string{"LOG_FORMAT", "json or console"}},
		{"header name", []string{"SESSION_HEADER=X Session"}, []string{"SESSION_HEADER", "a header name"}},
		{"upstream scheme", []string{"UPSTREAM_URL=ftp://h"}, []string{"UPSTREAM_URL", "http://"}},
		{"upstream without a scheme", []string{"UPSTREAM_URL=http://h,127.0.0.1:8000"}, []string{"UPSTREAM_URL", "URL 2: must start with http://"}},
		{"upstream list with a hole", []string{"UPSTREAM_URL=http://h,,http://g"}, []string{"UPSTREAM_URL"}},
		{"style", []string{"UPSTREAM_URL=http://h", "UPSTREAM_STYLE=tgi"}, []string{"UPSTREAM_STYLE", `"tgi"`, "vllm"}},
		{"usage", []string{"UPSTREAM_URL=http://h", "UPSTREAM_USAGE=maybe"}, []string{"UPSTREAM_USAGE", "auto or never"}},
		{"header", []string{"UPSTREAM_URL=http://h", "UPSTREAM_HEADERS=X-A"}, []string{"UPSTREAM_HEADERS", "name=value"}},
		{"header of the connection", []string{"UPSTREAM_URL=http://h", "UPSTREAM_HEADERS=Upgrade=a"}, []string{"UPSTREAM_HEADERS", "connection"}},
		{"key without an upstream", []string{"UPSTREAM_API_KEY=k"}, []string{"UPSTREAM_API_KEY", "without MUXPROXY_UPSTREAM_URL"}},
		{"secret file that is missing", []string{"ADMIN_TOKEN_FILE=" + missing}, []string{"ADMIN_TOKEN_FILE", missing, "a readable file"}},
		{"secret file that is empty", []string{"ADMIN_TOKEN_FILE=" + empty}, []string{"ADMIN_TOKEN_FILE", empty, "empty"}},
		{"secret twice", []string{"ADMIN_TOKEN=a", "ADMIN_TOKEN_FILE=" + empty}, []string{"ADMIN_TOKEN", "ADMIN_TOKEN_FILE"}},
		{"secret of two lines", []string{"ADMIN_TOKEN=a\nb"}, []string{"ADMIN_TOKEN", "cannot be printed"}},
		{"upstreams file that is missing", []string{"UPSTREAMS_FILE=" + missing}, []string{"UPSTREAMS_FILE", missing}},
		{"upstreams file with an unknown field", []string{"UPSTREAMS_FILE=" + write(t, `{"a":{"replica":[]}}`)}, []string{"UPSTREAMS_FILE", "replica"}},
		{"upstreams file with a bad URL", []string{"UPSTREAMS_FILE=" + write(t, `{"a":{"replicas":[{"url":"h"}]}}`)}, []string{"UPSTREAMS_FILE", "a: replicas[0].url"}},
		{"upstreams file with a bad name", []string{"UPSTREAMS_FILE=" + write(t, `{"a/b":{"replicas":[{"url":"http://h"}]}}`)}, []string{"UPSTREAMS_FILE", "a/b: name"}},
		{"upstreams file and more", []string{"UPSTREAMS_FILE=" + write(t, "{}\n{}")}, []string{"UPSTREAMS_FILE", "line 2", "after"}},
		{"upstreams file that is no JSON", []string{"UPSTREAMS_FILE=" + write(t, "{\n\"a\": {},\n\"b\": {\"style\": x}}\n")}, []string{"UPSTREAMS_FILE", "line 3", "'x'"}},
		{"upstreams file that is cut", []string{"UPSTREAMS_FILE=" + write(t, "{\n\"a\": {}\n\n")}, []string{"UPSTREAMS_FILE", "line 2", "end"}},
		{"upstreams file that is a list", []string{"UPSTREAMS_FILE=" + write(t, "[]")}, []string{"UPSTREAMS_FILE", "must be an object, not array"}},
		{"upstream that is no object", []string{"UPSTREAMS_FILE=" + write(t, `{"a":"http://h"}`)}, []string{"UPSTREAMS_FILE", "a: must be an object, not string"}},
		{"upstream without a replica", []string{"UPSTREAMS_FILE=" + write(t, `{"a":null}`)}, []string{"UPSTREAMS_FILE", "a: replicas: must name"}},
		{"default twice", []string{"UPSTREAM_URL=http://h", "UPSTREAMS_FILE=" + write(t, `{"default":{"replicas":[{"url":"http://g"}]}}`)}, []string{"UPSTREAMS_FILE", `"default"`}},
		{"misspelt", []string{"MAX_SESION=1"}, []string{"MAX_SESION", "not known in this version", "MUXPROXY_MAX_SESSIONS"}},
		{"of another version", []string{"ZEBRA=1"}, []string{"ZEBRA", "not known in this version"}},
		{"a port is no address", []string{"PORT=8080"}, []string{"PORT", "not known"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems := problemsOf(t, test.env...)
			if len(problems) != 1 {
				t.Fatalf("got problems %q; want one", problems)
			}
			if want := "MUXPROXY_" + test.want[0] + ": "; !strings.HasPrefix(problems[0], want) {
				t.Errorf("got %q; want it to begin with %q", problems[0], want)
			}
			for _, want := range test.want[1:] {
				if !strings.Contains(problems[0], want) {
					t.Errorf("got %q; want it to say %q", problems[0], want)
				}
			}
		})
	}
}

func TestAllProblemsAreReportedAtOnceInTheOrderOfTheDocumentation(t *testing.T) {
	problems := problemsOf(t, "ZEBRA=1", "LOG_LEVEL=loud", "LEASE=soon", "LISTEN=x", "MAX_SESSIONS=-1", "TUNNEL=bore")
	var names []string
	for _, p := range problems {
		name, _, _ := strings.Cut(p, ":")
		names = append(names, strings.TrimPrefix(name, "MUXPROXY_"))
	}
	if want := []string{"LISTEN", "TUNNEL", "MAX_SESSIONS", "LEASE", "LOG_LEVEL", "ZEBRA"}; !slices.Equal(names, want) {
		t.Errorf("got %v; want %v", names, want)
	}
}

func TestNoProblemRepeatsASecret(t *testing.T) {
	const secret = "s3cr3t"
	for _, env := range [][]string{
		{"ADMIN_TOKEN=" + secret + " x"},
		{"UPSTREAM_URL=http://h", "UPSTREAM_API_KEY=" + secret + "\x00"},
		{"UPSTREAM_API_KEY=" + secret},
		{"UPSTREAM_URL=ftp://user:" + secret + "@h"},
		{"UPSTREAM_URL=http://user:" + secret + "@h,"},
		{"UPSTREAM_URL=http://h", "UPSTREAM_HEADERS=" + secret},
		{"UPSTREAM_URL=http://h", `UPSTREAM_HEADERS={"Authorization": ["` + secret + `"]}`},
		{"UPSTREAM_URL=http://h", "UPSTREAM_HEADERS=X-A=" + secret + "\x01"},
		{"ADMIN_TOKEN_FILE=" + write(t, secret+"\nsecond line")},
		{"TUNNEL=frp", "FRP_TOKEN=" + secret + " x"},
		{"TUNNEL=prime", "PRIME_API_KEY=" + secret + "\n"},
		{"TUNNEL=command", "TUNNEL_COMMAND=run --token " + secret},
		{"TUNNEL=command", `TUNNEL_COMMAND=["", "` + secret + `"]`},
		{"TUNNEL=static", "STATIC_SERVERS=https://user:" + secret + "@a.example=127.0.0.1:9001"},
		{"UPSTREAMS_FILE=" + write(t, `{"a":{"replicas":[],"api_key":"`+secret+`"}}`)},
		{"UPSTREAMS_FILE=" + write(t, `{"a":{"replicas":[],"api_key":"`+secret+`\u0000"}}`)},
	} {
		for _, p := range problemsOf(t, env...) {
			if strings.Contains(p, secret) {
				t.Errorf("%q: the problem repeats the secret: %s", env, p)
			}
		}
	}
}

func TestSecretsFromFilesLoseTheirNewlines(t *testing.T) {
	cfg, err := main.LoadConfig([]string{
		"MUXPROXY_ADMIN_TOKEN_FILE=" + write(t, "token\r\n"),
		"MUXPROXY_UPSTREAM_URL=http://h", "MUXPROXY_UPSTREAM_API_KEY_FILE=" + write(t, "key\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(cfg.AdminToken) != "token" || cfg.Upstreams["default"].APIKey != "key" {
		t.Errorf("got %q and %q; want token and key", string(cfg.AdminToken), cfg.Upstreams["default"].APIKey)
	}
}

func TestAnAdminTokenOpensTheAdminListenerToOtherMachines(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:8081", ":8081", "10.0.0.1:8081", "[::]:0"} {
		if p := problemsOf(t, "ADMIN_LISTEN="+addr, "ADMIN_TOKEN=t"); len(p) > 0 {
			t.Errorf("%s with a token: got %q; want no problem", addr, p)
		}
	}
	for _, addr := range []string{"127.0.0.2:8081", "localhost:8081", "[::1]:8081"} {
		if p := problemsOf(t, "ADMIN_LISTEN="+addr); len(p) > 0 {
			t.Errorf("%s without a token: got %q; want no problem", addr, p)
		}
	}
}

func TestVariablesOfAServiceCalledMuxproxyAreLeftAlone(t *testing.T) {
	problems := problemsOf(t, "SERVICE_HOST=10.0.0.9", "SERVICE_PORT=8080", "SERVICE_PORT_HTTP=8080", "PORT=tcp://10.0.0.9:8080",
		"PORT_8080_TCP=tcp://10.0.0.9:8080", "PORT_8080_TCP_PROTO=tcp", "PORT_8080_TCP_PORT=8080", "PORT_8080_TCP_ADDR=10.0.0.9",
		"ADMIN_SERVICE_HOST=10.0.0.8", "ADMIN_PORT=tcp://10.0.0.8:8081")
	if len(problems) > 0 {
		t.Errorf("got %q; want no problem", problems)
	}
}

func TestMemoryLimitIsGosThenTheControlGroupsThenTheMachines(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	meminfo := file("MemFree: 1 kB\nMemTotal:       8388608 kB\n")
	for _, test := range []struct {
		name    string
		files   fstest.MapFS
		goLimit int64
		want    int64
	}{
		{"GOMEMLIMIT", fstest.MapFS{"proc/meminfo": meminfo}, 1 << 30, 1 << 30},
		{"the machine", fstest.MapFS{"proc/meminfo": meminfo}, math.MaxInt64, 8 << 30},
		{"nothing known", fstest.MapFS{}, math.MaxInt64, 4 << 30},
		{"version 2, in a container", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1073741824\n"),
		}, math.MaxInt64, 1 << 30},
		{"version 2, the smallest on the way up", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("2147483648\n"),
		}, math.MaxInt64, 2 << 30},
		{"version 1, under the host's path", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("3:cpu,cpuacct:/x\n2:memory:/docker/abc\n0::/x\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("536870912\n"),
		}, math.MaxInt64, 512 << 20},
		{"version 1 without a limit", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("2:memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, math.MaxInt64, 8 << 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := main.MemoryLimit(test.files, test.goLimit); got != test.want {
				t.Errorf("got %d; want %d", got, test.want)
			}
		})
	}
}

func TestTracesAndBodiesMayTakeAPartOfLittleMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, want := range map[int64][2]main.ByteSize{1 << 30: {256 << 20, 256 << 20}, 64 << 30: {16 << 30, 2 << 30}} {
		debug.SetMemoryLimit(limit)
		cfg, err := main.LoadConfig(nil)
		if err != nil || *cfg.MaxTraceBytes != want[0] || *cfg.MaxInflightBytes != want[1] {
			t.Errorf("of %d: got %v, %d and %d; want %d", limit, err, *cfg.MaxTraceBytes, *cfg.MaxInflightBytes, want)
		}
	}
}

func TestCollectorHeedsTheControlGroupUnlessToldWhatToHeed(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	group := func(limit string) fstest.MapFS {
		return fstest.MapFS{
			"proc/meminfo": {Data: []byte("MemTotal:       8388608 kB\n")}, "proc/self/cgroup": {Data: []byte("0::/\n")},
			"sys/fs/cgroup/memory.max": {Data: []byte(limit)},
		}
	}
	for _, test := range []struct {
		name    string
		root    fstest.MapFS
		environ []string
		want    int64
	}{
		{"a limit", group("1000000000"), nil, 900000000},
		{"no limit", group("max"), nil, math.MaxInt64},
		{"no control group", fstest.MapFS{}, nil, math.MaxInt64},
		{"a limit over all that there is", group("17179869184"), nil, math.MaxInt64},
		{"GOMEMLIMIT=off", group("1000000000"), []string{"GOMEMLIMIT=off"}, math.MaxInt64},
	} {
		undo := main.HeedControlGroup(test.root, test.environ)
		if got := debug.SetMemoryLimit(-1); got != test.want {
			t.Errorf("%s: the limit is %d; want %d", test.name, got, test.want)
		}
		undo()
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("%s: the limit is %d afterwards", test.name, got)
		}
	}
}

func TestDocumentedConfigurationIsTheCodes(t *testing.T) {
	var names, defaults, accepts []string
	for _, v := range main.Variables() {
		names, defaults, accepts = append(names, v.Name), append(defaults, v.Default), append(accepts, v.Accepts)
	}
	reference := tableIn(t, "../../docs/configuration.md", "")
	compareColumn(t, "docs/configuration.md names", reference[0], names)
	compareColumn(t, "docs/configuration.md defaults", reference[1], defaults)
	compareColumn(t, "docs/configuration.md accepts", reference[2], accepts)
	readme := tableIn(t, "../../README.md", "<!-- configuration:begin -->")
	compareColumn(t, "README.md names", readme[0], names)
	compareColumn(t, "README.md defaults", readme[1], defaults)
}

// tableIn returns the first three columns of the rows that begin with a
// variable's name, after the marker.
func tableIn(t *testing.T, file, marker string) (columns [3][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), marker)
	if !found {
		t.Fatalf("%s: no %s", file, marker)
	}
	table, _, _ = strings.Cut(table, "<!-- configuration:end -->")
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`MUXPROXY_[A-Z_]+`"+`) \|([^|]*)\|([^|]*)\|`).FindAllStringSubmatch(table, -1) {
		for i := range columns {
			columns[i] = append(columns[i], strings.Trim(row[i+1], " `"))
		}
	}
	return columns
}

func compareColumn(t *testing.T, name string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
	}
}

// problemsOf are the problems of an environment of these variables, given
// without their prefix.
func problemsOf(t *testing.T, env ...string) []string {
	t.Helper()
	for i, v := range env {
		env[i] = "MUXPROXY_" + v
	}
	_, err := main.LoadConfig(env)
	if err == nil {
		return nil
	}
	problem, ok := errors.AsType[*main.ConfigError](err)
	if !ok {
		t.Fatalf("got %T; want *ConfigError", err)
	}
	return problem.Problems
}

// write returns the name of a file with this text.
func write(t *testing.T, text string) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "file-*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
