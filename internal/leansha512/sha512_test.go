package leansha512

import (
	"crypto/sha512"
	"math/rand/v2"
	"testing"
)

func TestAsStandard(t *testing.T) {
	t.Parallel()
	data := make([]byte, 600)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	for n := range data {
		if got, want := Sum(data[:n]), sha512.Sum512(data[:n]); got != want {
			t.Fatalf("%d bytes: %x, want %x", n, got, want)
		}
	}
}
