package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tick is longer than the kernel's, in which two changes have the same time.
const tick = 50 * time.Millisecond

// Stamp is another whenever a record has come, gone or been replaced. It is "" while
// that cannot be told: right after a change, or where the directory cannot be read.
// Asked for before List, it tells later whether that list still holds.
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
		if err != nil || time.Since(st.ModTime()) < tick {
			return ""
		}
		fmt.Fprintf(&b, "%s %d\n", path, st.ModTime().UnixNano())
	}
	return b.String()
}
