package controlplane_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/muxproxy/muxproxy/bench/controlplane"
)

func Example() {
	c := controlplane.New(controlplane.Options{Rate: 1})
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/tunnel", strings.NewReader(`{"local_port":8080}`))
		r.Header.Set("Authorization", "Bearer key")
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	fmt.Println(c.Live(), "tunnel")
	// Output:
	// 201
	// 429
	// 1 tunnel
}
