package scripted_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

// net/http's server waits half a second before it closes a connection whose
// request it did not read to the end, and nobody can wait for that.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// start serves u on a loopback socket and returns a client of its own.
func start(t *testing.T, u *scripted.Upstream) (*scripted.Server, *http.Client) {
	t.Helper()
	srv, err := scripted.Start(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv, &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post asks for a chat completion with the body.
func post(ctx context.Context, t *testing.T, c *http.Client, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

// read returns the whole body and how it ended.
func read(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// get posts the body and wants the answer to be exactly want.
func get(t *testing.T, c *http.Client, url, body string, want []byte) {
	t.Helper()
	resp, err := post(t.Context(), t, c, url, body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(resp)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("body of %s:\ngot  %q\nwant %q", body, got, want)
	}
}
