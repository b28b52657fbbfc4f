package main

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// ConfigError is everything that is wrong with a configuration.
type ConfigError struct {
	// Problems are sentences that begin with the variable's name, in the order
	// of the documentation. They hold no secrets.
	Problems []string
}

// Error is all the problems, one a line.
func (e *ConfigError) Error() string {
	return "configuration:\n  " + strings.Join(e.Problems, "\n  ")
}

// problems gathers what is wrong.
type problems struct {
	vars  map[string]string
	found map[string][]string // by variable, without the prefix
}

func newProblems(vars map[string]string) *problems {
	return &problems{vars: vars, found: make(map[string][]string)}
}

// add adds a problem of a variable, unless it has one: the first found is the
// one that explains the others.
func (p *problems) add(name, format string, args ...any) {
	if len(p.found[name]) == 0 {
		p.addTo(name, format, args...)
	}
}

// addTo adds a problem of a variable that holds several things.
func (p *problems) addTo(name, format string, args ...any) {
	p.found[name] = append(p.found[name], fmt.Sprintf(format, args...))
}

// refuse says that the variable's value is not one that it accepts. The value
// is repeated only where it cannot hold a secret.
func (p *problems) refuse(name string) {
	field := fieldOf(name)
	switch field.Type {
	case reflect.TypeFor[Secret](), reflect.TypeFor[Headers](), reflect.TypeFor[URLs](), reflect.TypeFor[Argv]():
		p.add(name, "the value is not accepted (not shown); accepts %s", field.Tag.Get("accepts"))
	default:
		p.add(name, "%q is not accepted; accepts %s", p.vars[prefix+name], field.Tag.Get("accepts"))
	}
}

// addParse takes over what the env package found.
func (p *problems) addParse(err error) {
	all := []error{err}
	if aggregate, ok := errors.AsType[env.AggregateError](err); ok {
		all = aggregate.Errors
	}
	for _, err := range all {
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			field, _ := reflect.TypeFor[Config]().FieldByName(parse.Name)
			p.refuse(field.Tag.Get("env"))
			continue
		}
		p.add("", "%v", err)
	}
}

// checkNumbers refuses what is negative, zero without a meaning, or no number.
func (p *problems) checkNumbers(cfg Config) {
	v := reflect.ValueOf(cfg)
	for f := range variables() {
		field := v.FieldByIndex(f.Index)
		if field.Kind() == reflect.Pointer {
			if field.IsNil() {
				continue
			}
			field = field.Elem()
		}
		var n float64
		switch field.Kind() {
		case reflect.Int, reflect.Int64:
			n = float64(field.Int())
		case reflect.Float64:
			n = field.Float()
		default:
			continue
		}
		_, zero := f.Tag.Lookup("zero")
		if n < 0 || math.IsNaN(n) || math.IsInf(n, 0) || n == 0 && !zero {
			p.refuse(f.Tag.Get("env"))
		}
	}
}

// secret is the value itself or the contents of the file named by the variable
// name_FILE, without the newline that editors put at its end.
func (p *problems) secret(name string, value Secret, file string) Secret {
	if file != "" {
		if value != "" {
			p.add(name, "set together with %s%s_FILE; set one of them", prefix, name)
			return value
		}
		name += "_FILE"
		text, err := os.ReadFile(file)
		if err != nil {
			p.add(name, "%v; accepts %s", err, fieldOf(name).Tag.Get("accepts"))
			return ""
		}
		value = Secret(strings.TrimRight(string(text), "\r\n"))
		if value == "" {
			p.add(name, "%s is empty", file)
		}
	}
	if strings.ContainsFunc(string(value), notInToken) {
		p.add(name, "holds a space or a character that cannot be printed (not shown)")
	}
	return value
}

func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// err is all the problems, in the order of Config's fields, then unknown names.
func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	var names []string
	for f := range variables() {
		if name := f.Tag.Get("env"); len(p.found[name]) > 0 {
			names = append(names, name)
		}
	}
	for _, name := range sortedKeys(p.found) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	e := new(ConfigError)
	for _, name := range names {
		for _, problem := range p.found[name] {
			e.Problems = append(e.Problems, prefix+name+": "+problem)
		}
	}
	return e
}

// variables yields the fields of Config that are read from a variable, in the
// order in which they are documented.
func variables() iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
			if name := f.Tag.Get("env"); name != "" && name != "-" && !yield(f) {
				return
			}
		}
	}
}

// fieldOf is the field read from the variable; the zero field if there is none.
func fieldOf(name string) reflect.StructField {
	for f := range variables() {
		if f.Tag.Get("env") == name {
			return f
		}
	}
	return reflect.StructField{Type: reflect.TypeFor[string]()}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
