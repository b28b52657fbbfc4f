package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// primeDefaultURL is Prime's own API.
const primeDefaultURL = "https://api.primeintellect.ai"

// checkPrime fills in what Prime's own variables and then its configuration
// file say, as Prime's tools do.
func (p *problems) checkPrime(cfg *Config) {
	cfg.PrimeAPIKey = p.secret("PRIME_API_KEY", cfg.PrimeAPIKey, cfg.PrimeAPIKeyFile)
	file, err := readPrimeFile(p.vars["HOME"])
	if err != nil {
		p.add("PRIME_API_KEY", "%v", err)
	}
	if cfg.PrimeAPIKey == "" {
		cfg.PrimeAPIKey = p.secret("PRIME_API_KEY", Secret(cmp.Or(p.vars["PRIME_API_KEY"], file.APIKey)), "")
	}
	if cfg.PrimeAPIKey == "" && len(p.found["PRIME_API_KEY_FILE"]) == 0 {
		p.add("PRIME_API_KEY", "required with %sTUNNEL=prime, and neither PRIME_API_KEY nor Prime's configuration file has one; accepts %s",
			prefix, fieldOf("PRIME_API_KEY").Tag.Get("accepts"))
	}
	given := cfg.PrimeAPIBaseURL
	cfg.PrimeAPIBaseURL = primeBaseURL(cmp.Or(given, p.vars["PRIME_API_BASE_URL"], p.vars["PRIME_BASE_URL"], file.BaseURL, primeDefaultURL))
	if !isBaseURL(cfg.PrimeAPIBaseURL) {
		p.add("PRIME_API_BASE_URL", "%q is not accepted; accepts %s", redacted(cfg.PrimeAPIBaseURL), fieldOf("PRIME_API_BASE_URL").Tag.Get("accepts"))
	}
	if cfg.PrimeTeamID == "" {
		team, set := p.vars["PRIME_TEAM_ID"]
		if !set { // an empty one chooses no team
			team = file.TeamID
		}
		cfg.PrimeTeamID = team
	}
}

// primeBaseURL is the address without what the calls append themselves.
func primeBaseURL(raw string) string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(raw, "/"), "/api/v1"), "/")
}

// primeFile is what muxproxy reads of the file that Prime's command line
// writes.
type primeFile struct {
	APIKey  string `json:"api_key"`
	BaseURL string `json:"base_url"`
	TeamID  string `json:"team_id"`
}

// readPrimeFile reads the file under that home directory; it need not exist.
func readPrimeFile(home string) (file primeFile, err error) {
	if home == "" {
		return file, nil
	}
	name := filepath.Join(home, ".prime", "config.json")
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return file, nil
	}
	if err != nil {
		return file, fmt.Errorf("read Prime's configuration: %w", err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return file, fmt.Errorf("%s is not what Prime's command line writes", name) // the JSON error may quote a key
	}
	return file, nil
}
