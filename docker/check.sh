#!/bin/sh
# Checks the Prometheus configuration, the alert rules, their scenarios and the dashboard's queries.
# Needs promtool (Debian package prometheus) and jq.
set -eu
cd "$(dirname "$0")"

promtool check config prometheus/prometheus.yml
promtool test rules prometheus/alerts_test.yml

# As recording rules, with Grafana's variables filled in, the dashboard's queries go through Prometheus's own parser.
queries=$(mktemp --suffix=.yml)
trap 'rm -f "$queries"' EXIT
jq '{groups: [{name: "dashboard", rules: [
      .panels[].targets[]?.expr, .annotations.list[].expr
      | gsub("\\$__rate_interval"; "1m") | gsub("\\$(instance|upstream)"; ".*")
    ] | to_entries | map({record: "q\(.key)", expr: .value})}]}' grafana/dashboards/muxproxy.json >"$queries"
promtool check rules "$queries"
