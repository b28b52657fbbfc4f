//go:build race

package main_test

// raceFlag builds the daemon under test as the tests themselves are built.
const raceFlag = "-race"
