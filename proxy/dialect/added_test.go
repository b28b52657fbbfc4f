package dialect_test

import (
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
)

func TestAddedIsTheSameAfterItWasRecorded(t *testing.T) {
	for bits := range uint32(1 << 8) {
		added := dialect.AddedOf(bits)
		if again := dialect.AddedOf(added.Bits()); again != added || added.Bits()&^bits != 0 {
			t.Errorf("bits %b are %+v, whose bits are %b", bits, added, added.Bits())
		}
	}
	if bits := (dialect.Added{Usage: true}).Bits(); bits != 1 {
		t.Errorf("usage has the bits %b; recorded turns have 1", bits)
	}
	if bits := (dialect.Added{}).Bits(); bits != 0 {
		t.Errorf("nothing has the bits %b", bits)
	}
}
