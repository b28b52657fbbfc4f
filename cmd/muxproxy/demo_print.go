package main

import (
	"fmt"
	"io"
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
			r.harness.usage.PromptTokens, r.harness.usage.CompletionTokens,
			r.harness.took.Round(time.Millisecond), r.outcome)
	}
	return out.Flush()
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
import openai
answer = openai.OpenAI().chat.completions.create(
    model="any", messages=[{"role": "user", "content": "hello"}])
print(answer.choices[0].message.content)
PYTHON

Ctrl-C ends the demo.
`, base, session.Secret, session.ID)
}
