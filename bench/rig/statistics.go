package rig

import (
	"cmp"
	"slices"
)

// Median sorts the values and is the one in the middle, or halfway between the
// two there.
func Median[T ~int64 | ~float64](values []T) T {
	slices.Sort(values)
	below, above := values[(len(values)-1)/2], values[len(values)/2]
	return below + (above-below)/2
}

// Quantile sorts the values and is the one below which there is this share of
// them; zero when there are none.
func Quantile[T cmp.Ordered](values []T, share float64) T {
	if len(values) == 0 {
		var none T
		return none
	}
	slices.Sort(values)
	return values[int(share*float64(len(values)-1))]
}
