package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestListIsFilteredAndPagesAreStable(t *testing.T) {
	h := newHarness(t)
	for i := range 7 {
		h.register(value{"id": fmt.Sprintf("s%d", i), "labels": value{"env": "gsm8k", "parity": fmt.Sprint(i % 2), "url": "http://x"}})
	}
	h.want(http.StatusOK, http.MethodPost, "/sessions/s2/stop", value{"reason": "enough"})
	h.want(http.StatusOK, http.MethodDelete, "/sessions/s3", nil)

	list := func(query string) []string {
		t.Helper()
		var ids []string
		for _, s := range h.want(http.StatusOK, http.MethodGet, "/sessions"+query, nil)["sessions"].([]any) {
			ids = append(ids, s.(value)["id"].(string))
		}
		return ids
	}
	for query, want := range map[string]string{
		"":                                "s6 s5 s4 s3 s2 s1 s0",
		"?state=active":                   "s6 s5 s4 s1 s0",
		"?state=stopped":                  "s2",
		"?state=ended":                    "s3",
		"?stop_condition=enough":          "s2",
		"?label=parity:0":                 "s6 s4 s2 s0",
		"?label=parity:0&label=env:gsm8k": "s6 s4 s2 s0",
		"?label=parity:0&label=parity:1":  "",
		"?label=url:http://x&state=ended": "s3",
		"?label=env:other":                "",
	} {
		if got := strings.Join(list(query), " "); got != want {
			t.Errorf("%s: got %q; want %q", query, got, want)
		}
	}

	var ids []string
	cursor := ""
	for page := 0; ; page++ {
		got := h.want(http.StatusOK, http.MethodGet, "/sessions?limit=2&cursor="+url.QueryEscape(cursor), nil)
		for _, s := range got["sessions"].([]any) {
			ids = append(ids, s.(value)["id"].(string))
		}
		h.register(value{"id": fmt.Sprintf("later%d", page)})
		h.want(http.StatusOK, http.MethodDelete, "/sessions/s4?purge=true", nil)
		next, more := got["next_cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if got := strings.Join(ids, " "); got != "s6 s5 s3 s2 s1 s0" {
		t.Errorf("got %s; want every session once, in order, without the removed one", got)
	}
	for query, want := range map[string]string{
		"?limit=0": "query.limit", "?limit=1001": "query.limit", "?limit=x": "query.limit", "?state=idle": "query.state",
		"?cursor=!": "query.cursor", "?label=env": "query.label", "?lable=a:b": "query.lable",
	} {
		r := h.problem(http.StatusUnprocessableEntity, "invalid_request", http.MethodGet, "/sessions"+query, nil)
		if got := h.locations(r); !slices.Contains(got, want) {
			t.Errorf("%s: got %v; want it to name %s", query, got, want)
		}
	}
}
