package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// mergePatch applies a JSON merge patch (RFC 7386): members of patch replace
// those of target, null removes one, objects are merged member by member. Both
// are JSON texts; an empty target is an absent one.
func mergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	changes, ok := object(patch)
	if !ok {
		return patch, nil
	}
	merged, ok := object(target)
	if !ok {
		merged = make(map[string]json.RawMessage, len(changes))
	}
	for key, change := range changes {
		if isNull(change) {
			delete(merged, key)
			continue
		}
		value, err := mergePatch(merged[key], change)
		if err != nil {
			return nil, err
		}
		merged[key] = value
	}
	out, err := encode(merged)
	if err != nil {
		return nil, fmt.Errorf("encode merged object: %w", err)
	}
	return out, nil
}

func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	return m, true
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// encode is json.Marshal without the escaping of <, > and &.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
