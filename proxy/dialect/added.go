package dialect

import "bytes"

// Added is what muxproxy put into a request for itself. The answer is freed of
// what that causes before the harness sees it.
type Added struct {
	Usage          bool // the usage chunk of a stream
	Logprobs       bool
	TokenIDs       bool // of completions
	PromptTokenIDs bool
	MetaInfo       bool // SGLang's, which has token ids beside log-probabilities
	Nulls          bool // ids that nobody asks for are null there, as vLLM has it, not absent
}

// The bits of Added. They are kept with turns and so must not change.
const (
	addedUsage uint32 = 1 << iota
	addedLogprobs
	addedTokenIDs
	addedPromptTokenIDs
	addedMetaInfo
	addedNulls
)

// Bits is a in the form in which it is recorded.
func (a Added) Bits() uint32 {
	var bits uint32
	for _, b := range tableOf(&a) {
		if *b.set {
			bits |= b.bit
		}
	}
	return bits
}

// AddedOf is the inverse of Bits. Bits that it does not know are left out.
func AddedOf(bits uint32) Added {
	var a Added
	for _, b := range tableOf(&a) {
		*b.set = bits&b.bit != 0
	}
	return a
}

type addedBit struct {
	bit uint32
	set *bool
}

func tableOf(a *Added) [6]addedBit {
	return [...]addedBit{
		{addedUsage, &a.Usage},
		{addedLogprobs, &a.Logprobs},
		{addedTokenIDs, &a.TokenIDs},
		{addedPromptTokenIDs, &a.PromptTokenIDs},
		{addedMetaInfo, &a.MetaInfo},
		{addedNulls, &a.Nulls},
	}
}

// With is what a or b has.
func (a Added) With(b Added) Added { return AddedOf(a.Bits() | b.Bits()) }

// The parts of Added that are asked for, and so refused, together.
func (a Added) parts() []Added {
	return []Added{
		{Usage: a.Usage},
		{Logprobs: a.Logprobs},
		{TokenIDs: a.TokenIDs, PromptTokenIDs: a.PromptTokenIDs, MetaInfo: a.MetaInfo, Nulls: a.Nulls},
	}
}

// Fields names the request fields that Added stands for, as an upstream that
// does not know them would name them in its refusal.
func (a Added) Fields() []string {
	var fields []string
	if a.Usage {
		fields = append(fields, "stream_options", "include_usage")
	}
	if a.Logprobs {
		fields = append(fields, "logprobs")
	}
	if a.TokenIDs {
		fields = append(fields, "return_token_ids")
	}
	if a.PromptTokenIDs && !a.Nulls {
		fields = append(fields, "return_prompt_token_ids")
	}
	if a.MetaInfo {
		fields = append(fields, "return_meta_info")
	}
	return fields
}

// NamedIn is the part of Added that a refusal names.
func (a Added) NamedIn(refusal []byte) Added {
	var named Added
	for _, part := range a.parts() {
		for _, field := range part.Fields() {
			if bytes.Contains(refusal, []byte(field)) {
				named = named.With(part)
			}
		}
	}
	return named
}

// tokens says that the answer has to be freed of what was captured.
func (a Added) tokens() bool {
	return a.Logprobs || a.TokenIDs || a.PromptTokenIDs || a.MetaInfo
}
