package main_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
)

// What each driver needs at least.
var minimal = map[string][]string{
	"none":    nil,
	"static":  {"STATIC_SERVERS=https://a.example=127.0.0.1:9001"},
	"frp":     {"FRP_SERVER_ADDR=frp.example", "FRP_PUBLIC_URL=https://{subdomain}.frp.example"},
	"prime":   {"PRIME_API_KEY=k"},
	"ssh":     {"SSH_ADDR=gateway.example", "SSH_PUBLIC_URL=https://gateway.example:{port}"},
	"command": {"TUNNEL_COMMAND_PRESET=cloudflared"},
}

func TestEveryDriverNeedsFewVariables(t *testing.T) {
	for driver, env := range minimal {
		if p := problemsOf(t, append(slices.Clone(env), "TUNNEL="+driver)...); len(p) > 0 {
			t.Errorf("%s: got %q; want no problem", driver, p)
		}
		if len(env) == 0 {
			continue
		}
		problems := problemsOf(t, "TUNNEL="+driver)
		for i, v := range env {
			name, _, _ := strings.Cut(v, "=")
			if driver == "command" {
				name = []string{"TUNNEL_COMMAND", "TUNNEL_COMMAND_URL_REGEXP"}[i]
			}
			if !slices.ContainsFunc(problems, func(p string) bool {
				return strings.HasPrefix(p, "MUXPROXY_"+name+": required with MUXPROXY_TUNNEL="+driver) && strings.Contains(p, "; accepts ")
			}) {
				t.Errorf("%s without %s: got %q", driver, name, problems)
			}
		}
	}
}

func TestEveryBadSettingOfATunnelIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		name   string
		driver string
		env    []string
		want   []string // parts of the one problem
	}{
		{"rate without a unit", "none", []string{"TUNNEL_RATE=500"}, []string{"TUNNEL_RATE", `"500"`, "500/m"}},
		{"rate of nothing", "none", []string{"TUNNEL_RATE=0/m"}, []string{"TUNNEL_RATE"}},
		{"rate a day", "none", []string{"TUNNEL_RATE=5/d"}, []string{"TUNNEL_RATE"}},
		{"no sessions a server", "frp", []string{"MULTIPLEX=0"}, []string{"MULTIPLEX", "at least 1"}},
		{"cap under the minimum", "frp", []string{"POOL_MIN=4", "POOL_MAX=3"}, []string{"POOL_MAX", "less than MUXPROXY_POOL_MIN", "4"}},
		{"static without an address", "static", []string{"STATIC_SERVERS=https://a.example"}, []string{"STATIC_SERVERS", "URL=host:port"}},
		{"static at the admin API", "static", []string{"STATIC_SERVERS=https://a.example=127.0.0.1:8081"}, []string{"STATIC_SERVERS", "ADMIN_LISTEN"}},
		{"static twice", "static", []string{"STATIC_SERVERS=https://a.example=127.0.0.1:1,https://b.example=127.0.0.1:1"}, []string{"STATIC_SERVERS", "twice"}},
		{"static without a scheme", "static", []string{"STATIC_SERVERS=a.example=127.0.0.1:1"}, []string{"STATIC_SERVERS", "http or https URL"}},
		{"frp type", "frp", []string{"FRP_PROXY_TYPE=udp"}, []string{"FRP_PROXY_TYPE", `"udp"`, "http or tcp"}},
		{"frp without a port in the URL", "frp", []string{"FRP_PROXY_TYPE=tcp"}, []string{"FRP_PUBLIC_URL", "{port} (type tcp)"}},
		{"frp with another part", "frp", []string{"FRP_PUBLIC_URL=https://{subdomain}.{domain}"}, []string{"FRP_PUBLIC_URL"}},
		{"frp port", "frp", []string{"FRP_SERVER_ADDR=frp.example:0"}, []string{"FRP_SERVER_ADDR", "port 7000"}},
		{"frp URL as its address", "frp", []string{"FRP_SERVER_ADDR=https://frp.example"}, []string{"FRP_SERVER_ADDR"}},
		{"CA that is missing", "frp", []string{"FRP_TLS_CA=" + missing}, []string{"FRP_TLS_CA", missing, "a readable PEM file"}},
		{"CA without TLS", "frp", []string{"FRP_TLS=false", "FRP_TLS_CA=" + write(t, "x")}, []string{"FRP_TLS_CA", "FRP_TLS is false"}},
		{"prime URL", "prime", []string{"PRIME_API_BASE_URL=api.example"}, []string{"PRIME_API_BASE_URL", "an http or https URL"}},
		{"ssh key that is missing", "ssh", []string{"SSH_KEY_FILE=" + missing}, []string{"SSH_KEY_FILE", missing}},
		{"ssh without a port in the URL", "ssh", []string{"SSH_PUBLIC_URL=https://gateway.example"}, []string{"SSH_PUBLIC_URL", "{port}"}},
		{"preset", "command", []string{"TUNNEL_COMMAND_PRESET=bore"}, []string{"TUNNEL_COMMAND_PRESET", `"bore"`, "cloudflared or ngrok"}},
		{"command that is no list", "command", []string{"TUNNEL_COMMAND=bore local"}, []string{"TUNNEL_COMMAND", "not shown", "a JSON array"}},
		{"command that is not told the address", "command", []string{`TUNNEL_COMMAND=["bore", "local", "8080"]`}, []string{"TUNNEL_COMMAND", "{addr} or {port}"}},
		{"command's URL without a group", "command", []string{"TUNNEL_COMMAND_URL=http://bore.example"}, []string{"TUNNEL_COMMAND_URL", "$1"}},
		{"command's URL with a group that is not there", "command", []string{"TUNNEL_COMMAND_URL=http://$1", "TUNNEL_COMMAND_URL_REGEXP=x"}, []string{"TUNNEL_COMMAND_URL", "$1"}},
		{"command's URL without a scheme", "command", []string{"TUNNEL_COMMAND_URL=bore.example:$1"}, []string{"TUNNEL_COMMAND_URL", "an http or https URL"}},
		{"pattern", "command", []string{"TUNNEL_COMMAND_URL_REGEXP=("}, []string{"TUNNEL_COMMAND_URL_REGEXP", "a regular expression"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := append([]string{"TUNNEL=" + test.driver}, minimal[test.driver]...)
			problems := problemsOf(t, append(env, test.env...)...)
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

func TestSettingsOfATunnelWithoutADriverAreRefused(t *testing.T) {
	for driver, env := range minimal {
		if driver == "none" {
			continue
		}
		problems := problemsOf(t, slices.Clone(env)...)
		if len(problems) != 1 || !strings.HasPrefix(problems[0], "MUXPROXY_TUNNEL: not set, but MUXPROXY_") || !strings.Contains(problems[0], "set it to "+driver+",") {
			t.Errorf("%s: got %q; want TUNNEL asked for", driver, problems)
		}
	}
	if p := problemsOf(t, "MULTIPLEX=1", "POOL_MAX=8", "PROBE_INTERVAL=10s"); len(p) > 0 {
		t.Errorf("what is for several drivers: got %q; want no problem", p)
	}
}

func TestSettingsOfOtherDriversAreIgnoredAndSaid(t *testing.T) {
	report := checked(t, "TUNNEL=ssh", "SSH_ADDR=gateway.example:2222", "SSH_PUBLIC_URL=https://gateway.example:{port}/",
		"LISTEN=0.0.0.0:8080", "FRP_TOKEN=s3cr3t", "FRP_SERVER_ADDR=nonsense at all", `TUNNEL_COMMAND=["run", "s3cr3t"]`, "POOL_MAX=3")
	for _, name := range []string{"LISTEN", "FRP_SERVER_ADDR", "FRP_TOKEN", "TUNNEL_COMMAND"} {
		if want := "warning: MUXPROXY_" + name + " has no effect with MUXPROXY_TUNNEL=ssh\n"; !strings.Contains(report, want) {
			t.Errorf("got\n%s\nwant %s", report, want)
		}
	}
	if strings.Count(report, "has no effect") != 4 || strings.Contains(report, "s3cr3t") || !strings.HasSuffix(report, "\nok\n") {
		t.Errorf("got\n%s\nwant four variables without effect, no secret, and ok at the end", report)
	}
	for name, want := range map[string]string{
		"TUNNEL": "ssh", "SSH_ADDR": "gateway.example:2222", "SSH_PUBLIC_URL": "https://gateway.example:{port}", "MULTIPLEX": "32",
		"TUNNEL_RATE": "500/m", "TUNNEL_COMMAND": "run, then 1 hidden", "FRP_TOKEN": "(hidden)", "ADVERTISE_URL": "-",
	} {
		if got := shown(t, report, name); got != want {
			t.Errorf("%s: got %q; want %q", name, got, want)
		}
	}
}

func TestTunnelSettingsAreReadInTheirDocumentedForms(t *testing.T) {
	cfg, err := main.LoadConfig([]string{
		"MUXPROXY_TUNNEL=static", "MUXPROXY_STATIC_SERVERS=https://a.example/=127.0.0.1:9001, http://10.0.0.1:80=0.0.0.0:9002", "MUXPROXY_TUNNEL_RATE=30/m",
		`MUXPROXY_TUNNEL_COMMAND=["bore","local","{port}"]`, `MUXPROXY_TUNNEL_COMMAND_URL_REGEXP=listening at (\S+)`,
		"MUXPROXY_FRP_TOKEN_FILE=/not/looked/at",
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (main.StaticServers{{URL: "https://a.example", Addr: "127.0.0.1:9001"}, {URL: "http://10.0.0.1:80", Addr: "0.0.0.0:9002"}}); !slices.Equal(cfg.StaticServers, want) {
		t.Errorf("got %v; want %v", cfg.StaticServers, want)
	}
	if math.Abs(float64(cfg.TunnelRate)-0.5) > 1e-9 || cfg.EndpointGrace != time.Minute {
		t.Errorf("got %+v", cfg.Tunneling)
	}
	if !slices.Equal(cfg.TunnelCommand, main.Argv{"bore", "local", "{port}"}) || !cfg.TunnelCommandURL.MatchString("listening at x:1") {
		t.Errorf("got %q, %s", []string(cfg.TunnelCommand), cfg.TunnelCommandURL)
	}
	frp, err := main.LoadConfig([]string{
		"MUXPROXY_TUNNEL=frp", "MUXPROXY_FRP_SERVER_ADDR=frp.example", "MUXPROXY_FRP_PUBLIC_URL=https://{subdomain}.frp.example",
		"MUXPROXY_FRP_TOKEN_FILE=" + write(t, "token\n"),
	})
	if err != nil || string(frp.FRPToken) != "token" || frp.FRPServerAddr != "frp.example:7000" || !frp.FRPTLS {
		t.Errorf("got %+v, %v", frp.Tunneling, err)
	}
	for text, want := range map[string]float64{"8/s": 8, "512/m": 512.0 / 60, "3600/h": 1, "0.5 / s": 0.5} {
		var r main.Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || math.Abs(float64(r)-want) > 1e-9 {
			t.Errorf("%s: got %v, %v; want %v", text, r, err, want)
		}
	}
}

// A user of Prime's tools has its variables or its file, and they mean here
// what they mean there.
func TestPrimeIsConfiguredAsItsOwnToolsAre(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".prime"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, ".prime", "config.json")
	if err := os.WriteFile(file, []byte(`{"api_key": "of-the-file", "base_url": "https://file.example/api/v1/", "team_id": "team-f", "frontend_url": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name           string
		env            []string
		key, url, team string
	}{
		{"the file", nil, "of-the-file", "https://file.example", "team-f"},
		{"its variables", []string{"PRIME_API_KEY=v", "PRIME_API_BASE_URL=https://v.example/api/v1", "PRIME_BASE_URL=https://w.example", "PRIME_TEAM_ID=t"}, "v", "https://v.example", "t"},
		{"the other name", []string{"PRIME_BASE_URL=https://w.example/"}, "of-the-file", "https://w.example", "team-f"},
		{"no team", []string{"PRIME_TEAM_ID="}, "of-the-file", "https://file.example", ""},
		{
			"ours",
			[]string{"PRIME_API_KEY=v", "MUXPROXY_PRIME_API_KEY=m", "MUXPROXY_PRIME_API_BASE_URL=http://127.0.0.1:9", "PRIME_TEAM_ID=t", "MUXPROXY_PRIME_TEAM_ID=u"},
			"m", "http://127.0.0.1:9", "u",
		},
	} {
		cfg, err := main.LoadConfig(append(test.env, "MUXPROXY_TUNNEL=prime", "HOME="+home))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if string(cfg.PrimeAPIKey) != test.key || cfg.PrimeAPIBaseURL != test.url || cfg.PrimeTeamID != test.team {
			t.Errorf("%s: got %q, %s, %q; want %q, %s, %q", test.name, string(cfg.PrimeAPIKey), cfg.PrimeAPIBaseURL, cfg.PrimeTeamID, test.key, test.url, test.team)
		}
	}
	bare, err := main.LoadConfig([]string{"MUXPROXY_TUNNEL=prime", "PRIME_API_KEY=k", "HOME=" + t.TempDir()})
	if err != nil || bare.PrimeAPIBaseURL != "https://api.primeintellect.ai" {
		t.Errorf("got %q, %v; want Prime's own API", bare.PrimeAPIBaseURL, err)
	}
	if err := os.WriteFile(file, []byte(`{"api_key": "s3cr3t"`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = main.LoadConfig([]string{"MUXPROXY_TUNNEL=prime", "HOME=" + home})
	if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a broken file: got %v; want an error that names it", err)
	}
}
