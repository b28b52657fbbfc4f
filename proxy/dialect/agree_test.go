package dialect_test

import (
	"slices"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// comparableChoice has its text as a value: two functions are never equal.
type comparableChoice struct {
	registry.Choice
	text string
}

func comparableChoices(choices []registry.Choice) []comparableChoice {
	all := make([]comparableChoice, 0, len(choices))
	for _, c := range slices.Clone(choices) {
		text := ""
		if c.Text != nil {
			text = c.Text()
		}
		c.Text = nil
		all = append(all, comparableChoice{c, text})
	}
	return all
}

// comparableResult is a result and its choices' texts.
type comparableResult struct {
	dialect.Result
	choices []comparableChoice
}

func comparableOf(r dialect.Result) comparableResult {
	choices := comparableChoices(r.Choices)
	r.Choices = nil
	return comparableResult{r, choices}
}
