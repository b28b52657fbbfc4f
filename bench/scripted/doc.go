// Package scripted is a model API that answers by script, for tests and benchmarks.
//
// An [Upstream] is an [http.Handler]. The `model` of a request names the [Script] that answers it, so that one
// server plays every provider and every fault at once, and a test asks for a behaviour by asking for a model:
//
//	u := scripted.New()
//	srv, err := scripted.Start(u, nil)
//	...
//	defer srv.Close()
//	// POST srv.URL + "/v1/chat/completions" with {"model":"vllm","stream":true,...}
//
// The built-in names are listed by [Upstream.Names] and described in testdata/README.md, together with where each
// recorded shape comes from. [Upstream.Script], [Upstream.Func] and [Upstream.Sequence] add more.
//
// Every request is recorded as it was received, with its body and whether the client left before the end: see
// [Request]. Nothing here starts a goroutine except [Start], and all waiting is on channels, timers and the
// request's context, so an Upstream works in a testing/synctest bubble on a [Network].
//
// It parses requests itself and shares no code with the proxy it is used to test.
package scripted
