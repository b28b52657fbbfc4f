package dialect

import (
	"strings"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// A RequestError is a request that muxproxy cannot serve as it stands.
type RequestError struct {
	Param   string // the field at fault, "" for the body as a whole
	Message string
}

func (e *RequestError) Error() string { return e.Message }

// An Error is an error of muxproxy's own, to be put into a dialect's shape.
type Error struct {
	Status        int    // HTTP status, which decides the type
	Code          string // machine-readable
	Param         string // "" is null
	Message       string
	StopCondition string // "" is absent
}

// openAIBody is the error shape of the OpenAI API: all four keys present. The
// stop condition stands beside them and at the top, since SDKs show a caller
// the inner object and plain HTTP clients see the outer one.
func openAIBody(e Error) []byte {
	b := append([]byte(nil), `{"error":{"message":`...)
	b = rawjson.Quote(b, e.Message)
	b = append(b, `,"type":`...)
	b = rawjson.Quote(b, openAIType(e.Status))
	b = append(b, `,"param":`...)
	if e.Param == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.Quote(b, e.Param)
	}
	return appendCode(b, e)
}

// appendCode ends an error's body: the code and the stop condition in the inner
// object, and the stop condition once more in the outer one.
func appendCode(b []byte, e Error) []byte {
	b = append(b, `,"code":`...)
	b = rawjson.Quote(b, e.Code)
	b = appendStopCondition(b, e)
	b = append(b, '}')
	b = appendStopCondition(b, e)
	return append(b, '}')
}

func appendStopCondition(b []byte, e Error) []byte {
	if e.StopCondition == "" {
		return b
	}
	b = append(b, `,"stop_condition":`...)
	return rawjson.Quote(b, e.StopCondition)
}

func openAIType(status int) string {
	switch {
	case status == 429:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

// overflowPhrases are how providers say that a prompt does not fit: OpenAI,
// vLLM, SGLang, llama.cpp, TGI, Anthropic, Google, xAI and those that copy their
// wording.
func overflowPhrases() []string {
	return []string{
		"context_length_exceeded",
		"maximum context length",
		"maximum model length",
		"model's context length",
		"context window",
		"available context size",
		"exceeds the configured limit",
		"prompt_too_long",
		"prompt is too long",
		"input is too long",
		"exceed context limit",
		"maximum prompt length",
		"maximum number of tokens allowed",
		"`inputs` must have less than",
		"`inputs` tokens + `max_new_tokens` must be",
	}
}

// ContextOverflow reports whether an upstream's error says that the
// conversation no longer fits the model's context. There is no common code for
// it, so the wording decides; only statuses that blame the request count.
func ContextOverflow(status int, body []byte) bool {
	if status != 400 && status != 413 && status != 422 {
		return false
	}
	return overflows(string(body))
}

func overflows(text string) bool {
	text = strings.ToLower(text)
	for _, phrase := range overflowPhrases() {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
