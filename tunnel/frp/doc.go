// Package frp opens tunnels through frps, the server of the frp project, with a
// client of its own that speaks version 1 of frp's protocol.
//
// A tunnel is one TCP connection to the server, TLS by default, multiplexed by
// yamux. On a first stream the client logs in and registers one proxy: an HTTP
// subdomain or a TCP port of the server. Whenever the server wants a connection
// to the proxy it asks on that stream, the client opens another one, and what
// arrives there is handed to the server of this process directly; there is no
// hop through a local socket.
//
// When the connection is lost the client registers the same proxy again, so
// that the URL comes back, until it is closed or the server says that it cannot
// be.
package frp
