package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/plainfile"
)

type claim struct {
	hostIP, mark string
	at           int64 // in the file
}

// claimList is a file as it was read.
type claimList struct {
	claims []claim
	end    int64 // of the last whole line
	struck int   // lines
}

// A kill must not lose what others claimed. So a claim is a line that is
// appended, and counts when its end is there; one that ends is struck out by its
// first byte.
const (
	struckOut  = "#"
	manyStruck = 64 // lines, and the file is written anew
)

func readClaims(path string) (l claimList, err error) {
	raw, err := plainfile.Read(path)
	if err != nil {
		return l, fmt.Errorf("read who has host port %s: %w", filepath.Base(path), err)
	}
	for line := range strings.Lines(string(raw)) {
		text, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break
		}
		ip, mark, ok := strings.Cut(text, " ")
		switch {
		case strings.HasPrefix(text, struckOut):
			l.struck++
		case ok && mark != "":
			l.claims = append(l.claims, claim{ip, mark, l.end})
		}
		l.end += int64(len(line))
	}
	return l, nil
}

func (l claimList) strike(f *os.File, dead func(mark string) bool) error {
	for _, c := range l.claims {
		if !dead(c.mark) {
			continue
		}
		if _, err := f.WriteAt([]byte(struckOut), c.at); err != nil {
			return err
		}
	}
	return nil
}

// add appends claims, over what a kill left of one.
func (l claimList) add(f *os.File, more []claim) error {
	if l.struck > manyStruck {
		more, l.end = append(l.claims, more...), 0
	}
	var b strings.Builder
	for _, c := range more {
		b.WriteString(c.hostIP + " " + c.mark + "\n")
	}
	if err := f.Truncate(l.end); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(b.String()), l.end)
	return err
}
