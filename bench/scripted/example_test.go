package scripted_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/muxproxy/muxproxy/bench/scripted"
)

func Example() {
	u := scripted.New()
	answer := scripted.SSE([]byte("data: {\"choices\":[]}\n\n"))
	answer.End = scripted.Abort
	u.Script("cut-short", answer)
	srv, err := scripted.Start(u, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = srv.Close() }()

	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"cut-short"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%q, %v\n", body, err)
	fmt.Printf("%s asked %s for %s\n", u.Last().Method, u.Last().Path, u.Last().Body)
	// Output:
	// "data: {\"choices\":[]}\n\n", unexpected EOF
	// POST asked /v1/chat/completions for {"model":"cut-short"}
}
