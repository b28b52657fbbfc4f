// Package sse splits server-sent event streams into events without changing them.
//
// It does framing only, as described by the event stream format of the WHATWG
// HTML standard, section "Server-sent events"
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): what the
// data of an event means is for the reader to know. An event here is the bytes
// of its lines and of the blank line that ends it, so that the events of a
// stream one after the other are the stream, byte for byte, comments, unknown
// fields, line ends and all.
//
// [Scanner] finds where events end. The functions look into one event. They
// also take one whose blank line is missing, as at the end of a stream that
// broke off.
package sse
