package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// printDemo prints the rollouts as a table for a person.
func printDemo(w io.Writer, all []*demoRollout) error {
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "ROLLOUT\tSERVER\tCALLS AS\tTURNS\tTOKENS IN/OUT\tTIME\tOUTCOME")
	for _, r := range all {
		as := "JSON"
		if r.harness.stream {
			as = "stream"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%d/%d\t%s\t%s\n", r.id, r.server, as, len(r.harness.answers),
			r.usage.Input, r.usage.Output,
			r.harness.took.Round(time.Millisecond), r.outcome)
	}
	return out.Flush()
}

// traceLines is how many turns of a trace are shown.
const traceLines = 5

// printTrace prints the outline of a rollout's trace.
func printTrace(w io.Writer, r *demoRollout) error {
	fmt.Fprintf(w, "the trace of %s, in outline:\n\n", r.id)
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "  TURN\tPARENT\tPROMPT/COMPLETION TOKENS\tFINISH REASON\tANSWER")
	for i, turn := range r.trace.Turns {
		if i == traceLines {
			fmt.Fprintf(out, "  ... and %d more\n", len(r.trace.Turns)-i)
			break
		}
		parent := "-"
		if turn.Parent != nil {
			parent = strconv.Itoa(*turn.Parent)
		}
		fmt.Fprintf(out, "  %d\t%s\t%d/%d\t%s\t%s\n", turn.Index, parent,
			turn.Usage.Input, turn.Usage.Output, turn.Choices[0].FinishReason, said(r.harness.answers[i]))
	}
	return out.Flush()
}

// said is an answer in one line.
func said(m chatMessage) string {
	if len(m.ToolCalls) == 0 {
		return m.Content
	}
	call := m.ToolCalls[0].Function
	return fmt.Sprintf("%s(%s)", call.Name, call.Arguments)
}

// printMetrics prints a few of the metrics, those that are not zero.
func printMetrics(w io.Writer, scraped []byte) {
	fmt.Fprint(w, "\nsome of the metrics:\n\n")
	for line := range strings.Lines(string(scraped)) {
		name, _, _ := strings.Cut(line, "{")
		switch name {
		case "muxproxy_requests_total", "muxproxy_turns_total", "muxproxy_tokens_total", "muxproxy_refusals_total":
			if !strings.HasSuffix(line, " 0\n") {
				fmt.Fprint(w, "  ", line)
			}
		}
	}
	fmt.Fprint(w, "\nA prompt repeats what was said before: the first table counts that once, the others each time.\n\n")
}

// printWhere says where to find what was recorded.
func printWhere(w io.Writer, adminURL, id string) {
	fmt.Fprintf(w, "  trace     curl -s %s/sessions/%s/trace\n", adminURL, id)
	fmt.Fprintf(w, "  sessions  curl -s %s/sessions\n", adminURL)
	fmt.Fprintf(w, "  metrics   curl -s %s/metrics\n", adminURL)
	fmt.Fprintf(w, "  API       %s/docs\n", adminURL)
}

// printTry prints commands that can be pasted as they are.
func printTry(w io.Writer, session registered) {
	base := session.Endpoint.OpenAIBaseURL
	fmt.Fprintf(w, `
Be a harness: the session %[3]s is registered and waits for you.

  curl -sN %[1]s/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' \
    -d '{"model": "any", "stream": true, "messages": [{"role": "user", "content": "what is 2 + 3?"}]}'

OPENAI_BASE_URL=%[1]s OPENAI_API_KEY=%[2]s python3 - <<'PYTHON'
import openai  # pip install openai
answer = openai.OpenAI().chat.completions.create(
    model="any", messages=[{"role": "user", "content": "hello"}])
print(answer.choices[0].message.content)
PYTHON

Ctrl-C ends the demo.
`, base, session.Secret, session.ID)
}
