package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestEveryDirectDependencyIsDocumentedWithItsReason(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\t(\S+) v\S+(.*)$`).FindAllStringSubmatch(string(mod), -1) {
		module, indirect := line[1], strings.Contains(line[2], "indirect")
		if documented := strings.Contains(string(doc), "| `"+module+"` |"); !documented && !indirect {
			t.Errorf("%s: not in docs/dependencies.md", module)
		}
	}
}
