package registry_test

import (
	"errors"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func placed(generation int) registry.Placement {
	return registry.Placement{Server: "srv-1", URL: "https://a.example.net", Generation: generation}
}

func TestSummaryShowsTheNewestPlacement(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{Placement: placed(1)})
	third := registry.Placement{Server: "srv-3", URL: "https://c.example.net", Generation: 3}
	for _, to := range []registry.Placement{third, {Server: "srv-2", URL: "https://b.example.net", Generation: 2}, placed(1)} {
		if err := s.Move(to); err != nil {
			t.Fatal(err)
		}
		if got := s.Summary().Placement; got != third {
			t.Errorf("after %+v: got %+v; want %+v", to, got, third)
		}
	}
}

func TestMovesAndUpdatesKeepWhatTheOtherChanged(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{Placement: placed(1), OnEndpointLoss: registry.EndpointLossKeep})
	err := s.Update(func(spec *registry.Spec) error {
		spec.Model, spec.OnEndpointLoss = "m", registry.EndpointLossStop
		return s.Move(placed(2)) // between the update's reading and its writing
	})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Spec()
	if err := s.Move(placed(3)); err != nil {
		t.Fatal(err)
	}
	after := s.Spec()
	if before.Placement != placed(2) || before.Model != "m" || before.OnEndpointLoss != registry.EndpointLossKeep {
		t.Errorf("after the update: got %+v", before)
	}
	if after.Placement != placed(3) || after.Model != "m" || s.Settings().Model != "m" {
		t.Errorf("after the move: got %+v", after)
	}
}

func TestEndedSessionKeepsItsLastPlacement(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{ID: "a", Placement: placed(1)})
	if err := s.Move(placed(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Move(placed(3)); !errors.Is(err, registry.ErrSessionEnded) {
		t.Errorf("got %v; want that it has ended", err)
	}
	if got := s.Summary().Placement; got != placed(2) {
		t.Errorf("got %+v; want %+v", got, placed(2))
	}
}

func TestEndpointLossIsStopUnlessSaid(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for given, want := range map[registry.EndpointLoss]registry.EndpointLoss{
		"": registry.EndpointLossStop, "stop": registry.EndpointLossStop, "keep": registry.EndpointLossKeep,
	} {
		s, _ := register(t, r, registry.Spec{OnEndpointLoss: given})
		if got := s.Spec().OnEndpointLoss; got != want {
			t.Errorf("%q: got %q; want %q", given, got, want)
		}
	}
	_, err := r.Register(registry.Spec{OnEndpointLoss: "move"})
	if e, ok := errors.AsType[*registry.InvalidError](err); !ok || e.Field != "on_endpoint_loss" {
		t.Errorf("got %v; want on_endpoint_loss refused", err)
	}
}
