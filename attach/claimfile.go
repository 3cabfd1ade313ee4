package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/plainfile"
)

type claim struct {
	hostIP, tag string
	at          int64 // offset in the file
}

// claimList is the contents of a file.
type claimList struct {
	claims []claim
	end    int64 // end of the last complete line
	ended  int   // number of deleted lines
}

// A killed process must not lose other claims. So a new claim is appended and counts once its newline is there; an
// ended claim is marked by overwriting its first byte.
const (
	endedPrefix = "#"
	maxEnded    = 64 // with more deleted lines, the file is rewritten
)

func readClaims(path string) (l claimList, err error) {
	raw, err := plainfile.Read(path)
	if err != nil {
		return l, fmt.Errorf("read the owners of host port %s: %w", filepath.Base(path), err)
	}
	for line := range strings.Lines(string(raw)) {
		text, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break
		}
		ip, tag, ok := strings.Cut(text, " ")
		switch {
		case strings.HasPrefix(text, endedPrefix):
			l.ended++
		case ok && tag != "":
			l.claims = append(l.claims, claim{ip, tag, l.end})
		}
		l.end += int64(len(line))
	}
	return l, nil
}

func (l claimList) markEnded(f *os.File, dead func(tag string) bool) error {
	for _, c := range l.claims {
		if !dead(c.tag) {
			continue
		}
		if _, err := f.WriteAt([]byte(endedPrefix), c.at); err != nil {
			return err
		}
	}
	return nil
}

// add appends claims, over an incomplete line. If it rewrites the file, it writes first, over the ended lines, and then cuts
// the file off: at no moment does the file lack a claim.
func (l claimList) add(f *os.File, more []claim) error {
	if l.ended > maxEnded {
		text := textOf(append(l.claims, more...))
		if _, err := f.WriteAt(text, 0); err != nil {
			return err
		}
		return f.Truncate(int64(len(text)))
	}
	if err := f.Truncate(l.end); err != nil {
		return err
	}
	_, err := f.WriteAt(textOf(more), l.end)
	return err
}

func textOf(list []claim) []byte {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(c.hostIP + " " + c.tag + "\n")
	}
	return []byte(b.String())
}
