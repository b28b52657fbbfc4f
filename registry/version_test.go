package registry_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/registry"
)

func version(tb testing.TB, text string) registry.Version {
	tb.Helper()
	var v registry.Version
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		tb.Fatalf("read %s: %v", text, err)
	}
	return v
}

func TestVersionsKeepIntegersAndStringsApart(t *testing.T) {
	for text, shown := range map[string]string{
		`17`: "17", `"17"`: "17", `-3`: "-3", `0`: "0", `"step <5>"`: "step <5>", `""`: "", `null`: "",
		`123456789012345678901234567890`: "123456789012345678901234567890",
	} {
		v := version(t, text)
		if got := v.String(); got != shown {
			t.Errorf("%s is shown as %q; want %q", text, got, shown)
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if version(t, string(again)) != v {
			t.Errorf("%s comes back as %s", text, again)
		}
	}
	if version(t, `17`) == version(t, `"17"`) || version(t, `17`) != registry.IntVersion(17) || version(t, `"a"`) != registry.StringVersion("a") {
		t.Error("versions are mixed up")
	}
	if !version(t, `null`).IsZero() || version(t, `""`).IsZero() {
		t.Error("the empty string is taken for none")
	}
}

func TestVersionsAreRefusedUnlessIntegerOrString(t *testing.T) {
	for _, text := range []string{`1.5`, `1e3`, `true`, `{}`, `[1]`} {
		var v registry.Version
		if err := json.Unmarshal([]byte(text), &v); err == nil {
			t.Errorf("%s is taken as %v", text, v)
		}
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	want := []string{
		"-100", "-20", "-3", "0", "7", "10", "99999999999999999999", `""`, `"a"`, `"b"`,
		`"step"`, `"step-"`, `"step-9"`, `"step-010"`, `"step-10"`, `"step-10-a"`, `"step-10-b"`, `"step-99999999999999999999"`, `"step-x"`, `"stepa"`,
	}
	var versions []registry.Version
	for i := range want {
		versions = append(versions, version(t, want[i*7%len(want)]))
	}
	slices.SortFunc(versions, registry.Version.Compare)
	for i, v := range versions {
		if v != version(t, want[i]) {
			t.Errorf("place %d has %v; want %s", i, v, want[i])
		}
	}
}

func FuzzVersionSurvivesJSON(f *testing.F) {
	for _, text := range []string{`17`, `"a\u003c\ud800"`, `-0`, `null`, `1e5`, ` 3 `, `"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v, again registry.Version
		if err := v.UnmarshalJSON(text); err != nil {
			return
		}
		written, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%q is taken but cannot be written: %v", text, err)
		}
		if err := json.Unmarshal(written, &again); err != nil || again != v || v.Compare(again) != 0 {
			t.Fatalf("%q is written as %s and read as %v, %v", text, written, again, err)
		}
	})
}
