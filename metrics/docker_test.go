package metrics_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/metrics"
)

const (
	alertsFile      = "../docker/prometheus/alerts.yml"
	alertsTestFile  = "../docker/prometheus/alerts_test.yml"
	dashboardFile   = "../docker/grafana/dashboards/muxproxy.json"
	referencePage   = "../docs/metrics.md"
	gridColumns     = 24
	panelRow        = "row"
	dashboardSource = "${datasource}"
)

// dashboard is what the tests read of Grafana's format.
type dashboard struct {
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func TestAlertsDashboardAndPageUseOnlyWhatIsScraped(t *testing.T) {
	names := scrapedNames()
	for _, file := range []string{alertsFile, alertsTestFile, dashboardFile, referencePage} {
		used := usedNames(readFile(t, file))
		if len(used) == 0 {
			t.Errorf("%s uses no metric", file)
		}
		for _, name := range used {
			if _, ok := names[name]; !ok {
				t.Errorf("%s uses %s, which is not in the catalogue", file, name)
			}
		}
	}
}

func TestSelectorsUseLabelsAndValuesThatExist(t *testing.T) {
	names := scrapedNames()
	sets := closedSets()
	everywhere := []string{"job", "instance", "le", "upstream"}
	selector := regexp.MustCompile(`(muxproxy_\w+)\{([^}]*)\}`)
	matcher := regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	for _, file := range []string{alertsFile, alertsTestFile, dashboardFile} {
		text := strings.ReplaceAll(readFile(t, file), `\"`, `"`)
		for _, s := range selector.FindAllStringSubmatch(text, -1) {
			m := names[s[1]]
			for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
				if slices.Contains(everywhere, l[1]) {
					continue
				}
				if !slices.Contains(m.Labels, l[1]) {
					t.Errorf("%s: %s has no label %s", file, s[0], l[1])
				}
				for v := range strings.SplitSeq(l[3], "|") {
					if set := closedSet(sets, m.Name, l[1]); !slices.Contains(set, v) {
						t.Errorf("%s: %s: %s is never %q", file, s[0], l[1], v)
					}
				}
			}
		}
	}
}

func TestDashboardShowsEveryMetric(t *testing.T) {
	names := scrapedNames()
	shown := make(map[string]bool)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			for _, name := range usedNames(target.Expr) {
				shown[names[name].Name] = true
			}
		}
	}
	for _, m := range metrics.Catalogue() {
		if !shown[m.Name] {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}

func TestDashboardPanelsAreComplete(t *testing.T) {
	ids := make(map[int]bool)
	taken := make(map[[2]int]string) // grid cell to the title of its panel
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is used twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > gridColumns {
			t.Errorf("%s is wider than the page", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[cell]; ok {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type == panelRow {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d (%s) lacks a title, description, unit or query", p.ID, p.Title)
		}
		if p.Datasource.UID != dashboardSource {
			t.Errorf("%s reads from %q, want the variable", p.Title, p.Datasource.UID)
		}
	}
}

func TestEveryAlertHasAScenarioInWhichItFires(t *testing.T) {
	scenarios := readFile(t, alertsTestFile)
	rules := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(readFile(t, alertsFile), -1)
	if len(rules) == 0 {
		t.Fatal("no rules found")
	}
	for _, r := range rules {
		if !regexp.MustCompile(`alertname: ` + r[1] + `\n +eval_time: .*\n +exp_alerts:\n +- exp_labels:`).MatchString(scenarios) {
			t.Errorf("no scenario fires %s", r[1])
		}
		if !strings.Contains(scenarios, "{alertname: "+r[1]+", eval_time: 45m, exp_alerts: []}") {
			t.Errorf("the healthy scenario does not check %s", r[1])
		}
	}
}

// scrapedNames gives the names of series, a histogram's three included, with the metric each is of.
func scrapedNames() map[string]metrics.Metric {
	names := make(map[string]metrics.Metric)
	for _, m := range metrics.Catalogue() {
		names[m.Name] = m
		if m.Type == metrics.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[m.Name+suffix] = m
			}
		}
	}
	return names
}

func usedNames(text string) []string {
	names := regexp.MustCompile(`\bmuxproxy_[a-z_]+`).FindAllString(text, -1)
	slices.Sort(names)
	return slices.Compact(names)
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(readFile(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return d
}
