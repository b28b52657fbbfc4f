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
		return &usageError{fmt.Sprintf("%s: -format %q: accepts json or yaml\n\n%s", flags.Name(), *format, usageOf(flags))}
	}
	_, err = p.stdout.Write(text)
	return err
}
