package metrics_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/muxproxy/muxproxy/metrics"
)

func TestCatalogueIsWhatIsScraped(t *testing.T) {
	reg, m := newMetrics(t, fullSources())
	touch(m)
	families := scrape(t, reg)
	for _, want := range metrics.Catalogue() {
		f := families[want.Name]
		if f == nil {
			t.Errorf("%s is in the catalogue and not scraped", want.Name)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != string(want.Type) {
			t.Errorf("%s is a %s, catalogue says %s", want.Name, got, want.Type)
		}
		if f.GetHelp() != want.Help {
			t.Errorf("%s: help %q, catalogue says %q", want.Name, f.GetHelp(), want.Help)
		}
		for _, s := range f.GetMetric() {
			var names []string
			for _, l := range s.GetLabel() {
				names = append(names, l.GetName())
			}
			if sorted := slices.Sorted(slices.Values(want.Labels)); !slices.Equal(names, sorted) {
				t.Errorf("%s has labels %v, catalogue says %v", want.Name, names, sorted)
			}
		}
		delete(families, want.Name)
	}
	for name := range families {
		if strings.HasPrefix(name, "muxproxy_") {
			t.Errorf("%s is scraped and not in the catalogue", name)
		}
	}
}

func TestReferencePageIsTheCatalogue(t *testing.T) {
	var rows, bounds []string
	for _, m := range metrics.Catalogue() {
		rows = append(rows, row(m))
		if m.Type == metrics.Histogram {
			bounds = append(bounds, boundsRow(m))
		}
	}
	for section, want := range map[string][]string{"## The metrics": rows, "## Histograms": bounds} {
		if got := tableOf(t, section); !slices.Equal(got, want) {
			t.Errorf("%s of docs/metrics.md differs from the catalogue, which gives:\n%s", section, strings.Join(want, "\n"))
		}
	}
}

func TestReferencePageNamesEveryLabelValue(t *testing.T) {
	page := readFile(t, referencePage)
	for label, values := range closedSets() {
		var quoted []string
		for _, v := range values {
			quoted = append(quoted, "`"+v+"`")
		}
		if line := "| " + label + " | " + strings.Join(quoted, ", ") + " |"; !strings.Contains(page, line+"\n") {
			t.Errorf("docs/metrics.md lacks the line\n%s", line)
		}
	}
}

// row renders a metric as a line of the reference page's table.
func row(m metrics.Metric) string {
	var labels []string
	for _, l := range m.Labels {
		labels = append(labels, "`"+l+"`")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, m.Type, strings.Join(labels, ", "), m.Help)
}

// boundsRow renders a histogram as a line of the reference page's table of bounds.
func boundsRow(m metrics.Metric) string {
	var bounds []string
	for _, b := range m.Buckets {
		bounds = append(bounds, strconv.FormatFloat(b, 'f', -1, 64))
	}
	return fmt.Sprintf("| `%s` | %s |", m.Name, strings.Join(bounds, ", "))
}

// tableOf gives the lines of the reference page's section that begin with a metric's name.
func tableOf(t *testing.T, section string) (lines []string) {
	t.Helper()
	_, rest, found := strings.Cut(readFile(t, referencePage), section+"\n")
	if !found {
		t.Fatalf("docs/metrics.md has no section %q", section)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "| `muxproxy_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// closedSets gives the values of each label, as the reference page names it.
func closedSets() map[string][]string {
	return map[string][]string{
		"`route`":                            texts(metrics.Routes()),
		"`outcome` of `requests_total`":      texts(metrics.Outcomes()),
		"`outcome` of `tunnel_opens_total`":  texts(metrics.TunnelOutcomes()),
		"`driver`":                           metrics.Drivers(),
		"`state` of `pool_servers`":          metrics.ServerStates(),
		"`state` of `pool_slots`":            {"used", "free", "coming"},
		"`code`":                             metrics.Codes(),
		"`stream`":                           {"true", "false"},
		"`dialect`":                          metrics.Dialects(),
		"`kind` of `failed_calls_total`":     texts(metrics.FailureKinds()),
		"`kind` of `replays_total`":          texts(metrics.Replays()),
		"`type`":                             texts(metrics.TokenTypes()),
		"`reason` of `refusals_total`":       texts(metrics.Reasons()),
		"`reason` of `sessions_ended_total`": metrics.EndReasons(),
		"`state` of `sessions`":              {"active", "stopped", "ended"},
		"`state` of `upstream_replicas`":     {"up", "down", "draining"},
		"`resource`":                         {"sessions", "inflight_requests", "trace_bytes"},
	}
}

// closedSet gives the values of a metric's label, nil when they come from the configuration.
func closedSet(sets map[string][]string, metric, label string) []string {
	label = "`" + label + "`"
	if set, ok := sets[label]; ok {
		return set
	}
	return sets[label+" of `"+strings.TrimPrefix(metric, "muxproxy_")+"`"]
}

// checkLabels fails for a value outside its label's closed set. Values of upstream are the configured names.
func checkLabels(t *testing.T, f *dto.MetricFamily) {
	t.Helper()
	sets := closedSets()
	sets["`upstream`"] = []string{"default"}
	for _, s := range f.GetMetric() {
		for _, l := range s.GetLabel() {
			set := closedSet(sets, f.GetName(), l.GetName())
			if set != nil && !slices.Contains(set, l.GetValue()) {
				t.Errorf("%s has %s=%q", f.GetName(), l.GetName(), l.GetValue())
			}
		}
	}
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
