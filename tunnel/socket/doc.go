// Package socket sets up the one connection that all rollouts of a tunnel share.
package socket
