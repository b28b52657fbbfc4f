package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// upstreams is what UPSTREAM_* and UPSTREAMS_FILE amount to, by name.
func (p *problems) upstreams(cfg Config) map[string]upstream.Config {
	all := make(map[string]upstream.Config)
	p.readUpstreams(cfg.UpstreamsFile, all)
	if len(cfg.UpstreamURL) == 0 {
		for _, name := range []string{"API_KEY", "API_KEY_FILE", "STYLE", "HEADERS", "USAGE"} {
			if p.vars[prefix+"UPSTREAM_"+name] != "" {
				p.add("UPSTREAM_"+name, "set without %sUPSTREAM_URL", prefix)
			}
		}
		return all
	}
	if _, ok := all[registry.DefaultUpstream]; ok {
		p.add("UPSTREAMS_FILE", "it describes the upstream %q, and so does %sUPSTREAM_URL", registry.DefaultUpstream, prefix)
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
	if err := c.Validate(); err != nil {
		p.addUpstream(err)
	}
	all[registry.DefaultUpstream] = c
	return all
}

// addUpstream says what is wrong with the upstream of the UPSTREAM_* variables
// under the variable that it came from.
func (p *problems) addUpstream(err error) {
	invalid, ok := errors.AsType[*upstream.InvalidError](err)
	if !ok {
		p.add("UPSTREAM_URL", "%v", err)
		return
	}
	switch field := invalid.Field; {
	case field == "style":
		p.refuse("UPSTREAM_STYLE")
	case field == "usage":
		p.refuse("UPSTREAM_USAGE")
	case field == "api_key":
		p.add("UPSTREAM_API_KEY", "%s", invalid.Message)
	case strings.HasPrefix(field, "headers"):
		p.add("UPSTREAM_HEADERS", "%v", invalid)
	default:
		p.add("UPSTREAM_URL", "%v; accepts %s", invalid, fieldOf("UPSTREAM_URL").Tag.Get("accepts"))
	}
}

// readUpstreams adds the upstreams that file describes to all.
func (p *problems) readUpstreams(file string, all map[string]upstream.Config) {
	const name = "UPSTREAMS_FILE"
	if file == "" {
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		p.add(name, "%v; accepts %s", err, fieldOf(name).Tag.Get("accepts"))
		return
	}
	entries, err := decodeUpstreams(text)
	if err != nil {
		p.add(name, "%s: %v", file, err)
		return
	}
	var wrong []string
	set := upstream.NewSet(upstream.Options{}) // knows which names there may be
	for _, key := range sortedKeys(entries) {
		if err := set.Put(key, entries[key]); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
			continue
		}
		all[key] = entries[key]
	}
	if len(wrong) > 0 {
		p.add(name, "%s: %s", file, strings.Join(wrong, "; "))
	}
}

// decodeUpstreams reads names and, for each, the body of PUT /upstreams/{name}.
func decodeUpstreams(text []byte) (map[string]upstream.Config, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var entries map[string]upstream.Config
	if err := d.Decode(&entries); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return entries, nil
}
