package scripted

import "bytes"

// responsesScripts answer as the Responses API does, in its less usual ways.
func responsesScripts() map[string]entry {
	stream := SSE(Fixture("openai/responses.sse"))
	return map[string]entry{
		"responses-incomplete":   {respond: plainFamily("openai/responses-incomplete")},
		"responses-unknown":      fixed(SSE(Fixture("openai/responses-unknown.sse"))),
		"responses-empty-output": fixed(SSE(Fixture("openai/responses-empty-output.sse"))),
		"responses-failed":       fixed(SSE(Fixture("openai/responses-failed.sse"))),
		"responses-error":        fixed(SSE(Fixture("openai/responses-error.sse"))),
		"responses-no-terminal":  fixed(SSE(Fixture("openai/responses-no-terminal.sse"))),
		"responses-abort":        fixed(ending(stream, 5, Abort)),
		"responses-hang":         fixed(ending(stream, 5, Hang)),
	}
}

// responses chooses among the recorded answers by what the request asks for.
func responses(r *Request) Script {
	w := wishOf(r)
	name := "openai/responses"
	switch {
	case bytes.Contains(r.Body, []byte(`"function_call_output"`)):
		name += "-answer"
	case len(w.Tools) > 0:
		name += "-tools"
	}
	return file(name + w.plain())
}

// plainFamily answers with the fixture of the name, as JSON or as a stream.
func plainFamily(name string) Responder {
	return func(r *Request) Script { return file(name + wishOf(r).plain()) }
}
