package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Tick is longer than the resolution of file times.
const Tick = 50 * time.Millisecond

// Stamp returns a value that changes whenever a record is created, removed or replaced. It is "" if that is uncertain:
// right after a change, or if the directory is unreadable. Take it before List to learn later whether the list is
// current.
func (d *Dir) Stamp() string {
	dirs, err := os.ReadDir(d.path)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, entry := range append([]os.DirEntry{nil}, dirs...) {
		path := d.path
		if entry != nil {
			path = filepath.Join(path, entry.Name())
		}
		st, err := os.Stat(path)
		if err != nil || time.Since(st.ModTime()) < Tick {
			return ""
		}
		fmt.Fprintf(&b, "%s %d\n", path, st.ModTime().UnixNano())
	}
	return b.String()
}
