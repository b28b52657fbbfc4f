package registry_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func ids(sessions []*registry.Session) []string {
	var ids []string
	for _, s := range sessions {
		ids = append(ids, s.ID())
	}
	return ids
}

func TestPagesAreStableUnderInsertsAndRemovals(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	var want []string
	for i := range 1000 {
		id := fmt.Sprintf("s%03d", i)
		register(t, r, registry.Spec{ID: id})
		if i%10 == 0 { // the others are removed while the list is read
			want = append(want, id)
		}
	}
	slices.Reverse(want)
	var got []string
	filter, next := registry.Filter{Limit: 7}, ""
	for page := 0; page == 0 || next != ""; page++ {
		filter.Cursor = next
		sessions, cursor, err := r.List(filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids(sessions) {
			if slices.Contains(got, id) {
				t.Errorf("%s is listed twice", id)
			}
			got = append(got, id)
		}
		next = cursor
		register(t, r, registry.Spec{ID: fmt.Sprintf("new%d", page)})
		for i := page * 30; i < page*30+30 && i < 1000; i++ {
			if i%10 != 0 {
				if _, err := r.End(t.Context(), fmt.Sprintf("s%03d", i), registry.EndOptions{Purge: true}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got = slices.DeleteFunc(got, func(id string) bool { return id[3] != '0' })
	if !slices.Equal(got, want) {
		t.Errorf("listed %v; want %v", got, want)
	}
}

func TestListFilters(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for i, labels := range []map[string]string{
		{"env": "math", "group": "1"}, {"env": "math", "group": "2"}, {"env": "code", "group": "2"}, nil,
	} {
		register(t, r, registry.Spec{ID: fmt.Sprint(i), Labels: labels})
	}
	if _, err := r.End(t.Context(), "0", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	stopped, err := r.Get("1")
	if err != nil {
		t.Fatal(err)
	}
	if err := stopped.Stop("enough", false); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		filter registry.Filter
		want   []string
	}{
		{registry.Filter{}, []string{"3", "2", "1", "0"}},
		{registry.Filter{State: registry.StateActive}, []string{"3", "2"}},
		{registry.Filter{State: registry.StateEnded}, []string{"0"}},
		{registry.Filter{StopCondition: "enough"}, []string{"1"}},
		{registry.Filter{Labels: map[string]string{"env": "math"}}, []string{"1", "0"}},
		{registry.Filter{Labels: map[string]string{"env": "math", "group": "2"}}, []string{"1"}},
		{registry.Filter{Labels: map[string]string{"env": ""}}, nil},
	} {
		page, next, err := r.List(test.filter)
		if got := ids(page); err != nil || next != "" || !slices.Equal(got, test.want) {
			t.Errorf("List(%+v) = %v, %q, %v; want %v", test.filter, got, next, err, test.want)
		}
	}
	if got := ids(r.Select(map[string]string{"group": "2"})); !slices.Equal(got, []string{"2", "1"}) {
		t.Errorf("Select = %v", got)
	}
	if got := r.Stats(); got.Sessions[registry.StateActive] != 2 || got.Sessions[registry.StateStopped] != 1 ||
		got.Sessions[registry.StateEnded] != 1 || got.Registered != 4 || got.Ended[registry.ReasonDeleted] != 1 {
		t.Errorf("stats are %+v", got)
	}
}

func TestListRefusesWhatItCannotRead(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for field, filter := range map[string]registry.Filter{
		"limit":  {Limit: 1001},
		"state":  {State: "dead"},
		"cursor": {Cursor: "!"},
	} {
		_, _, err := r.List(filter)
		wantInvalid(t, err, field)
	}
}

func TestLastPageHasNoCursor(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for range 4 {
		register(t, r, registry.Spec{})
	}
	page, next, err := r.List(registry.Filter{Limit: 2})
	if err != nil || len(page) != 2 || next == "" {
		t.Fatalf("List = %d sessions, %q, %v", len(page), next, err)
	}
	page, next, err = r.List(registry.Filter{Limit: 2, Cursor: next})
	if err != nil || len(page) != 2 || next != "" {
		t.Errorf("List = %d sessions, %q, %v", len(page), next, err)
	}
}
