package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/admin"
)

// openapi prints the OpenAPI document of the admin API.
func openapi(_ context.Context, p process, flags *flag.FlagSet, args []string) error {
	format := flags.String("format", "json", "json or yaml")
	if err := parse(flags, args); err != nil {
		return err
	}
	jsonText, yamlText, err := admin.Document()
	if err != nil {
		return err
	}
	text := jsonText
	switch *format {
	case "json":
	case "yaml":
		text = yamlText
	default:
		return &usageError{flags.Name(), fmt.Sprintf("-format %q: accepts json or yaml", *format)}
	}
	_, err = p.stdout.Write(text)
	return err
}
