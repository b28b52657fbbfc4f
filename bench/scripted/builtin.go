package scripted

import (
	"maps"
	"net/http"
	"strings"
	"time"
)

// builtin is the table of scripts that every Upstream knows.
func builtin() map[string]entry {
	all := map[string]entry{}
	maps.Copy(all, responsesScripts())
	for name, s := range routes() {
		all[name] = fixed(s)
	}
	for name, s := range faults() {
		all[name] = fixed(s)
	}
	for name, s := range streams() {
		all[name] = fixed(s)
	}
	maps.Copy(all, map[string]entry{
		"openai":            {respond: openai},
		"openai-tools":      {respond: family("openai/tools")},
		"openai-refusal":    {respond: family("openai/refusal")},
		"openai-logprobs":   {respond: family("openai/logprobs")},
		"openai-n2":         {respond: family("openai/n2")},
		"vllm":              {respond: vllm},
		"sglang":            {respond: sglang},
		"sglang-abort":      {respond: family("sglang/abort")},
		"exact":             {respond: family("json/exact")},
		"429-once":          {respond: onceThen(rateLimited(), openai)},
		"500-once":          {respond: onceThen(Error(500, Fixture("errors/500.json")), openai)},
		"refuses-usage":     {respond: refusing("stream_options", Error(400, Fixture("errors/stream-options.json")))},
		"refuses-usage-422": {respond: refusing("stream_options", Error(422, Fixture("errors/stream-options-422.json")))},
		"refuses-token-ids": {respond: refusing("return_token_ids", Error(400, Fixture("errors/token-ids.json")))},
		"refuses-logprobs":  {respond: refusing("logprobs", Error(422, Fixture("errors/logprobs-422.json")))},
	})
	return all
}

func fixed(s Script) entry {
	return entry{func(*Request) Script { return s }, s.Upload, s.UploadGap}
}

// openai answers in the dialect of the path as the OpenAI API does, choosing among its recorded answers by what the
// request asks for.
func openai(r *Request) Script {
	w := wishOf(r)
	name := "openai/chat"
	switch {
	case strings.HasSuffix(r.Path, "/responses"):
		return responses(r)
	case strings.HasSuffix(r.Path, "/messages"):
		return file("anthropic/message" + w.plain())
	case strings.HasSuffix(r.Path, "/chat/completions"):
	case strings.HasSuffix(r.Path, "/completions"):
		name = "openai/completions"
	}
	switch {
	case w.answersTool():
		name = "openai/answer"
	case len(w.Tools) > 0:
		name = "openai/tools"
	case w.N == 2:
		name = "openai/n2"
	case w.logprobs() && name == "openai/chat":
		name = "openai/logprobs"
	}
	s := file(name + w.suffix())
	s.Header = s.Header.Clone()
	maps.Copy(s.Header, http.Header{
		"X-Request-Id":                   {"req_7b6f0c1d2e3a4958b7c6d5e4f3a2b1c0"},
		"Openai-Processing-Ms":           {"312"},
		"Openai-Version":                 {"2020-10-01"},
		"X-Ratelimit-Limit-Requests":     {"500"},
		"X-Ratelimit-Remaining-Requests": {"499"},
		"X-Ratelimit-Reset-Requests":     {"120ms"},
	})
	return s
}

// family answers with the fixture of the name that fits the request's stream options.
func family(name string) Responder {
	return func(r *Request) Script {
		for _, suffix := range []string{wishOf(r).suffix(), wishOf(r).plain()} {
			if _, err := fixtures.Open("testdata/" + name + suffix); err == nil {
				return file(name + suffix)
			}
		}
		return Error(http.StatusNotFound, Fixture("errors/404.json"))
	}
}

// vllm answers as vLLM does; token ids and log-probabilities only for those who ask.
func vllm(r *Request) Script { return file(wishOf(r).engine("vllm", r.Path)) }

// sglang answers as SGLang does, which gives no token ids in a stream of chat.
func sglang(r *Request) Script {
	w := wishOf(r)
	if w.Stream && w.tokenIDs() && strings.HasSuffix(r.Path, "/chat/completions") {
		return Error(http.StatusBadRequest, Fixture("errors/stream-ids-sglang.json"))
	}
	return file(w.engine("sglang", r.Path))
}

// onceThen answers requests that carry no retry count above zero with first, and the retries with next.
func onceThen(first Script, next Responder) Responder {
	return func(r *Request) Script {
		if n := r.Header.Get("X-Stainless-Retry-Count"); n == "" || n == "0" {
			return first
		}
		return next(r)
	}
}

// refusing answers like openai unless the request has the field.
func refusing(field string, refusal Script) Responder {
	return func(r *Request) Script {
		if strings.Contains(string(r.Body), `"`+field+`"`) {
			return refusal
		}
		return openai(r)
	}
}

func rateLimited() Script {
	return Error(http.StatusTooManyRequests, Fixture("errors/429.json"),
		"Retry-After", "1",
		"Retry-After-Ms", "50",
		"X-Ratelimit-Limit-Requests", "500",
		"X-Ratelimit-Remaining-Requests", "0",
		"X-Ratelimit-Reset-Requests", "1s",
	)
}

// routes are the answers to requests that name no script.
func routes() map[string]Script {
	missing := Error(http.StatusNotFound, Fixture("errors/404.json"))
	m := map[string]Script{
		"GET /health":                    {},
		"GET /v1/models":                 file("openai/models.json"),
		"GET /v1/models/gpt-4.1-mini":    file("openai/model.json"),
		"GET /v1/models/gpt-nope":        missing,
		"POST /v1/embeddings":            file("openai/embeddings.json"),
		"POST /v1/messages/count_tokens": file("anthropic/count_tokens.json"),
		"POST /tokenize":                 file("vllm/tokenize.json"),
		"POST /detokenize":               file("vllm/detokenize.json"),
	}
	for _, side := range []string{"tokenize", "detokenize"} {
		m["POST /v1/"+side] = m["POST /"+side]
	}
	return m
}

const mebi = 1 << 20

// uploadGap is how long the script "slow-upload" waits before each read.
const uploadGap = 50 * time.Millisecond
