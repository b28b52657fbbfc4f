package command_test

import (
	"context"
	"fmt"
	"regexp"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/command"
)

func Example() {
	d, err := command.New(command.Options{
		Args:     []string{"sh", "-c", "echo listening at gw.example.net:4711; exec sleep 60", "{addr}"},
		Env:      []string{"PATH=/usr/bin:/bin"},
		URL:      regexp.MustCompile(`listening at (\S+:\d+)`),
		Template: "http://$1",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := d.Open(context.Background(), tunnel.Local{Server: "srv-1", Addr: "127.0.0.1:40123"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.URL())
	_ = t.Close(context.Background())
	fmt.Println(t.Err())
	// Output:
	// http://gw.example.net:4711
	// tunnel closed
}
