package frp_test

import (
	"fmt"

	"github.com/muxproxy/muxproxy/tunnel/frp"
)

func ExampleNew() {
	driver, err := frp.New(frp.Options{
		ServerAddr: "frp.example.net:7000",
		Token:      "sesame",
		PublicURL:  "https://{subdomain}.example.net",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(driver.Name(), "limits headers to", driver.HeaderLimit())

	_, err = frp.New(frp.Options{ServerAddr: "frp.example.net", PublicURL: "https://example.net"})
	fmt.Println(err)
	// Output:
	// frp limits headers to 1m0s
	// ServerAddr: "frp.example.net" is not host:port
	// PublicURL: "https://example.net" is not like https://{subdomain}.example.net: the variable is missing, or not the only one
}
