package main_test

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryProblemOfAnUpstreamsFileNamesTheUpstreamAndTheField(t *testing.T) {
	file := write(t, `{
		"judge": {
			"replicas": [{"url": "ftp://h", "weight": 1}, {"url": 7}, {"url": "http://h", "name": "x y"}, {"url": "http://h"}],
			"style": "tgi", "usage": 3, "key": "k",
			"headers": {"A B": "c", "Upgrade": "d"}, "api_key": "\u0000"
		},
		"policy/7": {"replicas": [{"url": "http://h"}], "usage": "maybe"}
	}`)
	var got []string
	for _, p := range problemsOf(t, "UPSTREAMS_FILE="+file) {
		_, p, _ = strings.Cut(p, file+": ")
		name, field, _ := strings.Cut(p, ": ")
		field, _, _ = strings.Cut(field, ": ")
		got = append(got, name+" "+field)
	}
	slices.Sort(got)
	want := []string{
		"judge api_key", "judge headers.A B", "judge headers.Upgrade", "judge key",
		"judge replicas[0].url", "judge replicas[0].weight", "judge replicas[1].url", "judge replicas[2].name", "judge replicas[3].url",
		"judge style", "judge usage", "policy/7 name", "policy/7 usage",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
