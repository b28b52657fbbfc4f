package main

import (
	"regexp"
	"strings"
)

// kubernetesLink matches the variables that Kubernetes and Docker links set in
// every container of a namespace with a service called muxproxy: they are
// nobody's configuration. A bare ..._PORT is one only with a tcp:// value.
const kubernetesLink = `^MUXPROXY(_[A-Z0-9_]+)?_(SERVICE_HOST=.*|SERVICE_PORT(_[A-Z0-9_]+)?=.*|PORT(_[0-9]+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)$`

// checkNames refuses variables that start like ours and are not, so that a
// misspelt limit is not silently no limit.
func (p *problems) checkNames() {
	link := regexp.MustCompile(kubernetesLink)
	for _, full := range sortedKeys(p.vars) {
		name, ours := strings.CutPrefix(full, prefix)
		if !ours || fieldOf(name).Tag.Get("env") != "" || link.MatchString(full+"="+p.vars[full]) {
			continue
		}
		if near := nearest(name); near != "" {
			p.add(name, "not known in this version; the nearest known name is %s%s", prefix, near)
			continue
		}
		p.add(name, "not known in this version")
	}
}

// nearest is the known name with the fewest edits from name, or "" when none
// is near enough to have been meant.
func nearest(name string) string {
	best, fewest := "", max(2, len(name)/3)+1
	for f := range variables() {
		known := f.Tag.Get("env")
		if n := edits(name, known); n < fewest {
			best, fewest = known, n
		}
	}
	return best
}

// edits is the Levenshtein distance of two ASCII strings.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
