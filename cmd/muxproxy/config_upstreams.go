package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// upstreams is what UPSTREAM_* and UPSTREAMS_FILE amount to, by name.
func (p *problems) upstreams(cfg Config) map[string]upstream.Config {
	all := p.readUpstreams(cfg.UpstreamsFile)
	if len(cfg.UpstreamURL) == 0 {
		for _, name := range []string{"API_KEY", "API_KEY_FILE", "STYLE", "HEADERS", "USAGE"} {
			if p.vars[prefix+"UPSTREAM_"+name] != "" {
				p.add("UPSTREAM_"+name, "set without %sUPSTREAM_URL", prefix)
			}
		}
		return all
	}
	if _, ok := all[registry.DefaultUpstream]; ok {
		p.addTo("UPSTREAMS_FILE", "it describes the upstream %q, and so does %sUPSTREAM_URL", registry.DefaultUpstream, prefix)
	}
	c := upstream.Config{
		APIKey:  string(cfg.UpstreamAPIKey),
		Headers: cfg.UpstreamHeaders,
		Style:   upstream.Style(cfg.UpstreamStyle),
		Usage:   upstream.Usage(cfg.UpstreamUsage),
	}
	for _, u := range cfg.UpstreamURL {
		c.Replicas = append(c.Replicas, upstream.ReplicaConfig{URL: u})
	}
	for _, invalid := range invalidFields(c) {
		p.addUpstream(invalid)
	}
	all[registry.DefaultUpstream] = c
	return all
}

// addUpstream says what is wrong with the upstream of the UPSTREAM_* variables
// under the variable that it came from.
func (p *problems) addUpstream(invalid *upstream.InvalidError) {
	switch field := invalid.Field; {
	case field == "style":
		p.refuse("UPSTREAM_STYLE")
	case field == "usage":
		p.refuse("UPSTREAM_USAGE")
	case field == "api_key":
		p.add("UPSTREAM_API_KEY", "%s", invalid.Message)
	case strings.HasPrefix(field, "headers"):
		p.addTo("UPSTREAM_HEADERS", "%v", invalid)
	default:
		p.addTo("UPSTREAM_URL", "%s%s; accepts %s", whichURL(field), invalid.Message, fieldOf("UPSTREAM_URL").Tag.Get("accepts"))
	}
}

// whichURL names the URL of the list that a field of the upstream came from;
// nothing when the field is of none.
func whichURL(field string) string {
	var i int
	if _, err := fmt.Sscanf(field, "replicas[%d]", &i); err != nil {
		return ""
	}
	return fmt.Sprintf("URL %d: ", i+1)
}

// readUpstreams returns the upstreams that file describes, by name, those with
// problems too.
func (p *problems) readUpstreams(file string) map[string]upstream.Config {
	const name = "UPSTREAMS_FILE"
	all := make(map[string]upstream.Config)
	if file == "" {
		return all
	}
	text, err := os.ReadFile(file)
	if err != nil {
		p.add(name, "%v; accepts %s", err, fieldOf(name).Tag.Get("accepts"))
		return all
	}
	entries, err := objectOf(text)
	if err != nil {
		p.add(name, "%s: %v", file, err)
		return all
	}
	names := upstream.NewSet(upstream.Options{}) // knows which there may be
	for _, key := range sortedKeys(entries) {
		c, wrong := decodeUpstream(entries[key])
		if err := names.Put(key, usable()); err != nil {
			wrong = append([]error{err}, wrong...)
		}
		for _, err := range wrong {
			p.addTo(name, "%s: %s: %v", file, key, err)
		}
		all[key] = c
	}
	return all
}
