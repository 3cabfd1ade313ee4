package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzReplies(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Fuzz(func(_ *testing.T, p []byte) {
		ParseLink(p)
		if len(p) >= unix.SizeofRtMsg {
			ParseRoute(p)
		}
	})
}
