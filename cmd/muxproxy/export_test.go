package main

import "context"

// What the tests call in process.
var (
	Run              = run
	LoadConfig       = loadConfig
	MemoryLimit      = memoryLimit
	HeedControlGroup = heedControlGroup
	NewLogger        = newLogger
	Console          = console
)

// Variable is one row of the documented configuration.
type Variable struct{ Name, Default, Accepts string }

// Variables lists the rows in the order of Config.
func Variables() []Variable {
	var rows []Variable
	for f := range variables() {
		rows = append(rows, Variable{prefix + f.Tag.Get("env"), f.Tag.Get("envDefault"), f.Tag.Get("accepts")})
	}
	return rows
}

// NewTeardown returns a function that registers a step, and one that runs all.
func NewTeardown() (add func(string, func(context.Context) error), run func(context.Context) error) {
	var t teardown
	return t.add, t.run
}
