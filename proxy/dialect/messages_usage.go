package dialect

import (
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// messagesUsage is the usage of a message as far as it was told. A stream tells
// it twice: the later counts are totals and replace those of the same name.
type messagesUsage struct {
	told                                   bool
	input, cacheRead, cacheWritten, output int64
	thinking                               int64 // of output
}

func (u *messagesUsage) update(raw []byte) {
	if rawjson.Kind(raw) != '{' {
		return
	}
	u.told = true
	count := func(n *int64, object []byte, key string) {
		if told, ok := rawjson.Int(rawjson.Lookup(object, key)); ok {
			*n = told
		}
	}
	count(&u.input, raw, "input_tokens")
	count(&u.cacheRead, raw, "cache_read_input_tokens")
	count(&u.cacheWritten, raw, "cache_creation_input_tokens")
	count(&u.output, raw, "output_tokens")
	count(&u.thinking, rawjson.Lookup(raw, "output_tokens_details"), "thinking_tokens")
}

// total is the usage as turns have it: this format's input tokens exclude those
// read from or written to a cache, a turn's include them.
func (u *messagesUsage) total() *registry.Usage {
	if !u.told {
		return nil
	}
	return &registry.Usage{
		InputTokens:     u.input + u.cacheRead + u.cacheWritten,
		OutputTokens:    u.output,
		CachedTokens:    u.cacheRead,
		ReasoningTokens: u.thinking,
	}
}
