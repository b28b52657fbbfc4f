package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/command"
)

func TestArgumentsAreTakenAsTheyStand(t *testing.T) {
	o := shell(`echo "http://up.example/$0/$1/$2/$3"; exec sleep 1000`)
	o.Args = append(o.Args, "{host}", "{port}", "$HOME*;{other}")
	if got, want := open(t, o).URL(), "http://up.example/127.0.0.1:40123/127.0.0.1/40123/$HOME*;{other}"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestTheEnvironmentIsOnlyWhatIsGiven(t *testing.T) {
	t.Setenv("MUXPROXY_ADMIN_TOKEN", "secret")
	o := shell(`echo "http://up.example/$GIVEN-$MUXPROXY_ADMIN_TOKEN"; exec sleep 1000`)
	o.Env = append(o.Env, "GIVEN=given")
	if got, want := open(t, o).URL(), "http://up.example/given-"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestURLIsTheGroupTheWholeMatchOrTheTemplate(t *testing.T) {
	for _, c := range []struct{ printed, url, template, want string }{
		{"see http://a.example/ now", `http://\S+`, "", "http://a.example"},
		{"url=https://b.example up", `url=(\S+)`, "", "https://b.example"},
		{"Allocated port 4711 for", `port (\d+)`, "http://gw.example:$1/x", "http://gw.example:4711/x"},
	} {
		o := shell(`echo "` + c.printed + `"; exec sleep 1000`)
		o.URL, o.Template = regexp.MustCompile(c.url), c.template
		if got := open(t, o).URL(); got != c.want {
			t.Errorf("%q: got %q; want %q", c.printed, got, c.want)
		}
	}
}

func TestReadinessMayComeBeforeOrAfterTheURLOnEitherPipe(t *testing.T) {
	for _, script := range []string{
		`echo http://up.example; echo Registered >&2; exec sleep 1000`,
		`echo Registered >&2; echo http://up.example; exec sleep 1000`,
	} {
		o := shell(script)
		o.Ready = regexp.MustCompile("Registered")
		if got := open(t, o).URL(); got != "http://up.example" {
			t.Errorf("got %q", got)
		}
	}
	o := shell(`echo http://up.example; exec sleep 1000`)
	o.Ready, o.StartTimeout = regexp.MustCompile("Registered"), 100*time.Millisecond
	if _, ok := errors.AsType[*tunnel.TransientError](openError(t, o)); !ok {
		t.Error("a program that never says that it is ready is up")
	}
}

func TestPresetsUnderstandWhatTheirProgramsPrint(t *testing.T) {
	for _, c := range []struct {
		preset, printed, want string
		as                    func(error) bool
	}{
		{"cloudflared", "quick.log", "https://violet-lamp-spoken-cedar.trycloudflare.com", nil},
		{"cloudflared", "limited.log", "", is[*tunnel.RateLimitError]},
		{"ngrok", "started.log", "https://4f1c-203-0-113-7.ngrok-free.app", nil},
		{"ngrok", "sessions.log", "", is[*tunnel.QuotaError]},
		{"ngrok", "token.log", "", is[*tunnel.ConfigError]},
	} {
		t.Run(c.preset+" "+c.printed, func(t *testing.T) {
			o, ok := command.Preset(c.preset)
			if !ok {
				t.Fatal("no such preset")
			}
			log, err := filepath.Abs(filepath.Join("testdata", c.preset, c.printed))
			if err != nil {
				t.Fatal(err)
			}
			o.Args[0] = stand(t, c.preset, fmt.Sprintf("cat %s >&2; case %s in *started*|*quick*) exec sleep 1000;; esac; exit 1", log, log))
			o.Env = []string{"PATH=/usr/bin:/bin"}
			if c.as == nil {
				if got := open(t, o).URL(); got != c.want {
					t.Errorf("got %q; want %q", got, c.want)
				}
			} else if err := openError(t, o); !c.as(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// stand is the path of a program of this name that does what the script says.
func stand(t *testing.T, name, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPresetsHaveEverythingThatNewWants(t *testing.T) {
	for _, name := range command.Presets() {
		o, ok := command.Preset(name)
		if !ok {
			t.Errorf("%s: no such preset", name)
		}
		d := driver(t, o)
		if d.Name() != "command" || d.FirstProbe() != o.FirstProbe {
			t.Errorf("%s: got name %q and first probe %s", name, d.Name(), d.FirstProbe())
		}
	}
	if _, ok := command.Preset("other"); ok {
		t.Error("a preset nobody made is there")
	}
}

func TestWhatCannotWorkIsAConfigError(t *testing.T) {
	url := regexp.MustCompile(".")
	for _, o := range []command.Options{
		{}, {Args: []string{""}, URL: url}, {Args: []string{"x", "no place"}, URL: url}, {Args: []string{"x", "{addr}"}},
	} {
		if _, err := command.New(o); !is[*tunnel.ConfigError](err) {
			t.Errorf("%+v: got %v; want a ConfigError", o, err)
		}
	}
	missing := shell("")
	missing.Args[0] = "muxproxy-no-such-program"
	noURL := shell("echo up on ftp://a.example; exec sleep 1000")
	noURL.URL = regexp.MustCompile(`ftp://\S+`)
	fatal := shell("echo permission denied; exec sleep 1000")
	fatal.Fatal = regexp.MustCompile("denied")
	for name, o := range map[string]command.Options{"no program": missing, "no http URL": noURL, "fatal line": fatal} {
		if err := openError(t, o); !is[*tunnel.ConfigError](err) {
			t.Errorf("%s: got %T %v; want a ConfigError", name, err, err)
		}
	}
	resumed := local
	resumed.Resume = "http://up.example"
	if _, err := driver(t, shell("")).Open(t.Context(), resumed); !is[*tunnel.ConfigError](err) {
		t.Errorf("resume: got %v; want a ConfigError", err)
	}
}

func TestAProgramThatDiesAtOnceIsTransientAndSaysItsLastWords(t *testing.T) {
	err := openError(t, shell("seq 1 60; echo cannot reach the edge; exit 3"))
	if !is[*tunnel.TransientError](err) {
		t.Errorf("got %T; want a TransientError", err)
	}
	for _, want := range []string{"exit status 3", "cannot reach the edge", "\n60", "\n12"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n2\n") {
		t.Errorf("got %v; want the last 50 lines", err)
	}
}

func TestAProgramThatNeverSpeaksTimesOutAndIsEnded(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	o := shell("echo $$ >" + pid + "; exec sleep 1000")
	o.StartTimeout = 200 * time.Millisecond
	err := openError(t, o)
	if !is[*tunnel.TransientError](err) || !strings.Contains(err.Error(), "printed nothing") {
		t.Errorf("got %v; want a TransientError that says so", err)
	}
	if running(t, group(t, "/"+read(t, pid))) {
		t.Error("the program still runs")
	}
}

func TestGivingUpWhileStartingEndsTheProgram(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	gone := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	failed := make(chan error, 1)
	d := driver(t, shell("echo $$ >"+pid+"; exec sleep 1000"))
	go func() {
		_, err := d.Open(ctx, local)
		failed <- err
	}()
	eventually(t, "start", func() bool { return read(t, pid) != "" })
	cancel(gone)
	if err := <-failed; !errors.Is(err, gone) {
		t.Errorf("got %v; want the cause", err)
	}
	if running(t, group(t, "/"+read(t, pid))) {
		t.Error("the program still runs")
	}
}

// read is the file's text without space around it, empty when there is none.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
