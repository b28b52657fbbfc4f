package ssh_test

import (
	"fmt"

	"github.com/muxproxy/muxproxy/tunnel/ssh"
)

func Example() {
	d, err := ssh.New(ssh.Options{
		Addr:      "gateway.example:22",
		User:      "tunnels",
		KeyFile:   "/etc/muxproxy/gateway_key",
		PublicURL: "https://gateway.example:{port}",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Name())
	// Output: ssh
}
