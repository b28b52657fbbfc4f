package registry_test

import (
	"errors"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func TestRulesAreNotNamedLikeLimitsOrBuiltInConditions(t *testing.T) {
	r, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "max_context_tokens", "max_duration",
		"max_inflight", "requests_per_second", "admin_stop", "context_length", "tunnel_lost", "user_completed",
	} {
		_, err := r.Register(registry.Spec{StopConditions: []registry.StopCondition{{Name: "a", ToolCall: "b"}, {Name: name, ToolCall: "b"}}})
		if e, ok := errors.AsType[*registry.InvalidError](err); !ok || e.Field != "stop_conditions[1].name" {
			t.Errorf("%s: got %v; want stop_conditions[1].name refused", name, err)
		}
	}
	if _, err := r.Register(registry.Spec{StopConditions: []registry.StopCondition{{Name: "max_turns_2", ToolCall: "b"}}}); err != nil {
		t.Error(err)
	}
}
